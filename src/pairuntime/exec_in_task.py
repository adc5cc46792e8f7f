"""Runs a command beside a task that is a process of this machine: its folder, its environment, its limits.

Started by the server for each such command, so that it need not be as small as a supervisor.
"""

import json
import os
import sys

from pairuntime.supervisor import attempt, claim, limits, process_tree


def run(folder: "str", command: "list[str]") -> "int":
    """Become the command. Gives an exit status only when it cannot."""
    if not claim.is_held(folder):
        sys.stderr.write("The task does not run any more.\n")
        return 1
    spec = json.loads(claim.read_file(os.path.join(folder, attempt.SPEC)).decode())
    try:
        # Read while we still may: it is closed to the account of the task.
        own = dict(spec["env"])
        if "TERM" in os.environ:
            own["TERM"] = os.environ["TERM"]
        environment = attempt.whole_environment(folder, own, spec.get("tails"))
        # There it is found, limited, and ended with the rest.
        held = process_tree.Cgroup(spec["tree"]["mode"], spec["tree"]["path"])
        if held.path and os.path.isdir(held.path):
            held.join()
        limits.Limits(spec.get("limits") or ()).join()
        account = spec.get("account")
        if account:
            os.setgroups(account["groups"])
            os.setgid(account["gid"])
            os.setuid(account["uid"])
        os.chdir(spec["cwd"])
        os.execvpe(command[0], command, environment)
    except OSError as e:
        sys.stderr.write("%s: %s\n" % (command[0], e.strerror))
    return 127
