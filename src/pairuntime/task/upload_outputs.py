"""Bring a task's results to the storage: what lies in the folder for them, and what the job named."""

import fnmatch
import json
import os
import sys

from pairuntime.task.webhdfs import Storage, WebHdfsError

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
    except (WebHdfsError, OSError) as e:
        said = getattr(e, "strerror", None) or e
        sys.stderr.write("The results could not be brought to %s on the storage: %s\n" % (target, said))
        return 1
    for complaint in complaints:
        sys.stderr.write(complaint + "\n")
    return 0


def collect(folder: "str", work: "str", patterns: "list[str]") -> "tuple[dict[str, str], list[str]]":
    """The files to keep, by the name each gets; and what is to be said about others.

    What is in the folder for results is named from there, other files by their path in the working folder.
    Nothing outside the working folder is kept or even looked at, whatever link leads there: it may not be
    the task's.
    """
    root = os.path.realpath(work) + os.sep
    found = {}  # type: dict[str, str]
    complaints = []  # type: list[str]
    wanted = _named(patterns, work, complaints)
    if (os.path.realpath(folder) + os.sep).startswith(root):
        wanted += [(file, folder) for file in files_below(folder)]
    for file, start in wanted:
        name = os.path.relpath(file, start).replace(os.sep, "/")
        if os.path.realpath(file).startswith(root) and os.path.isfile(file):
            found[name] = file
        elif os.path.islink(file):
            complaints.append("%s leads out of the working folder, or nowhere, and was not kept." % name)
    return found, complaints


def _named(patterns: "list[str]", work: "str", complaints: "list[str]") -> "list[tuple[str, str]]":
    if not patterns:
        return []
    names = [os.path.relpath(file, work).replace(os.sep, "/") for file in files_below(work)]
    # The folder for results, and the figures, are seen to by themselves.
    names = [name for name in names if not name.startswith(".pai/")]
    found = []
    for pattern in patterns:
        matching = [name for name in names if matches(pattern, name)]
        if not matching:
            complaints.append("No file matches %s: nothing of it was kept." % pattern)
        found += [(os.path.join(work, *name.split("/")), work) for name in matching]
    return found


def matches(pattern: "str", name: "str") -> "bool":
    """Whether a pattern names this file, or a folder it lies in. ``**`` means any number of folders."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return bool(parts) and _match(parts, name.split("/"))


def _match(parts: "list[str]", names: "list[str]") -> "bool":
    if not parts:
        return True  # the file itself, or a folder above it
    if not names:
        return False
    if parts[0] == "**":
        return _match(parts[1:], names) or _match(parts, names[1:])
    return fnmatch.fnmatchcase(names[0], parts[0]) and _match(parts[1:], names[1:])


def files_below(folder: "str") -> "list[str]":
    """All files of a folder, and links. Links to folders are not followed: there may be circles."""
    found = []
    for root, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        found += [os.path.join(root, name) for name in names + links]
    return found
