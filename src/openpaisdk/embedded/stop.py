"""Ending the embedded cluster. Its running tasks go on, and the next cluster takes them over."""

from __future__ import annotations

import os
import time

from openpaisdk.embedded.handshake import Handshake, is_alive
from openpaisdk.errors import Unavailable

STOP_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.005


def terminate(found: Handshake, patience: float = STOP_TIMEOUT_S) -> None:
    """Ask the process to leave, and wait until it has."""
    import signal

    try:
        if is_alive(found):
            os.kill(found.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise Unavailable(f"The cluster (process {found.pid}) belongs to another user.") from None
    deadline = time.monotonic() + patience
    while is_alive(found):
        if time.monotonic() > deadline:
            raise Unavailable(
                f"The cluster (process {found.pid}) has not stopped within {patience:.0f} seconds.",
                hint=f"End it with: kill -9 {found.pid}. Its jobs survive that.",
            )
        time.sleep(POLL_INTERVAL_S)
