"""Stop of the embedded cluster. Its running tasks continue, and the next server adopts them."""

from __future__ import annotations

import os
import time

from openpaisdk.embedded.handshake import Handshake, is_alive
from paiprotocol.errors import Unavailable

STOP_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.005


def terminate(handshake: Handshake, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Send SIGTERM to the server and wait until it has exited."""
    import signal

    try:
        if is_alive(handshake):
            os.kill(handshake.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise Unavailable(f"The cluster (process {handshake.pid}) belongs to another user.") from None
    deadline = time.monotonic() + timeout_s
    while is_alive(handshake):
        if time.monotonic() > deadline:
            raise Unavailable(
                f"The cluster (process {handshake.pid}) did not stop within {timeout_s:.0f} seconds.",
                hint=f"Kill it with: kill -9 {handshake.pid}. Its jobs survive that.",
            )
        time.sleep(POLL_INTERVAL_S)
