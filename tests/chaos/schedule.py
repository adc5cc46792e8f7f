"""Schedule of faults: time, kind and size of each. It depends on the seed alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# How often each fault is chosen, relative to the others, by engine.
PROCESS_WEIGHTS = {
    "kill-server": 6,
    "kill-starting-server": 2,
    "stop-server": 2,
    "pause-server": 3,
    "kill-supervisor": 5,
    "kill-zygote": 3,
    "cut-connections": 4,
    "truncate-responses": 2,
    "stall-connections": 2,
    "slow-connections": 2,
    "fill-disk": 2,
    "jump-clock": 2,
}
CONTAINER_WEIGHTS = {**PROCESS_WEIGHTS, "kill-container": 4, "kill-container-client": 3, "kill-conmon": 3}
SLURM_WEIGHTS = {
    **{kind: weight for kind, weight in PROCESS_WEIGHTS.items() if kind != "kill-zygote"},
    "kill-slurmctld": 3,
    "stop-slurmctld": 2,
    "pause-slurmctld": 2,
    "kill-slurmd": 3,
    "kill-node": 2,
    "kill-munge": 3,
    "drain-node": 3,
}
_FIRST_AT_S = 2.0
_GAP_RANGE_S = (0.5, 6.0)


@dataclass(frozen=True)
class Fault:
    """One fault. ``size`` in 0..1 is how strong it is, or which process it hits."""

    at_s: float
    kind: str
    size: float

    def __str__(self) -> str:
        return f"{self.at_s:.2f}:{self.kind}:{self.size:.4f}"


def make_schedule(seed: int, seconds: float, chosen: Mapping[str, int] = PROCESS_WEIGHTS) -> list[Fault]:
    """``chosen``: the weights of the faults to choose from."""
    rng = random.Random(f"schedule {seed}")
    kinds, weights = list(chosen), list(chosen.values())
    faults = []
    at_s = _FIRST_AT_S
    while kinds and at_s < seconds:
        kind = rng.choices(kinds, weights)[0]
        faults.append(Fault(round(at_s, 2), kind, round(rng.random(), 4)))
        at_s += rng.uniform(*_GAP_RANGE_S)
    return faults


def with_upgrade(seed: int, faults: Sequence[Fault], seconds: float) -> list[Fault]:
    """The schedule with one upgrade of the server, in the middle third."""
    rng = random.Random(f"upgrade {seed}")
    upgrade = Fault(
        round(rng.uniform(seconds / 3, seconds * 2 / 3), 2), "upgrade-server", round(rng.random(), 4)
    )
    return sorted((*faults, upgrade), key=lambda fault: fault.at_s)


def parse_schedule(text: str) -> list[Fault]:
    """The faults of a printed schedule."""
    faults = []
    for word in text.split():
        at_s, kind, size = word.split(":")
        faults.append(Fault(float(at_s), kind, float(size)))
    return faults


def shortest_failing(faults: list[Fault], fails: Callable[[list[Fault]], bool], max_runs: int) -> list[Fault]:
    """The shortest schedule found that fails, by delta debugging: without halves, then smaller parts."""
    parts = 2
    runs = 0
    while len(faults) > 1 and runs < max_runs:
        size = -(-len(faults) // parts)
        for start in range(0, len(faults), size):
            rest = faults[:start] + faults[start + size :]
            if runs == max_runs:
                return faults
            runs += 1
            if rest and fails(rest):
                faults, parts = rest, max(2, parts - 1)
                break
        else:
            if parts >= len(faults):
                break
            parts = min(len(faults), 2 * parts)
    return faults
