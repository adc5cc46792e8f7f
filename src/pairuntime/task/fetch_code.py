"""Fetch a job's ``codeDir`` into a code folder (``/pai/code`` in a container) and into the working folder.

There are two layouts, for commands of either kind. OpenPAI has the folder itself in both places, so that
``codeDir: .../digits`` is run by ``python digits/train.py``. Here its contents are there as well, for
``python train.py``. Where both have the same name (``code/code``), it is the folder, as in OpenPAI.

``pairuntime code ADDRESS`` prints the shell line that exports PAI_CODE_DIR.
"""

import os
import posixpath
import shlex
import shutil
import sys

from pairuntime.task import hdfs_cli, hdfs_paths
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
    except (WebHdfsError, hdfs_paths.HdfsCommandError) as e:
        sys.stderr.write("The code in %s could not be fetched: %s\n" % (argv[0], e))
        return 1
    except OSError as e:
        error = "%s: %s" % (e.filename, e.strerror) if e.filename else e
        sys.stderr.write("The code in %s could not be fetched: %s\n" % (argv[0], error))
        return 1
    print("export PAI_CODE_DIR=%s" % shlex.quote(folder))
    return 0


def fetch(address: "str") -> "str":
    """Copy the folder; returns the path of the copy, which has the folder's contents and nothing else."""
    storage, path = hdfs_paths.resolve(address)
    status = storage.status(path)
    if status is None:
        raise hdfs_paths.HdfsCommandError("there is no such folder on the storage.")
    size = _size(storage, path, status)
    if size > MAX_CODE_BYTES:
        raise hdfs_paths.HdfsCommandError("it has %d bytes; the limit is %d." % (size, MAX_CODE_BYTES))
    folder = _code_folder()
    name = posixpath.basename(path.rstrip("/"))
    if status["type"] != "DIRECTORY" or not name:
        _fetch_contents(storage, path, status, folder)
        _copy_into(folder, os.getcwd())
        return folder
    code = os.path.join(folder, name)
    os.makedirs(code, exist_ok=True)
    _fetch_contents(storage, path, status, code)
    _link_contents(code, folder)
    # First the folder itself: what it has in common with its contents is then there already.
    itself = os.path.join(os.getcwd(), name)
    os.makedirs(itself, exist_ok=True)
    _copy_into(code, itself)
    _copy_into(code, os.getcwd(), besides=name)
    if os.path.lexists(os.path.join(code, name)):
        sys.stderr.write(
            "%s is the folder %s itself, which contains another %s: that one is %s/%s.\n"
            % (name, address, name, name, name)
        )
    return code


def _fetch_contents(storage: "Storage", path: "str", status: "dict[str, Any]", folder: "str") -> "None":
    """Fetch what is in a folder of the storage; of a file, the file."""
    if status["type"] != "DIRECTORY":
        hdfs_cli.get_one(storage, path, status, os.path.join(folder, posixpath.basename(path)))
        return
    for entry in storage.entries(path):
        name = entry["pathSuffix"]
        hdfs_cli.get_one(storage, posixpath.join(path, name), entry, os.path.join(folder, name))


def _link_contents(code: "str", folder: "str") -> "None":
    """Let the contents be seen in the code folder, too; a copy would take the same space again."""
    for name in os.listdir(code):
        link = os.path.join(folder, name)
        if not os.path.lexists(link):
            os.symlink(os.path.join(os.path.basename(code), name), link)


def _size(storage: "Storage", where: "str", status: "dict[str, Any]") -> "int":
    if status["type"] != "DIRECTORY":
        return int(status["length"])
    return sum(_size(storage, posixpath.join(where, e["pathSuffix"]), e) for e in storage.entries(where))


def _code_folder() -> "str":
    """``/pai/code`` in a container; on a host, which other tasks share, a folder in the working folder."""
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


def _copy_into(source: "str", target: "str", besides: "str" = "") -> "None":
    """Copy what is in a folder, except for one name; existing files are kept."""
    for name in os.listdir(source):
        if name == besides:
            continue
        path, copy = os.path.join(source, name), os.path.join(target, name)
        if os.path.isdir(path):
            os.makedirs(copy, exist_ok=True)
            _copy_into(path, copy)
        elif not os.path.exists(copy):
            shutil.copy2(path, copy)
