"""Faults of all engines: in the server, its disk, its clock and the connections to it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from chaos.schedule import Fault
from chaos.site import Site
from pairuntime.supervisor import process_tree
from support import server_with_clock
from support.server_fixture import eventually
from support.small_disk import fill

_DOWN_MAX_S = 3.0
# Longer than a client waits for a dead peer, shorter than it waits for a response.
_PAUSE_MAX_S = 15.0
_STALL_MAX_S = 12.0
_FULL_MAX_S = 6.0
_CLOCKS_DAYS = (0.0, 0.05, -0.05, 3.0, -1.0, 40.0)


def _kill_server(site: Site, size: float) -> None:
    site.kill()
    time.sleep(size * _DOWN_MAX_S)
    site.start()


def _kill_starting_server(site: Site, size: float) -> None:
    site.kill()
    site.cluster.launch()
    time.sleep(size * 0.8)
    site.kill()
    site.start()


def _stop_server(site: Site, size: float) -> None:
    site.stop()
    time.sleep(size)
    site.start()


def _pause_server(site: Site, size: float) -> None:
    site.signal_server(signal.SIGSTOP)
    time.sleep(size * _PAUSE_MAX_S)
    site.signal_server(signal.SIGCONT)
    eventually(site.is_healthy, "the server's health after a pause")


def _kill_supervisor(site: Site, size: float) -> None:
    running = sorted(site.engine.supervisors(site.cluster.home).items())
    if not running:
        return
    uid, pid = running[int(size * len(running))]
    # Recorded first: a client may see the effect at once.
    site.killed_attempts.add(uid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _kill_zygote(site: Site, size: float) -> None:
    assert site.cluster.process is not None
    time.sleep(size)
    for pid in process_tree.children(site.cluster.process.pid):
        with contextlib.suppress(OSError):
            if b"\0zygote\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


def _cut_connections(site: Site, size: float) -> None:
    for _ in range(1 + int(size * 5)):
        site.proxy.cut()
        time.sleep(0.05)


def _truncate_responses(site: Site, size: float) -> None:
    site.proxy.response_limit = 200 + int(size * 20_000)
    time.sleep(1 + size * 3)
    site.proxy.response_limit = 0
    site.proxy.cut()


def _stall_connections(site: Site, size: float) -> None:
    site.proxy.stall()
    time.sleep(size * _STALL_MAX_S)
    site.proxy.resume()


def _slow_connections(site: Site, size: float) -> None:
    site.proxy.rate = 2_000 + size * 50_000
    time.sleep(1 + size * 5)
    site.proxy.rate = 0.0


def _fill_disk(site: Site, size: float) -> None:
    filler = fill(site.disk)
    try:
        time.sleep(0.5 + size * _FULL_MAX_S)
    finally:
        filler.unlink()
    eventually(site.is_healthy, "the server's health after a full disk")


def _jump_clock(site: Site, size: float) -> None:
    days = _CLOCKS_DAYS[int(size * len(_CLOCKS_DAYS))]
    site.kill()
    site.cluster.program = server_with_clock.PROGRAM
    site.cluster.variables["DAYS_AHEAD"] = str(days)
    site.start()


def _upgrade_server(site: Site, size: float) -> None:
    """After SIGTERM or SIGKILL; in every other case the upgrade of the database may be killed, too."""
    if size < 0.5:
        site.stop()
    else:
        site.kill()
    site.cluster.variables.pop("PYTHONPATH", None)
    if size * 2 % 1 > 0.5:
        site.cluster.launch()
        time.sleep(size * 2 % 1 * 0.8)
        site.kill()
    site.start()


_FAULTS: dict[str, Callable[[Site, float], None]] = {
    "kill-server": _kill_server,
    "kill-starting-server": _kill_starting_server,
    "stop-server": _stop_server,
    "pause-server": _pause_server,
    "kill-supervisor": _kill_supervisor,
    "kill-zygote": _kill_zygote,
    "cut-connections": _cut_connections,
    "truncate-responses": _truncate_responses,
    "stall-connections": _stall_connections,
    "slow-connections": _slow_connections,
    "fill-disk": _fill_disk,
    "jump-clock": _jump_clock,
    "upgrade-server": _upgrade_server,
}


def carry_out(site: Site, fault: Fault) -> None:
    """Carry out a fault; returns when the cluster is healthy again."""
    site.check_alive()
    with site.disturbance(fault.kind):
        {**_FAULTS, **site.engine.faults}[fault.kind](site, fault.size)
