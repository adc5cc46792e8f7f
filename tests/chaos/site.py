"""Site of a campaign: the cluster, the proxy in front of it, and the times of faults."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from chaos.engine import CampaignEngine
from support.faulty_proxy import FaultyProxy
from support.server_fixture import Cluster


@dataclass
class Disturbance:
    """Interval of a fault, by the monotonic clock and the wall clock of this process."""

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
    engine: CampaignEngine
    disturbances: list[Disturbance] = field(default_factory=list)
    # Attempts whose supervisor was killed, and those whose program was.
    killed_attempts: set[str] = field(default_factory=set)
    killed_programs: set[str] = field(default_factory=set)
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

    def was_disturbed(self, since_s: float, *kinds: str) -> bool:
        """Whether clients may have noticed a fault, of any kind or of one of these, since then."""
        return any(one.ended_s >= since_s and (not kinds or one.kind in kinds) for one in self.disturbances)

    def was_disturbed_in(self, began_wall_s: float, ended_wall_s: float, *kinds: str) -> bool:
        """Whether there was a fault of one of these kinds at some time of this interval of the wall clock."""
        return any(
            one.kind in kinds and one.began_wall_s <= ended_wall_s and one.ended_wall_s >= began_wall_s
            for one in self.disturbances
        )

    def was_full(self, began_wall_s: float, ended_wall_s: float) -> bool:
        return self.was_disturbed_in(began_wall_s, ended_wall_s, "fill-disk")

    def had(self, *kinds: str) -> bool:
        return any(one.kind in kinds for one in self.disturbances)

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

    def stop(self) -> None:
        status = self.cluster.terminate()
        if status:
            self.wrong.append(f"SIGTERM: the server ended with {status}")

    def is_healthy(self) -> bool:
        with contextlib.suppress(OSError):
            url = "http://{}:{}/healthz".format(*self.cluster.address)
            with urlopen(url, timeout=5) as response:
                return bool(response.status == 200)
        return False

    def signal_server(self, number: int) -> None:
        assert self.cluster.process is not None
        self.cluster.process.send_signal(number)


def report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
