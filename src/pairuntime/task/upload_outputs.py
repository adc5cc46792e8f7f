"""Upload a task's outputs to the storage: the output folder, and the files that match the job's patterns."""

import fnmatch
import json
import os
import sys

from pairuntime.task.webhdfs import Storage, WebHdfsError, is_utf8

VARIABLE = "PAI_OUTPUT_UPLOAD"


def main(_argv: "list[str]") -> "int":
    """Upload as described in one variable: WebHDFS address, target folder, output folder, patterns."""
    request = json.loads(os.environ[VARIABLE])
    # The commands may have changed the folder.
    work = request.get("work") or os.getcwd()
    files, warnings = collect(request["folder"], work, request.get("patterns") or [])
    storage = Storage(request["address"], request.get("token", ""), request.get("user", ""))
    target = str(request["target"]).rstrip("/")
    size = 0
    try:
        storage.make_folder(target)
        for name, path in sorted(files.items()):
            size += storage.put(path, target + "/" + name)
    except (WebHdfsError, OSError) as e:
        error = getattr(e, "strerror", None) or e
        sys.stderr.write("The outputs could not be uploaded to %s: %s\n" % (target, error))
        return 1
    for warning in warnings:
        sys.stderr.write(warning + "\n")
    return 0


def collect(folder: "str", work: "str", patterns: "list[str]") -> "tuple[dict[str, str], list[str]]":
    """Files to upload by their name in the target folder, and warnings about others.

    Files of the output folder are named relative to it, others relative to the working folder. Nothing
    outside the working folder is uploaded or even read, whatever link leads there: it may not be the task's.
    """
    root = os.path.realpath(work) + os.sep
    files = {}  # type: dict[str, str]
    warnings = []  # type: list[str]
    candidates = _matching_files(patterns, work, warnings)
    if (os.path.realpath(folder) + os.sep).startswith(root):
        candidates += [(file, folder) for file in files_below(folder)]
    for file, start in candidates:
        name = os.path.relpath(file, start).replace(os.sep, "/")
        if not is_utf8(name):
            shown = name.encode("utf-8", "backslashreplace").decode()
            warnings.append("The name %s is not UTF-8: the file was not uploaded." % shown)
        elif os.path.realpath(file).startswith(root) and os.path.isfile(file):
            files[name] = file
        elif os.path.islink(file):
            warnings.append("%s is a link out of the working folder, or broken, and was not uploaded." % name)
    return files, warnings


def _matching_files(patterns: "list[str]", work: "str", warnings: "list[str]") -> "list[tuple[str, str]]":
    if not patterns:
        return []
    names = [os.path.relpath(file, work).replace(os.sep, "/") for file in files_below(work)]
    # The output folder is handled by itself, and metrics are not outputs.
    names = [name for name in names if not name.startswith(".pai/")]
    files = []
    for pattern in patterns:
        matching = [name for name in names if matches(pattern, name)]
        if not matching:
            warnings.append("No file matches %s: nothing was uploaded for it." % pattern)
        files += [(os.path.join(work, *name.split("/")), work) for name in matching]
    return files


def matches(pattern: "str", name: "str") -> "bool":
    """Whether a pattern matches this file, or a folder above it. ``**`` matches any number of folders."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return bool(parts) and _match(parts, name.split("/"))


def _match(parts: "list[str]", names: "list[str]") -> "bool":
    if not parts:
        return True  # matched the file itself, or a folder above it
    if not names:
        return False
    if parts[0] == "**":
        return _match(parts[1:], names) or _match(parts, names[1:])
    return fnmatch.fnmatchcase(names[0], parts[0]) and _match(parts[1:], names[1:])


def files_below(folder: "str") -> "list[str]":
    """All files and links below a folder. Links to folders are not followed: there may be cycles."""
    files = []
    for root, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        files += [os.path.join(root, name) for name in names + links]
    return files
