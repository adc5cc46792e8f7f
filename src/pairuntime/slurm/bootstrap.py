"""What runs first on a node that sees nothing of the cluster's files: fetches all else from the server.

It travels as text in the batch script, so that it can use nothing of ours before it has fetched it.
"""

import fcntl
import http.client
import os
import shutil
import ssl
import sys
import tarfile
import time
from urllib.parse import urlencode, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The variable that carries this text to every task of a gang, and the program that runs it.
TEXT = "PAI_SLURM_BOOT"
START = "import os; exec(os.environ['%s'])" % TEXT
# Nothing has begun: after so long the allocation is given back, and the attempt is tried again later.
_DOWNLOAD_TIMEOUT_S = 300.0
# A chain may end at any certificate that we are given. The name came with Python 3.10.
_PARTIAL_CHAIN = 0x80000
_LONGEST_PAUSE_S = 15.0
_TIMEOUT_S = 60.0
# In a folder of ours on a node: the node's name, locked while somebody uses the folder.
HELD = "held"


def connect(told: "dict[str, Any]", timeout_s: "float") -> "http.client.HTTPConnection":
    parts = urlsplit(told["url"])
    if parts.scheme == "https":
        secure = ssl.create_default_context()
        # Who was submitted by an older server brings none.
        if told.get("authority"):
            secure.load_verify_locations(cadata=told["authority"])
            secure.verify_flags |= _PARTIAL_CHAIN
        return http.client.HTTPSConnection(parts.netloc, timeout=timeout_s, context=secure)
    return http.client.HTTPConnection(parts.netloc, timeout=timeout_s)


def headers(ticket: "str") -> "dict[str, str]":
    return {"Authorization": "Bearer " + ticket}


def lock_folder(root: "str") -> "None":
    """The folder is in use for as long as this process or a copy of it lives; programs do not inherit it."""
    aside = os.path.join(root, "%s.%d" % (HELD, os.getpid()))
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        pass  # no locks here: nobody can tell then, and it stays
    os.write(fd, node())
    os.rename(aside, os.path.join(root, HELD))


def node() -> "bytes":
    return os.uname()[1].encode()


def main(told: "dict[str, Any]") -> "None":
    """``told``: where the server is, by what it is known, the gang's ticket, and where things are to lie."""
    component = os.environ.get("PAI_SLURM_COMPONENT")
    root = told["root"]
    asked = {"job": os.environ.get("SLURM_JOB_ID", "")}
    if component is not None:
        # A task of several. It has a folder for itself, whoever else of its gang is on this node.
        asked = {"component": component, "rank": os.environ["SLURM_PROCID"]}
        root = "%s-%s-%s" % (root, component, asked["rank"])
        del os.environ[TEXT]
    try:
        os.mkdir(root, 0o700)
    except FileExistsError:
        # Another start of the same job left it. Nobody else could know its name.
        if os.path.islink(root) or os.stat(root).st_uid != os.geteuid():
            raise
    try:
        # Also of one that is killed while it still fetches, somebody must know what it left.
        lock_folder(root)
    except OSError:
        pass  # the disk is full, perhaps; then fetching says so
    path = "%s/bundle?%s" % (told["gang"], urlencode(asked))
    ends = time.monotonic() + _DOWNLOAD_TIMEOUT_S
    pause = 0.5
    while not _fetch(told, path, root):
        if time.monotonic() > ends:
            shutil.rmtree(root, ignore_errors=True)
            sys.exit("The server did not answer at %s." % told["url"])
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)
    sys.path.insert(0, os.path.join(root, told["archive"]))
    from pairuntime.slurm import report_uploader

    sys.exit(report_uploader.run(told, root))


def _fetch(told: "dict[str, Any]", path: "str", root: "str") -> "bool":
    """Whether everything is here. It is not for us: leave."""
    connection = connect(told, _TIMEOUT_S)
    try:
        way = urlsplit(told["url"]).path.rstrip("/") + "/api/v2/attempts/" + path
        connection.request("GET", way, headers=headers(told["ticket"]))
        answer = connection.getresponse()
        if answer.status == 409:
            shutil.rmtree(root, ignore_errors=True)
            sys.exit(3)
        if answer.status != 200:
            return False
        with tarfile.open(fileobj=answer, mode="r|") as parcel:
            for member in parcel:
                parcel.extract(member, root)
    except (OSError, http.client.HTTPException, tarfile.TarError):
        return False
    finally:
        connection.close()
    # It comes last.
    return os.path.exists(os.path.join(root, told["folder"], "gang.json"))
