"""Entry point of the zipapp: ``pairuntime.pyz zygote FD``, ``supervise FOLDER``, ``slurm GANG``."""

import sys


def main(argv: "list[str]") -> "int":
    if len(argv) == 2 and argv[0] == "zygote":
        from pairuntime.supervisor import zygote

        return zygote.serve(int(argv[1]))
    if len(argv) == 2 and argv[0] == "supervise":
        from pairuntime.supervisor import supervise, tree

        return supervise.supervise(argv[1], tree.Cgroup(tree.PROC, ""))
    if len(argv) == 2 and argv[0] in ("slurm", "slurm-task"):
        from pairuntime.slurm import gang

        return gang.run(argv[1]) if argv[0] == "slurm" else gang.run_task(argv[1])
    sys.stderr.write("usage: pairuntime zygote FD | pairuntime supervise FOLDER | pairuntime slurm GANG\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
