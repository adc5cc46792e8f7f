"""Client of the report API: claims an attempt, and uploads what its supervisor writes."""

import http.client
import json
import os
import signal
import time
from urllib.parse import urlsplit

from pairuntime.reports import placement, server_connection
from pairuntime.supervisor import claim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BACKOFF_MIN_S = 0.5
BACKOFF_MAX_S = 15.0
REQUEST_TIMEOUT_S = 10.0
MAX_DIAGNOSTICS_BYTES = 4096
"""How much of the end of a launch's error output is uploaded."""
# The server closes connections that are idle a little longer than this.
_KEEP_ALIVE_S = 3.0


class ReportRejected(Exception):
    """The server accepts nothing more of this attempt."""


class ReportClient:
    """HTTP client of the report API, for one gang."""

    def __init__(self, config: "dict[str, Any]") -> "None":
        """``config``: URL and certificates of the server, the gang's uid and its ticket."""
        self._config = config
        self._gang = config["gang"]
        self._headers = server_connection.headers(config["ticket"])
        self._connection = None  # type: http.client.HTTPConnection | None
        self._last_used = 0.0

    def put(self, path: "str", body: "bytes", timeout_s: "float" = REQUEST_TIMEOUT_S) -> "dict[str, Any]":
        """One request. OSError and HTTPException mean that it may be retried."""
        if time.monotonic() - self._last_used > _KEEP_ALIVE_S:
            self.disconnect()
        if self._connection is None:
            self._connection = server_connection.connect(self._config, timeout_s)
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_s)
        target = urlsplit(self._config["url"]).path.rstrip("/") + "/api/v2/attempts/" + path
        done = False
        try:
            self._connection.request("PUT", target, body, self._headers)
            response = self._connection.getresponse()
            text = response.read()
            if response.status == 409:
                raise ReportRejected(path)
            if response.status != 200:
                raise http.client.HTTPException("status %d" % response.status)
            answer = dict(json.loads(text.decode()))
            done = True
            self._last_used = time.monotonic()
            return answer
        except ValueError as e:  # the response is not from our server
            raise http.client.HTTPException(str(e))
        finally:
            if not done:
                self.disconnect()

    def disconnect(self) -> "None":
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def claim(self, folder: "str", attempt: "str") -> "bool":
        """Claim the attempt before anything of it starts. False: rejected, or the job is being ended."""
        with open(os.path.join(folder, placement.PLACEMENT)) as f:
            own_placement = json.loads(f.read())
        pid = os.getpid()
        content = {
            "attempt": attempt,
            "boot_id": claim.boot_id(),
            "pid": pid,
            "start_time": claim.start_time(pid),
            "claimed_ms": int(time.time() * 1000),
            # Identifies this process when a response is lost and the request repeated.
            "nonce": os.urandom(16).hex(),
            "placement": own_placement,
        }
        pause = BACKOFF_MIN_S
        while signal.SIGTERM not in signal.sigpending():
            try:
                self.put(attempt + "/claim", json.dumps(content).encode())
                return True
            except ReportRejected:
                return False
            except (OSError, http.client.HTTPException):
                time.sleep(pause)
                pause = min(pause * 2, BACKOFF_MAX_S)
        return False

    def send_diagnostics(self, text: "bytes") -> "None":
        """Upload error output of the launch. Informative only: nothing depends on it."""
        try:
            if text:
                self.put(self._gang + "/diagnostics", text[-MAX_DIAGNOSTICS_BYTES:])
        except (OSError, http.client.HTTPException, ReportRejected):
            pass
