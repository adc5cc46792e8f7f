"""A cluster with several engines: each attempt goes to its job's engine, and is found there again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from paicluster.engines.interface import (
    ABSENT,
    Hint,
    Node,
    Notice,
    Notify,
    Observation,
    Phase,
    TaskLaunch,
    ignore_notice,
)
from paicluster.engines.router import EngineRouter
from paiprotocol.errors import ConfigError
from paiprotocol.jobs import read_job
from support.server_fixture import job as job_of

HERE = Node("here", "127.0.0.1", 4, 1000)


class FakeEngine:
    """An engine that only remembers; what it has survives it, as files do."""

    def __init__(self, name: str, attempts: dict[str, Observation], *, own: Node | None = None):
        self.name = name
        self.attempts = attempts
        self.own = (HERE,) if own is None else (HERE, own)
        self.notify: Notify = ignore_notice

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        self.notify = notify

    async def close(self) -> None:
        self.notify = ignore_notice

    def nodes(self) -> Sequence[Node]:
        return self.own

    def notices(self) -> Sequence[Notice]:
        return (Notice("FakeEngine", f"This is {self.name}."),)

    def ports_free(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        return self.name != "busy" or not ports

    def has(self, uid: str) -> bool:
        return uid in self.attempts

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        for task in gang:
            self.attempts.setdefault(task.uid, Observation(Phase.RUNNING))

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]:
        return {uid: self.attempts.get(uid, ABSENT) for uid in uids}

    async def log_tail(self, uid: str, size: int) -> bytes:
        return self.name.encode()[-size:]

    def log_folder(self, uid: str) -> Path:
        return Path("/logs") / self.name / uid

    def may_stall(self, uid: str) -> bool:
        return self.name == "two"

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        for uid in uids:
            self.attempts[uid] = Observation(Phase.ENDED, stopped=True)

    async def remove(self, uids: Sequence[str]) -> None:
        for uid in uids:
            self.attempts.pop(uid, None)

    async def sizes(self) -> dict[str, int]:
        return dict.fromkeys(self.attempts, 1)


class Shelves:
    """Two engines and their attempts; `engines` returns the router of a restarted server."""

    def __init__(self) -> None:
        self.attempts: dict[str, dict[str, Observation]] = {"one": {}, "two": {}}
        self.made: list[str] = []

    def _maker(self, name: str) -> Callable[[], FakeEngine]:
        def make() -> FakeEngine:
            self.made.append(name)
            return FakeEngine(name, self.attempts[name], own=Node(f"of-{name}", "127.0.0.1", 1, 1))

        return make

    def engines(self) -> EngineRouter:
        return EngineRouter(
            {name: self._maker(name) for name in self.attempts},
            lambda job, vc: "two" if vc == "second" else "one",
        )


def launch(uid: str) -> TaskLaunch:
    return TaskLaunch(uid=uid, node="here", script="true", environment={})


def test_engine_is_built_on_first_use() -> None:
    shelves = Shelves()
    engines = shelves.engines()
    assert shelves.made == []
    engines.get("two")
    engines.get("two")
    assert shelves.made == ["two"]


def test_a_job_goes_to_the_engine_of_its_virtual_cluster() -> None:
    engines = Shelves().engines()
    job = read_job(str(job_of("any", "true")).replace("'", '"'))
    assert engines.engine_of(job, "default") == "one"
    assert engines.engine_of(job, "second") == "two"


def test_restarted_server_finds_the_engine_of_an_attempt() -> None:
    async def run() -> None:
        shelves = Shelves()
        await shelves.engines().launch("two", [launch("a")])
        again = shelves.engines()
        assert (await again.observe(["a", "b"])) == {"a": Observation(Phase.RUNNING), "b": ABSENT}
        assert again.log_folder("a") == Path("/logs/two/a")
        assert await again.log_tail("a", 100) == b"two"
        await again.stop(["a"], 1)
        assert shelves.attempts["two"]["a"].stopped
        assert await again.sizes() == {"a": 1}
        await again.remove(["a"])
        assert not again.has("a")

    asyncio.run(run())


def test_attempt_of_one_engine_is_not_launched_by_another() -> None:
    """The cluster's file may have been changed between the intent and the launch."""

    async def run() -> None:
        shelves = Shelves()
        await shelves.engines().launch("two", [launch("a"), launch("b")])
        await shelves.engines().launch("one", [launch("a"), launch("b")])
        assert shelves.attempts["one"] == {}

    asyncio.run(run())


def test_uncommitted_gang_is_not_launched() -> None:
    async def run() -> None:
        shelves = Shelves()
        engines = shelves.engines()
        committed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        launching = asyncio.create_task(engines.launch("two", [launch("a")], committed))
        await asyncio.sleep(0)
        assert shelves.attempts["two"] == {}
        committed.set_result(False)
        await launching
        assert shelves.attempts["two"] == {}
        assert not engines.has("a")

    asyncio.run(run())


def test_attempt_stopped_before_its_launch_stays_with_that_engine() -> None:
    async def run() -> None:
        shelves = Shelves()
        engines = shelves.engines()
        await engines.stop(["a"], 0)
        await engines.launch("two", [launch("a")])
        assert (await engines.observe(["a"]))["a"].stopped
        assert shelves.attempts["two"] == {}

    asyncio.run(run())


def test_a_machine_that_two_engines_share_is_one_node() -> None:
    assert [node.name for node in Shelves().engines().nodes()] == ["here", "of-one", "of-two"]


def test_port_is_free_if_all_engines_of_the_node_agree() -> None:
    busy, free = FakeEngine("busy", {}), FakeEngine("free", {})
    engines = EngineRouter({"busy": lambda: busy, "free": lambda: free}, lambda job, vc: "free")
    assert not engines.ports_free("here", [80], non_ephemeral=False)
    assert engines.ports_free("here", [], non_ephemeral=False)


def test_cluster_without_an_engine_is_rejected() -> None:
    with pytest.raises(ConfigError):
        EngineRouter({}, lambda job, vc: "none")
