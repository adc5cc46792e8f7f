"""Faults: what each does to the cluster, and the times in which clients may notice it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from chaos.schedule import Fault
from pairuntime.supervisor import process_tree
from support import server_with_clock
from support.faulty_proxy import FaultyProxy
from support.server_fixture import Cluster, eventually
from support.small_disk import fill

_DOWN_MAX_S = 3.0
# Longer than a client waits for a dead peer, shorter than it waits for a response.
_PAUSE_MAX_S = 15.0
_STALL_MAX_S = 12.0
_FULL_MAX_S = 6.0
_CLOCKS_DAYS = (0.0, 0.05, -0.05, 3.0, -1.0, 40.0)


@dataclass
class Disturbance:
    """Time in which something was out of order, by the monotonic clock and the wall clock of this process."""

    kind: str
    began_s: float
    began_wall_s: float
    ended_s: float = float("inf")
    ended_wall_s: float = float("inf")


@dataclass
class Site:
    """A cluster under faults, as its clients reach it: through a proxy."""

    cluster: Cluster
    proxy: FaultyProxy
    disk: Path
    disturbances: list[Disturbance] = field(default_factory=list)
    # Attempts whose supervisor was killed.
    killed_attempts: set[str] = field(default_factory=set)
    server_kills: int = 0
    wrong: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def disturbance(self, kind: str) -> Iterator[None]:
        one = Disturbance(kind, time.monotonic(), time.time())
        self.disturbances.append(one)
        try:
            yield
        finally:
            one.ended_s, one.ended_wall_s = time.monotonic(), time.time()

    def was_disturbed(self, since_s: float, kind: str = "") -> bool:
        """Whether clients may have noticed a fault, of any kind or of this one, since then."""
        return any(one.ended_s >= since_s and kind in ("", one.kind) for one in self.disturbances)

    def was_full(self, began_wall_s: float, ended_wall_s: float) -> bool:
        """Whether the disk was full at some time of this interval."""
        return any(
            one.kind == "fill-disk" and one.began_wall_s <= ended_wall_s and one.ended_wall_s >= began_wall_s
            for one in self.disturbances
        )

    def may_prevent_starts(self) -> bool:
        return any(one.kind in ("kill-zygote", "fill-disk") for one in self.disturbances)

    def carry_out(self, fault: Fault) -> None:
        """Do what a fault says; returns when the cluster is in order again."""
        self.check_alive()
        with self.disturbance(fault.kind):
            _FAULTS[fault.kind](self, fault.size)

    def check_alive(self) -> None:
        process = self.cluster.process
        assert process is not None
        if process.poll() is not None:
            self.wrong.append(f"the server ended by itself with {process.returncode}")
            self.start()

    def start(self) -> None:
        self.cluster.start()
        self.proxy.to = self.cluster.address

    def kill(self) -> None:
        self.server_kills += 1
        self.cluster.kill()

    def is_healthy(self) -> bool:
        with contextlib.suppress(OSError):
            url = "http://{}:{}/healthz".format(*self.cluster.address)
            with urlopen(url, timeout=5) as response:
                return bool(response.status == 200)
        return False

    def signal_server(self, number: int) -> None:
        assert self.cluster.process is not None
        self.cluster.process.send_signal(number)


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
    status = site.cluster.terminate()
    if status:
        site.wrong.append(f"SIGTERM: the server ended with {status}")
    time.sleep(size)
    site.start()


def _pause_server(site: Site, size: float) -> None:
    site.signal_server(signal.SIGSTOP)
    time.sleep(size * _PAUSE_MAX_S)
    site.signal_server(signal.SIGCONT)
    eventually(site.is_healthy, "the server's health after a pause")


def _kill_supervisor(site: Site, size: float) -> None:
    running = sorted(_supervisors(site.cluster.home).items())
    if not running:
        return
    uid, pid = running[int(size * len(running))]
    # First the record: a client may see what follows at once.
    site.killed_attempts.add(uid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _supervisors(home: Path) -> dict[str, int]:
    """Pids of supervisors by the uid of their attempt."""
    found = {}
    for path in (home / "tasks").glob("*/*/claim"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads(path.read_text())["pid"])
            # Its cgroup or its folder tells that the pid is still this supervisor's.
            if not (path.parent / "exit.json").exists() and str(home) in _known_by(pid):
                found[path.parent.name] = pid
    return found


def _known_by(pid: int) -> str:
    return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())


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
}


def report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
