"""A server's container engine in a process of its own, so that it can be killed. Run by `container_rig`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from paicluster.engines.container.engine import ContainerEngine
from paicluster.engines.interface import Mount, TaskLaunch
from paicluster.engines.process import cgroups
from support.engine_node import NODE


async def main() -> None:
    request = json.loads(sys.stdin.readline())
    engine = ContainerEngine(
        Path(request["home"]),
        NODE,
        tree_control=cgroups.PROC_ONLY,
        programs=(request["kind"],),
        refuse_without=True,
    )
    await engine.start(lambda uid: None)
    await engine.launch([_task(one) for one in request["gang"]])
    print("launched", flush=True)
    await asyncio.Event().wait()


def _task(words: dict[str, object]) -> TaskLaunch:
    mounts = tuple(
        Mount(Path(one["source"]), one["target"], one["read_only"])
        for one in words["mounts"]  # type: ignore[attr-defined]
    )
    for name in ("gpus", "secrets"):
        words[name] = tuple(words[name])  # type: ignore[arg-type]
    return TaskLaunch(**{**words, "mounts": mounts})  # type: ignore[arg-type]


if __name__ == "__main__":
    asyncio.run(main())
