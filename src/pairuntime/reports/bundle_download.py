"""Download of a launch bundle from the server.

Travels as text, behind `server_connection` and in front of a bootstrap: it can import nothing of this project
before the download.
"""

import http.client
import tarfile
import time
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

if "connect" not in globals():  # as text, it follows on this module
    from pairuntime.reports.server_connection import connect, headers

# Nothing has started yet: after this time the allocation is released, and the attempt is retried later.
_DOWNLOAD_TIMEOUT_S = 300.0
_BACKOFF_MAX_S = 15.0
REQUEST_TIMEOUT_S = 60.0


class LaunchRejected(Exception):
    """The server rejects this launch: it was stopped, or another one runs it."""


def attempts_path(config: "dict[str, Any]") -> "str":
    return urlsplit(str(config["url"])).path.rstrip("/") + "/api/v2/attempts/"


def download_bundle(config: "dict[str, Any]", path: "str", root: "str", last: "str") -> "bool":
    """Download into the folder, with retries; False if the server does not respond.

    ``last``: member that comes last, and marks the bundle complete.
    """
    deadline = time.monotonic() + _DOWNLOAD_TIMEOUT_S
    pause = 0.5
    while not _download(config, path, root, last):
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, _BACKOFF_MAX_S)
    return True


def _download(config: "dict[str, Any]", path: "str", root: "str", last: "str") -> "bool":
    connection = connect(config, REQUEST_TIMEOUT_S)
    found = False
    try:
        connection.request("GET", attempts_path(config) + path, headers=headers(config["ticket"]))
        response = connection.getresponse()
        if response.status == 409:
            raise LaunchRejected(path)
        if response.status != 200:
            return False
        with tarfile.open(fileobj=response, mode="r|") as bundle:
            for member in bundle:
                bundle.extract(member, root)
                found = member.name == last
    except (OSError, http.client.HTTPException, tarfile.TarError):
        return False
    finally:
        connection.close()
    return found
