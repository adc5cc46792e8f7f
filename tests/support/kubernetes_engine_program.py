"""A server's Kubernetes engine in a process of its own, so that it can be killed. Run by `kubernetes_rig`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from paicluster.engines.interface import Phase, TaskLaunch
from support.kubernetes_engine import ReportedEngine


async def main() -> None:
    request = json.loads(sys.stdin.readline())
    shared = request["shared"]
    engine = ReportedEngine(
        Path(request["home"]),
        Path(request["kubeconfig"]),
        request["host"],
        request["port"],
        None if shared is None else (Path(shared[0]), shared[1]),
    )
    await engine.start(lambda uid: None)
    fields = ("gpus", "secrets")
    await engine.launch(
        [
            TaskLaunch(
                **{**one, **{name: tuple(one[name]) for name in fields}, "mounts": (), "storage_mounts": ()}
            )
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
