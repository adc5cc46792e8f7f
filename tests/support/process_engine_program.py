"""A server's engine in a process of its own, so that it can be killed. Run by `process_rig`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from paicluster.engines.interface import TaskLaunch
from paicluster.engines.process.cgroups import ProcessTreeControl
from paicluster.engines.process.engine import ProcessEngine
from support.engine_node import NODE


async def main() -> None:
    request = json.loads(sys.stdin.readline())
    control = ProcessTreeControl(request["mode"], Path(request["root"]) if request["root"] else None)
    engine = ProcessEngine(Path(request["home"]), NODE, tree_control=control)
    await engine.start(lambda uid: None)
    gang = [
        TaskLaunch(**{**one, "gpus": tuple(one["gpus"]), "secrets": tuple(one["secrets"])})
        for one in request["gang"]
    ]
    if request.get("uncommitted"):
        never: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        launching = asyncio.create_task(engine.launch_when_committed(gang, never))
        while not all((engine.log_folder(task.uid) / "spec.json").exists() for task in gang):
            await asyncio.sleep(0.01)
        assert not launching.done()
    else:
        await engine.launch(gang)
    print("launched", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
