"""Runs a command beside a task: in its folder, with its environment."""

import json
import os
import sys


def run(folder: "str", command: "list[str]") -> "int":
    with open(os.path.join(folder, "spec.json")) as f:
        spec = json.load(f)
    if spec.get("common"):
        # What the gang has in common is in words of the shell.
        command = ["/bin/sh", "-c", '. "$0"; exec "$@"', spec["common"]] + command
    if spec.get("inside"):
        # The last word is the container's name.
        terminal = ["--tty"] if os.isatty(0) else []
        command = spec["inside"][:-1] + terminal + spec["inside"][-1:] + command
    try:
        os.chdir(spec["cwd"])
        os.execvpe(command[0], command, spec["env"])
    except OSError as e:
        sys.stderr.write("%s: %s\n" % (command[0], os.strerror(e.errno or 0)))
    return 127
