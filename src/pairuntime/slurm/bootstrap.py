"""Bootstrap on a node without a shared file system: downloads the launch bundle, then starts it.

Travels as text in the batch script: it can import nothing of this project before the download.
"""

import http.client
import os
import shutil
import stat
import sys
import tarfile
import time
from urllib.parse import urlencode, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

if "lock_folder" not in globals():  # in the batch script the texts of both precede this one
    from pairuntime.reports.server_connection import connect, headers
    from pairuntime.slurm.node import BOOTSTRAP_VARIABLE, lock_folder

# Nothing has started yet: after this time the allocation is released, and the attempt is retried later.
_DOWNLOAD_TIMEOUT_S = 300.0
_BACKOFF_MAX_S = 15.0
_REQUEST_TIMEOUT_S = 60.0


def main(config: "dict[str, Any]") -> "None":
    """``config``: the server's URL and certificates, the gang's ticket, and the paths on the node."""
    component = os.environ.get("PAI_SLURM_COMPONENT")
    root = config["root"]
    query = {"job": os.environ.get("SLURM_JOB_ID", "")}
    if component is not None:
        # One of several tasks. It has its own folder, even if other tasks of the gang are on this node.
        query = {"component": component, "rank": os.environ["SLURM_PROCID"]}
        root = "%s-%s-%s" % (root, component, query["rank"])
        del os.environ[BOOTSTRAP_VARIABLE]
    _check_node_folder(config, os.path.dirname(root))
    try:
        os.mkdir(root, 0o700)
    except FileExistsError:
        # Left by another start of the same job: no other process could know its name.
        if os.path.islink(root) or os.stat(root).st_uid != os.geteuid():
            raise
    try:
        # Before the download: if this process is killed during it, the folder must be recognizable as stale.
        lock_folder(root)
    except OSError:
        pass  # perhaps a full disk; then the download reports it
    path = "%s/bundle?%s" % (config["gang"], urlencode(query))
    deadline = time.monotonic() + _DOWNLOAD_TIMEOUT_S
    pause = 0.5
    while not _download(config, path, root):
        if time.monotonic() > deadline:
            shutil.rmtree(root, ignore_errors=True)
            sys.exit("The server did not respond at %s." % config["url"])
        time.sleep(pause)
        pause = min(pause * 2, _BACKOFF_MAX_S)
    sys.path.insert(0, os.path.join(root, config["archive"]))
    from pairuntime.slurm import reported_launch

    sys.exit(reported_launch.run(config, root))


def _check_node_folder(config: "dict[str, Any]", folder: "str") -> "None":
    """Exit where any user of the node could rename the folder of a task, and put another in its place."""
    mode = os.stat(folder).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        reason = (
            "Every user of the node may replace the files of tasks in %s, the node-folder: it has no sticky "
            "bit. Set it on every node: chmod +t %s" % (folder, folder)
        )
        _report(config, reason)
        sys.exit(reason)


def _report(config: "dict[str, Any]", reason: "str") -> "None":
    """Tell the server why nothing starts. Without it the reason is only in Slurm's own log."""
    try:
        connection = connect(config, _REQUEST_TIMEOUT_S)
        try:
            target = _attempts_path(config) + config["gang"] + "/diagnostics"
            connection.request("PUT", target, reason.encode(), headers(config["ticket"]))
            connection.getresponse().read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        pass


def _attempts_path(config: "dict[str, Any]") -> "str":
    return urlsplit(str(config["url"])).path.rstrip("/") + "/api/v2/attempts/"


def _download(config: "dict[str, Any]", path: "str", root: "str") -> "bool":
    """Whether the bundle is complete. Exits if the server rejects this job (409)."""
    connection = connect(config, _REQUEST_TIMEOUT_S)
    try:
        connection.request("GET", _attempts_path(config) + path, headers=headers(config["ticket"]))
        response = connection.getresponse()
        if response.status == 409:
            shutil.rmtree(root, ignore_errors=True)
            sys.exit(3)
        if response.status != 200:
            return False
        with tarfile.open(fileobj=response, mode="r|") as bundle:
            for member in bundle:
                bundle.extract(member, root)
    except (OSError, http.client.HTTPException, tarfile.TarError):
        return False
    finally:
        connection.close()
    # gang.json is the last member.
    return os.path.exists(os.path.join(root, config["folder"], "gang.json"))
