"""A server's Slurm engine in a process of its own, so that it can be killed. Run by `slurm_rig`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from paicluster.engines.interface import Phase, TaskLaunch
from support.slurm_engine import engine_of


async def main() -> None:
    request = json.loads(sys.stdin.readline())
    engine = engine_of(Path(request["home"]), request["port"])
    await engine.start(lambda uid: None)
    await engine.launch(
        [
            TaskLaunch(**{**one, "gpus": tuple(one["gpus"]), "secrets": tuple(one["secrets"]), "mounts": ()})
            for one in request["gang"]
        ]
    )
    uids = [one["uid"] for one in request["gang"]]
    while any(seen.phase is Phase.QUEUED for seen in (await engine.observe(uids)).values()):
        await asyncio.sleep(0.02)
    print("launched", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
