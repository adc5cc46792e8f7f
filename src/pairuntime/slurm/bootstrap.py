"""Bootstrap on a node without a shared file system: downloads the launch bundle, then starts it.

Travels as text in the batch script: it can import nothing of this project before the download.
"""

import http.client
import os
import shutil
import stat
import sys
from urllib.parse import urlencode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

if "lock_folder" not in globals():  # in the batch script the texts of these precede this one
    from pairuntime.reports.bundle_download import (
        REQUEST_TIMEOUT_S,
        LaunchRejected,
        attempts_path,
        download_bundle,
    )
    from pairuntime.reports.server_connection import connect, headers
    from pairuntime.slurm.node import BOOTSTRAP_VARIABLE, lock_folder


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
    try:
        is_complete = download_bundle(config, path, root, os.path.join(config["folder"], "gang.json"))
    except LaunchRejected:
        shutil.rmtree(root, ignore_errors=True)
        sys.exit(3)
    if not is_complete:
        shutil.rmtree(root, ignore_errors=True)
        sys.exit("The server did not respond at %s." % config["url"])
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
        connection = connect(config, REQUEST_TIMEOUT_S)
        try:
            target = attempts_path(config) + config["gang"] + "/diagnostics"
            connection.request("PUT", target, reason.encode(), headers(config["ticket"]))
            connection.getresponse().read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        pass
