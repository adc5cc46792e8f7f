"""The supervisor process that claimed an attempt."""

from __future__ import annotations

import os
import signal

from pairuntime.supervisor import claim


def living_owner(owner: dict[str, object]) -> int | None:
    """The supervisor's pid, if this process is still the one that claimed."""
    pid = owner.get("pid")
    if not isinstance(pid, int) or owner.get("boot_id") != claim.boot_id():
        return None
    return pid if claim.start_time(pid) == owner.get("start_time") else None


def signal_owner(owner: dict[str, object], signum: signal.Signals) -> None:
    """Signal the supervisor that claimed an attempt, if it still runs."""
    pid = owner.get("pid")
    if not isinstance(pid, int):
        return
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # Checked while the pidfd is open: the pid cannot be reused in between.
        if living_owner(owner) is not None:
            signal.pidfd_send_signal(fd, signum)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)
