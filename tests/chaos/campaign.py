"""Campaign: a cluster in a new folder, clients, a schedule of faults, and the checks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos import checks, older_version
from chaos.engine import CampaignEngine
from chaos.faults import carry_out
from chaos.load import Load
from chaos.operations import OPERATIONS
from chaos.schedule import Fault
from chaos.site import Site, report
from support.faulty_proxy import FaultyProxy
from support.prepared_database import prepare_database
from support.server_fixture import Cluster, eventually
from support.small_disk import mounted

# Size of a disk that holds all that a run writes, on all engines.
_DISK_MB, _DISK_MB_PER_S = 512, 0.5
_OPERATION_DEADLINE_S = 300.0
_NOWHERE = "http://127.0.0.1:9"


@dataclass
class Campaign:
    """Settings of all runs. ``begins_older``: with a server from before the last migration."""

    engine: CampaignEngine
    seed: int
    seconds: float
    clients: int
    begins_older: bool = False
    # Faults of the last run, which ends at the first failed check.
    carried_out: list[Fault] = field(default_factory=list)

    def run(self, faults: Sequence[Fault], *, keep: bool = False) -> list[str]:
        """Run once in a new folder; returns a sentence for each failed check."""
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        wrong = ["it was interrupted"]
        try:
            # Tasks may run as other accounts.
            folder.chmod(0o755)
            size = f"size={_DISK_MB + int(self.seconds * _DISK_MB_PER_S)}m"
            with mounted(folder / "disk", size) as disk, self._site(folder, disk) as site:
                wrong = self._run_at(site, folder, faults)
                if wrong and keep:
                    subprocess.run(["cp", "-a", str(disk), str(folder / "disk-of-the-run")], check=False)
        finally:
            if wrong and keep:
                report(f"kept: {folder}")
            else:
                subprocess.run(["rm", "-rf", str(folder)], check=False)
        return wrong

    @contextlib.contextmanager
    def _site(self, folder: Path, disk: Path) -> Iterator[Site]:
        variables = {"TMPDIR": str(folder / "tmp")}
        for name in ("tmp", "ledger"):
            (folder / name).mkdir()
        home = disk / "home"
        if self.begins_older:
            home.mkdir(mode=0o700)
            variables["PYTHONPATH"] = str(older_version.unpack(folder / "older"))
        else:
            prepare_database(home)
        # Started before the server, whose settings may name its address.
        with self.engine.running(folder), contextlib.closing(FaultyProxy(_NOWHERE)) as proxy:
            with _running(self.engine.cluster(home, variables, proxy.url)) as cluster:
                proxy.to = cluster.address
                try:
                    yield Site(cluster, proxy, disk, self.engine)
                finally:
                    self.engine.close(cluster)

    def _run_at(self, site: Site, folder: Path, faults: Sequence[Fault]) -> list[str]:
        before = checks.descriptors(site)
        load = Load(site, folder / "ledger", self.seed, self.clients, OPERATIONS)
        load.start()
        began_s = time.monotonic()
        self.carried_out = []
        for fault in faults:
            time.sleep(max(0.0, began_s + fault.at_s - time.monotonic()))
            report(f"{time.monotonic() - began_s:6.1f} s  {fault}")
            self.carried_out.append(fault)
            carry_out(site, fault)
            if load.seen.wrong or site.wrong:
                break
        if not load.seen.wrong and not site.wrong:
            time.sleep(max(0.0, began_s + self.seconds - time.monotonic()))
        load.finish(_OPERATION_DEADLINE_S)
        report(f"{time.monotonic() - began_s:6.1f} s  the load has ended; checking")
        site.check_alive()
        wrong = checks.Checks(site, load).run()
        wrong += checks.check_running(site, before, len(load.seen.jobs), folder / "tmp")
        wrong += checks.check_stopped(site)
        done = ", ".join(f"{count} {what}" for what, count in sorted(load.seen.counts.items()))
        report(f"{len(load.seen.jobs)} jobs, {len(site.killed_attempts)} supervisors killed, {done}")
        return wrong


@contextlib.contextmanager
def _running(cluster: Cluster) -> Iterator[Cluster]:
    """The running cluster. All its processes end with the block, also after a failure."""
    try:
        yield cluster.start()
    finally:
        if cluster.process is not None and cluster.process.poll() is None:
            cluster.kill()
        for pid in cluster.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(AssertionError):
            eventually(lambda: not cluster.processes(), "the end of all processes", 20)
        for group in checks.cgroups(cluster.home):
            with contextlib.suppress(OSError):
                Path(group).rmdir()
