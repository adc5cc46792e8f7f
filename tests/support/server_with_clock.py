"""`paicluster` whose clock is DAYS_AHEAD days ahead; writes `swept` to its log after each retention sweep."""

from __future__ import annotations

import os
import sys
import time

PROGRAM = (sys.executable, __file__)


def main() -> int:
    right = time.time
    ahead_s = float(os.environ["DAYS_AHEAD"]) * 86_400
    time.time = lambda: right() + ahead_s

    from paicluster import cli
    from paicluster.controller.retention import RetentionSweeper, SweepResult

    sweep = RetentionSweeper.sweep

    async def logged(self: RetentionSweeper) -> SweepResult:
        result = await sweep(self)
        print("swept", file=sys.stderr, flush=True)
        return result

    RetentionSweeper.sweep = logged  # type: ignore[method-assign]
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
