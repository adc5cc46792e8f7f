"""Bring a task's results to the storage: what lies in the folder for them, and what the job named."""

import glob
import json
import os
import sys

from pairuntime.task.webhdfs import Refused, Storage

VARIABLE = "PAI_KEEP"


def main() -> "int":
    """What to keep comes in one variable: the address, the target, the folder, and the named patterns."""
    told = json.loads(os.environ[VARIABLE])
    # The commands may have gone elsewhere meanwhile.
    work = told.get("work") or os.getcwd()
    found, complaints = collect(told["folder"], work, told.get("named") or [])
    storage = Storage(told["address"], told.get("token", ""), told.get("user", ""))
    target = str(told["target"]).rstrip("/")
    size = 0
    try:
        storage.make_folder(target)
        for name, path in sorted(found.items()):
            size += storage.put(path, target + "/" + name)
    except (Refused, OSError) as e:
        said = getattr(e, "strerror", None) or e
        sys.stderr.write("The results could not be brought to %s on the storage: %s\n" % (target, said))
        return 1
    for complaint in complaints:
        sys.stderr.write(complaint + "\n")
    return 0


def collect(folder: "str", work: "str", patterns: "list[str]") -> "tuple[dict[str, str], list[str]]":
    """The files to keep, by the name each gets; and what is to be said about others.

    What is in the folder for results is named from there, other files by their path in the working folder.
    Nothing outside the working folder is kept, whatever link leads there: it may not be the task's.
    """
    root = os.path.realpath(work) + os.sep
    found = {}  # type: dict[str, str]
    complaints = []  # type: list[str]
    wanted = [(file, work) for pattern in patterns for file in _matching(pattern, work, complaints)]
    wanted += [(file, folder) for file in files_below(folder)]
    for file, start in wanted:
        if os.path.realpath(file).startswith(root):
            found[os.path.relpath(file, start).replace(os.sep, "/")] = file
        else:
            complaints.append("%s lies outside the working folder and was not kept." % file)
    return found, complaints


def _matching(pattern: "str", work: "str", complaints: "list[str]") -> "list[str]":
    matches = glob.glob(os.path.join(glob.escape(work), pattern), recursive=True)
    if not matches:
        complaints.append("No file matches %s: nothing of it was kept." % pattern)
    return [file for path in sorted(matches) for file in files_below(path)]


def files_below(path: "str") -> "list[str]":
    """The file itself, or all files of a folder. Links to folders are not followed: there may be circles."""
    if os.path.isfile(path):
        return [path]
    return [
        os.path.join(root, name)
        for root, _, names in os.walk(path)
        for name in names
        if os.path.isfile(os.path.join(root, name))
    ]
