"""Entry point of the zipapp: commands of the server (`zygote`, `exec`, ...) and of tasks (`hdfs`, ...)."""

import sys

_USAGE = "usage: pairuntime zygote FD | supervise FOLDER | slurm GANG | exec FOLDER COMMAND\n"

_ANY = sys.maxsize
# Programs that tasks and supervisors start, in `pairuntime.task`: module, and how many arguments it takes.
_TASK_PROGRAMS = {
    "call": ("function_task", 1, 1),
    "code": ("fetch_code", 1, 1),
    "hdfs": ("hdfs_cli", 0, _ANY),
    "hdfs-mount": ("hdfs_mount", 0, _ANY),
    "job-ssh": ("job_ssh", 1, _ANY),
    "notebook": ("notebook_execution", 1, _ANY),
    "notebook-server": ("notebook_server", 1, 1),
    "packages": ("python_packages", 1, _ANY),
    "paddle": ("paddle_launcher", 0, _ANY),
    "sources": ("fetch_sources", 1, 1),
    "upload-outputs": ("upload_outputs", 0, 0),
}  # type: dict[str, tuple[str, int, int]]


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
            "node": lambda: remote_process.Entrance(
                prefix=tuple(argv[3:]), passes_signals=True, account=remote_process.account_from(argv[2])
            ),
        }.get(argv[1])
        if entrance is not None:
            return host.run(entrance())
    if len(argv) > 2 and argv[:2] == ["forward", "local"]:
        from pairuntime.session import forwarder

        return forwarder.run_local(argv[2], argv[3:])
    if len(argv) > 4 and argv[:2] == ["forward", "command"]:
        from pairuntime.session import forwarder, remote_process

        return forwarder.run_with_command(argv[3], argv[4:], remote_process.account_from(argv[2]))
    if argv == ["forward", "node"]:
        from pairuntime.session import forwarder

        return forwarder.run_on_node()
    if argv and argv[0] in _TASK_PROGRAMS:
        module, least, most = _TASK_PROGRAMS[argv[0]]
        if least <= len(argv) - 1 <= most:
            return int(__import__("pairuntime.task." + module, fromlist=["main"]).main(argv[1:]))
    sys.stderr.write(_USAGE)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
