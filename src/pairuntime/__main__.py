"""Entry point of the zipapp: what the server starts (`zygote`, `supervise`, ...) and what tasks may call."""

import sys


def main(argv: "list[str]") -> "int":
    if len(argv) == 2 and argv[0] == "zygote":
        from pairuntime.supervisor import zygote

        return zygote.serve(int(argv[1]))
    if len(argv) == 2 and argv[0] == "supervise":
        from pairuntime.supervisor import attempt, process_tree

        return attempt.supervise(argv[1], process_tree.Cgroup(process_tree.PROC, ""))
    if len(argv) == 2 and argv[0] in ("slurm", "slurm-task"):
        from pairuntime.slurm import gang_launcher

        return gang_launcher.run_task(argv[1]) if argv[0] == "slurm-task" else gang_launcher.run(argv[1])
    if len(argv) > 2 and argv[0] == "beside":
        from pairuntime import exec_in_task

        return exec_in_task.run(argv[1], argv[2:])
    if argv == ["keep"]:
        from pairuntime.task import upload_outputs

        return upload_outputs.main()
    if argv and argv[0] == "hdfs":
        from pairuntime.task import hdfs_cli

        return hdfs_cli.main(argv[1:])
    if len(argv) == 2 and argv[0] == "sources":
        from pairuntime.task import fetch_sources

        return fetch_sources.main(argv[1:])
    if len(argv) == 2 and argv[0] == "code":
        from pairuntime.task import fetch_code

        return fetch_code.main(argv[1:])
    if len(argv) > 1 and argv[0] == "packages":
        from pairuntime.task import python_packages

        return python_packages.main(argv[1:])
    if len(argv) > 2 and argv[0] == "inside":
        from pairuntime.slurm import inside

        return inside.run(argv[1], argv[2:])
    sys.stderr.write("usage: pairuntime zygote FD | supervise FOLDER | slurm GANG | beside FOLDER COMMAND\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
