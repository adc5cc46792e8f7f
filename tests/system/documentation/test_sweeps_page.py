"""Programs of the page about sweeps with the real Optuna: trials are told, and bad ones are stopped."""

import re
import sys

import pytest

from support.page_blocks import pages
from support.third_party_clients import optuna

_ATTEMPTS = 3


@pytest.mark.slow
def test_bad_trials_are_pruned_and_their_jobs_stopped(user) -> None:
    """A trial that is stopped must still run then; on a machine that stalled it has ended."""
    (page,) = [page for page in pages() if page.path == "docs/sweeps.md"]
    (program,) = [block.text for block in page.blocks if "should_prune" in block.text]
    user.write(tune__py=program)
    for _ in range(_ATTEMPTS):
        done = user.run([sys.executable, "tune.py"], env={"PYTHONPATH": str(optuna())})
        assert done.status == 0, done
        complete, pruned = map(
            int, re.fullmatch(r"6 trials: (\d) complete, (\d) pruned\n", done.out).groups()
        )
        assert complete + pruned == 6
        if pruned:
            break
    assert pruned, done
    stopped = [
        line for line in user.pai("list-jobs").out.splitlines() if "pruned_" in line and "STOPPED" in line
    ]
    assert len(stopped) == pruned, stopped
