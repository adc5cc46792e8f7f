"""Run a command in a running task: in its folder, with its environment and limits.

`exec` is for a task that is a process of the server's machine, `exec-slurm` for one of a Slurm job, where
srun has already entered the allocation. Started once for each command, so it need not be as small as a
supervisor.
"""

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any


def run(folder: "str", command: "list[str]", variables: "dict[str, str] | None" = None) -> "int":
    """Become the command. Returns an exit status only on failure.

    ``variables``: set in addition to those of the task.
    """
    # Nodes of a Slurm cluster do without these imports.
    from pairuntime.supervisor import attempt, claim, limits, process_tree

    if not claim.is_held(folder):
        sys.stderr.write("The task is not running.\n")
        return 1
    spec = _read_spec(folder)
    try:
        # Read before the account changes: the folder is closed to the account of the task.
        own = dict(spec["env"])
        if "TERM" in os.environ:
            own["TERM"] = os.environ["TERM"]
        own.update(variables or {})
        environment = attempt.whole_environment(folder, own, spec.get("env_suffixes"))
        # In the task's cgroup it is found, limited, and ended with the rest.
        cgroup = process_tree.Cgroup(spec["cgroup"]["mode"], spec["cgroup"]["path"])
        if cgroup.path and os.path.isdir(cgroup.path):
            cgroup.join()
        limits.Limits(spec.get("limits") or ()).join()
        account = spec.get("account")
        if account:
            if os.isatty(0):
                # Programs open their terminal by name, too.
                os.fchown(0, account["uid"], -1)
            os.setgroups(account["groups"])
            os.setgid(account["gid"])
            os.setuid(account["uid"])
        os.chdir(spec["cwd"])
        os.execvpe(command[0], command, environment)
    except OSError as e:
        sys.stderr.write("%s: %s\n" % (command[0], e.strerror))
    return 127


def run_slurm(folder: "str", command: "list[str]") -> "int":
    """The same on a node of a Slurm cluster."""
    spec = _read_spec(folder)
    if spec.get("shared_exports"):
        # The environment that the gang shares is a file of shell exports.
        command = ["/bin/sh", "-c", '. "$0"; exec "$@"', spec["shared_exports"]] + command
    if spec.get("exec_prefix"):
        # The last argument of the prefix is the container's name; options come before it.
        terminal = ["--tty"] if os.isatty(0) else []
        command = spec["exec_prefix"][:-1] + terminal + spec["exec_prefix"][-1:] + command
    try:
        os.chdir(spec["cwd"])
        os.execvpe(command[0], command, spec["env"])
    except OSError as e:
        sys.stderr.write("%s: %s\n" % (command[0], os.strerror(e.errno or 0)))
    return 127


def _read_spec(folder: "str") -> "dict[str, Any]":
    with open(os.path.join(folder, "spec.json")) as f:
        return dict(json.load(f))
