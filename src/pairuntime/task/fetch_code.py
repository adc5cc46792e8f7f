"""Fetch a job's ``codeDir``: to ``/pai/code`` where the task has a machine of its own, and to where it works.

``pairuntime code ADDRESS`` prints the line a shell evaluates to know the copy.
"""

import os
import posixpath
import shlex
import shutil
import sys

from pairuntime.task import hdfs_cli
from pairuntime.task.webhdfs import WebHdfsError

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

    from pairuntime.task.webhdfs import Storage

MAX_CODE_BYTES = 200000000
CONTAINER_CODE_FOLDER = "/pai/code"


def main(argv: "list[str]") -> "int":
    try:
        folder = fetch(argv[0])
    except (WebHdfsError, hdfs_cli.HdfsCommandError) as e:
        sys.stderr.write("The code in %s could not be fetched: %s\n" % (argv[0], e))
        return 1
    except OSError as e:
        said = "%s: %s" % (e.filename, e.strerror) if e.filename else e
        sys.stderr.write("The code in %s could not be fetched: %s\n" % (argv[0], said))
        return 1
    print("export PAI_CODE_DIR=%s" % shlex.quote(folder))
    return 0


def fetch(address: "str") -> "str":
    """Bring the folder here; where the copy is."""
    storage, where = hdfs_cli.resolve(address)
    status = storage.status(where)
    if status is None:
        raise hdfs_cli.HdfsCommandError("there is no such folder on the storage.")
    size = _size(storage, where, status)
    if size > MAX_CODE_BYTES:
        raise hdfs_cli.HdfsCommandError("it has %d bytes, and may have %d." % (size, MAX_CODE_BYTES))
    folder = _place()
    if status["type"] == "DIRECTORY":
        for entry in storage.entries(where):
            name = entry["pathSuffix"]
            hdfs_cli.get_one(storage, posixpath.join(where, name), entry, os.path.join(folder, name))
    else:
        hdfs_cli.get_one(storage, where, status, os.path.join(folder, posixpath.basename(where)))
    _copy_into(folder, os.getcwd())
    return folder


def _size(storage: "Storage", where: "str", status: "dict[str, Any]") -> "int":
    if status["type"] != "DIRECTORY":
        return int(status["length"])
    return sum(_size(storage, posixpath.join(where, e["pathSuffix"]), e) for e in storage.entries(where))


def _place() -> "str":
    """A container is the task's own; a host is not, and there the copy lies beside the work."""
    if os.environ.get("PAI_RUNTIME_DIR", "").startswith("/usr/local/pai"):
        try:
            os.makedirs(CONTAINER_CODE_FOLDER, exist_ok=True)
        except OSError:
            pass
        else:
            return CONTAINER_CODE_FOLDER
    folder = os.path.join(os.environ.get("PAI_WORK_DIR") or os.getcwd(), ".pai", "code")
    os.makedirs(folder, exist_ok=True)
    return folder


def _copy_into(source: "str", target: "str") -> "None":
    """What is there already stays as it is."""
    for name in os.listdir(source):
        path, copy = os.path.join(source, name), os.path.join(target, name)
        if os.path.isdir(path):
            os.makedirs(copy, exist_ok=True)
            _copy_into(path, copy)
        elif not os.path.exists(copy):
            shutil.copy2(path, copy)
