"""`python -m chaos`: run the campaign, and look for the shortest schedule that repeats a failure."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile

from chaos.campaign import Campaign
from chaos.container_engine import ContainerEngine
from chaos.engine import CampaignEngine
from chaos.older_version import NoHistory
from chaos.schedule import Fault, make_schedule, parse_schedule, shortest_failing, with_upgrade
from chaos.site import report
from chaos.slurm_engine import SlurmEngine, SlurmOverHttpEngine

_ENGINES: dict[str, type[CampaignEngine]] = {
    one.name: one for one in (CampaignEngine, ContainerEngine, SlurmEngine, SlurmOverHttpEngine)
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=90.0, help="how long to carry out faults")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--engine", choices=tuple(_ENGINES), default="process", help="where tasks run")
    parser.add_argument("--faults", nargs="*", metavar="KIND", help="only faults of these kinds")
    parser.add_argument("--schedule", help="carry out this printed schedule, not that of the seed")
    parser.add_argument("--clients", type=int, help="clients at the same time")
    parser.add_argument(
        "--older",
        action="store_true",
        help="begin with the version before the last migration (from git), and upgrade in the middle",
    )
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


def _end_run(number: int, _frame: object) -> None:
    # Unlike the signal, an exception ends all processes of the run.
    sys.exit(128 + number)


def main() -> int:
    options = parse_arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_run)
    engine = _ENGINES[options.engine]()
    campaign = Campaign(
        engine, options.seed, options.seconds, options.clients or engine.clients, begins_older=options.older
    )
    faults = _faults(options, engine)
    with tempfile.TemporaryDirectory(prefix="chaos-home-") as home:
        # Of the clients: no settings of this machine's user.
        os.environ["HOME"] = home
        os.environ.pop("PAI_USER_TOKEN", None)
        os.chdir(home)
        report(f"engine {engine.name}, seed {options.seed}, {options.seconds:.0f} s, {len(faults)} faults")
        try:
            wrong = campaign.run(faults, keep=options.keep)
        except NoHistory as error:
            report(f"--older: {error}")
            return 1
        if not wrong:
            report(f"green: seed {options.seed}")
            return 0
        for sentence in wrong:
            report(f"WRONG: {sentence}")
        faults = list(campaign.carried_out)
        if options.shrink:
            faults = shortest_failing(faults, lambda tried: bool(campaign.run(tried)), options.shrink)
    again = f"--engine {engine.name} --seed {options.seed} --seconds {options.seconds:.0f}"
    again += " --older" if options.older else ""
    schedule = " ".join(map(str, faults))
    report(f'failed: seed {options.seed}; again: python -m chaos {again} --schedule "{schedule}"')
    return 1


def _faults(options: argparse.Namespace, engine: CampaignEngine) -> list[Fault]:
    if options.schedule is not None:
        return parse_schedule(options.schedule)
    kinds = engine.weights if options.faults is None else options.faults
    faults = make_schedule(options.seed, options.seconds, {kind: engine.weights[kind] for kind in kinds})
    return with_upgrade(options.seed, faults, options.seconds) if options.older else faults


if __name__ == "__main__":
    sys.exit(main())
