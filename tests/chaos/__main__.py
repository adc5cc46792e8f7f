"""`python -m chaos`: run the campaign, and look for the shortest schedule that repeats a failure."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from chaos import checks
from chaos.container_engine import ContainerEngine
from chaos.engine import CampaignEngine
from chaos.faults import carry_out
from chaos.load import Load
from chaos.schedule import Fault, make_schedule, parse_schedule, shortest_failing
from chaos.site import Site, report
from chaos.slurm_engine import SlurmEngine
from support.faulty_proxy import FaultyProxy
from support.prepared_database import prepare_database
from support.server_fixture import Cluster, eventually
from support.small_disk import mounted

_DISK = "size=512m"
_ENGINES: dict[str, type[CampaignEngine]] = {
    one.name: one for one in (CampaignEngine, ContainerEngine, SlurmEngine)
}
_OPERATION_DEADLINE_S = 300.0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=90.0, help="how long to carry out faults")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--engine", choices=tuple(_ENGINES), default="process", help="where tasks run")
    parser.add_argument("--faults", nargs="*", metavar="KIND", help="only faults of these kinds")
    parser.add_argument("--schedule", help="carry out this printed schedule, not that of the seed")
    parser.add_argument("--clients", type=int, help="clients at the same time")
    parser.add_argument(
        "--shrink",
        type=int,
        default=0,
        metavar="RUNS",
        help="after a failure, look for the shortest schedule that repeats it, in at most so many runs",
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder of a failed run")
    options = parser.parse_args()
    known = _ENGINES[options.engine].weights
    for kind in options.faults or ():
        if kind not in known:
            parser.error(f"{options.engine} has no fault {kind}, but {', '.join(known)}")
    return options


def run(
    engine: CampaignEngine,
    seed: int,
    faults: list[Fault],
    seconds: float,
    clients: int,
    *,
    keep: bool = False,
) -> list[str]:
    """One run in a new folder; returns what was wrong."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    wrong = ["it was interrupted"]
    try:
        # Tasks may run as other accounts.
        folder.chmod(0o755)
        with mounted(folder / "disk", _DISK) as disk, _site(engine, folder, disk) as site:
            wrong = _run_at(site, folder, seed, faults, seconds, clients)
            if wrong and keep:
                subprocess.run(["cp", "-a", str(disk), str(folder / "disk-of-the-run")], check=False)
    finally:
        if wrong and keep:
            report(f"kept: {folder}")
        else:
            subprocess.run(["rm", "-rf", str(folder)], check=False)
    return wrong


@contextlib.contextmanager
def _site(engine: CampaignEngine, folder: Path, disk: Path) -> Iterator[Site]:
    temporary = folder / "tmp"
    temporary.mkdir()
    (folder / "ledger").mkdir()
    home = disk / "home"
    prepare_database(home)
    with (
        engine.running(folder),
        _running(engine.cluster(home, folder, {"TMPDIR": str(temporary)})) as cluster,
    ):
        proxy = FaultyProxy("http://{}:{}".format(*cluster.address))
        try:
            yield Site(cluster, proxy, disk, engine)
        finally:
            proxy.close()
            engine.close(cluster)


@contextlib.contextmanager
def _running(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster; nothing is left of it, also after a failure."""
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


def _run_at(
    site: Site, folder: Path, seed: int, faults: list[Fault], seconds: float, clients: int
) -> list[str]:
    before = checks.descriptors(site)
    load = Load(site, folder / "ledger", seed, clients)
    load.start()
    began_s = time.monotonic()
    for fault in faults:
        time.sleep(max(0.0, began_s + fault.at_s - time.monotonic()))
        report(f"{time.monotonic() - began_s:6.1f} s  {fault}")
        carry_out(site, fault)
        if load.seen.wrong or site.wrong:
            break
    if not load.seen.wrong and not site.wrong:
        time.sleep(max(0.0, began_s + seconds - time.monotonic()))
    load.finish(_OPERATION_DEADLINE_S)
    report(f"{time.monotonic() - began_s:6.1f} s  the load has ended; checking")
    site.check_alive()
    wrong = checks.Checks(site, load).run()
    wrong += checks.check_running(site, before, len(load.seen.jobs), folder / "tmp")
    wrong += checks.check_stopped(site)
    done = ", ".join(f"{count} {what}" for what, count in sorted(load.seen.counts.items()))
    report(f"{len(load.seen.jobs)} jobs, {len(site.killed_attempts)} supervisors killed, {done}")
    return wrong


def main() -> int:
    options = parse_arguments()
    engine = _ENGINES[options.engine]()
    kinds = engine.weights if options.faults is None else options.faults
    chosen = {kind: engine.weights[kind] for kind in kinds}
    clients = options.clients or engine.clients
    if options.schedule is None:
        faults = make_schedule(options.seed, options.seconds, chosen)
    else:
        faults = parse_schedule(options.schedule)
    with tempfile.TemporaryDirectory(prefix="chaos-home-") as home:
        # Of the clients: no settings of this machine's user.
        os.environ["HOME"] = home
        os.environ.pop("PAI_USER_TOKEN", None)
        os.chdir(home)
        report(f"engine {engine.name}, seed {options.seed}, {options.seconds:.0f} s, {len(faults)} faults")

        def wrong_of(tried: list[Fault], keep: bool = False) -> list[str]:
            return run(engine, options.seed, tried, options.seconds, clients, keep=keep)

        wrong = wrong_of(faults, options.keep)
        if not wrong:
            report(f"green: seed {options.seed}")
            return 0
        for sentence in wrong:
            report(f"WRONG: {sentence}")
        if options.shrink:
            faults = shortest_failing(faults, lambda tried: bool(wrong_of(tried)), options.shrink)
    again = " ".join(map(str, faults))
    repeat = f"--engine {engine.name} --seed {options.seed} --seconds {options.seconds:.0f}"
    report(f'failed: seed {options.seed}; again: python -m chaos {repeat} --schedule "{again}"')
    return 1


if __name__ == "__main__":
    sys.exit(main())
