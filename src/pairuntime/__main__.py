"""Entry point of the zipapp: commands of the server (`zygote`, `exec`, ...) and of tasks (`hdfs`, ...)."""

import sys

_USAGE = "usage: pairuntime zygote FD | supervise FOLDER | slurm GANG | exec FOLDER COMMAND\n"


def main(argv: "list[str]") -> "int":
    # Each command imports only what it needs: an interpreter starts for every one of them.
    if len(argv) == 2 and argv[0] == "zygote":
        from pairuntime.supervisor import zygote

        return zygote.serve(int(argv[1]))
    if len(argv) == 2 and argv[0] == "supervise":
        from pairuntime.supervisor import attempt_factory, process_tree

        return attempt_factory.supervise(argv[1], process_tree.Cgroup(process_tree.PROC, ""))
    if len(argv) == 2 and argv[0] in ("slurm", "slurm-task"):
        from pairuntime.slurm import gang_launcher

        return gang_launcher.run_task(argv[1]) if argv[0] == "slurm-task" else gang_launcher.run(argv[1])
    if len(argv) > 2 and argv[0] in ("exec", "exec-slurm"):
        from pairuntime import exec_in_task

        run = exec_in_task.run if argv[0] == "exec" else exec_in_task.run_slurm
        return run(argv[1], argv[2:])
    if len(argv) > 2 and argv[0] == "session":
        import gc

        from pairuntime import fast_imports

        fast_imports.install()
        gc.enable()  # a session may last for days
        from pairuntime.session import host, remote_process

        entrance = {
            "task": lambda: remote_process.Entrance(folder=argv[2]),
            "command": lambda: remote_process.Entrance(prefix=tuple(argv[2:])),
        }.get(argv[1])
        if entrance is not None:
            return host.run(entrance())
    if len(argv) in (3, 4) and argv[:2] == ["forward", "local"]:
        from pairuntime.session import forwarder

        return forwarder.run_local(*argv[2:])
    if len(argv) > 3 and argv[:2] == ["forward", "command"]:
        from pairuntime.session import forwarder

        return forwarder.run_with_command(argv[2], argv[3:])
    if argv == ["forward", "node"]:
        from pairuntime.session import forwarder

        return forwarder.run_on_node()
    if argv == ["upload-outputs"]:
        from pairuntime.task import upload_outputs

        return upload_outputs.main()
    if argv and argv[0] == "hdfs":
        from pairuntime.task import hdfs_cli

        return hdfs_cli.main(argv[1:])
    if argv and argv[0] == "hdfs-mount":
        from pairuntime.task import hdfs_mount

        return hdfs_mount.main(argv[1:])
    if len(argv) == 2 and argv[0] == "sources":
        from pairuntime.task import fetch_sources

        return fetch_sources.main(argv[1:])
    if len(argv) == 2 and argv[0] == "code":
        from pairuntime.task import fetch_code

        return fetch_code.main(argv[1:])
    if len(argv) > 1 and argv[0] == "packages":
        from pairuntime.task import python_packages

        return python_packages.main(argv[1:])
    if len(argv) == 2 and argv[0] == "call":
        from pairuntime.task import function_task

        return function_task.main(argv[1:])
    if len(argv) > 1 and argv[0] == "job-ssh":
        from pairuntime.task import job_ssh

        return job_ssh.main(argv[1:])
    if argv and argv[0] == "paddle":
        from pairuntime.task import paddle_launcher

        return paddle_launcher.main(argv[1:])
    if len(argv) == 2 and argv[0] == "notebook-server":
        from pairuntime.task import notebook_server

        return notebook_server.main(argv)
    if len(argv) > 1 and argv[0] == "notebook":
        from pairuntime.task import notebook_execution

        return notebook_execution.main(argv)
    sys.stderr.write(_USAGE)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
