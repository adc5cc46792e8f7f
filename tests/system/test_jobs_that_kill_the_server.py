"""A job that kills the server at every start: it fails after the second death, and no other job notices."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import json
import sys
import tarfile
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support import killed_server
from support.prepared_database import prepare_database
from support.server_fixture import FINISHED_STATES, Cluster, eventually, job

MakeCluster = Callable[..., Cluster]

SERVER_DOWN = (OSError, http.client.HTTPException, json.JSONDecodeError)
PROGRAM = (sys.executable, killed_server.__file__)


def archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        file.addfile(tarfile.TarInfo("source.txt"))
    return buffer.getvalue()


class KilledCluster:
    """A cluster whose server dies at one step, and is started again each time."""

    def __init__(self, cluster: Cluster, ran: Path):
        self.cluster = cluster
        self.ran = ran
        self.deaths = 0

    def answer(self, call: Callable[[], Any]) -> Any:
        """The answer to a request that is repeated until there is one."""
        answers: list[Any] = []

        def answered() -> bool:
            process = self.cluster.process
            assert process is not None
            if process.poll() is not None:
                self.deaths += 1
                self.cluster.launch()
            with contextlib.suppress(AssertionError):  # it died during the start
                self.cluster.wait_ready()
            with contextlib.suppress(*SERVER_DOWN):
                answers.append(call())
            return bool(answers)

        eventually(answered, "an answer of the server")
        return answers[0]

    def job(self, name: str, *commands: str, sources: bool) -> dict[str, Any]:
        spec = job(name, f"echo {name} >> {self.ran}", *commands)
        if sources:
            body = archive()
            digest = hashlib.sha256(body).hexdigest()
            self.answer(lambda: self.cluster.ask("PUT", f"/api/v2/sources/{digest}", body))
            spec["extras"] = {"openpaisdk": {"sources": {"sha256": digest, "size": len(body)}}}
        return spec

    def submit(self, spec: dict[str, Any]) -> None:
        reply = self.answer(lambda: self.cluster.submit(spec, key=spec["name"]))
        assert reply.status in (200, 202), reply.text

    def end_of(self, name: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            status: dict[str, Any] = self.answer(lambda: self.cluster.status(name))
            return status if status["state"] in FINISHED_STATES else None

        found: dict[str, Any] = eventually(ended, f"the end of {name}")
        return found


@pytest.fixture
def killed(new_cluster: MakeCluster, tmp_path: Path) -> Callable[[str], KilledCluster]:
    def start(step: str) -> KilledCluster:
        cluster = new_cluster(program=PROGRAM, variables={"KILLED_IN": step})
        prepare_database(cluster.home)
        return KilledCluster(cluster.start(), tmp_path / "ran")

    return start


def run_killers(killed: KilledCluster, step: str, rounds: int) -> None:
    sources = step == "unpack"
    running = killed.job("running", f"while [ ! -e {killed.ran}.go ]; do sleep 0.05; done", sources=False)
    killed.submit(running)
    others = ["running"]
    for number in range(rounds):
        before = killed.deaths
        killer = killed.job(f"killer-{number}", sources=sources)
        beside = [killed.job(f"other-{number}-{n}", "sleep 0.2", sources=sources) for n in range(3)]
        submitting = [
            threading.Thread(target=_submit_until_answered, args=(killed.cluster, spec)) for spec in beside
        ]
        for thread in submitting:
            thread.start()
        killed.submit(killer)
        status = killed.end_of(killer["name"])
        if step == "unpack":
            events = eventually(partial(_events, killed, killer["name"]), "the event of the killer")
            assert "died 2 times in a row" in events[0]["message"], events
        else:
            assert (status["state"], status["appExitCode"]) == ("FAILED", -1100), status
            assert "died 2 times in a row" in status["appExitDiagnostics"], status
            assert "submit it again" in status["appExitDiagnostics"], status
        assert killed.deaths - before == 2
        for thread in submitting:
            thread.join(60)
            assert not thread.is_alive()
        others += [spec["name"] for spec in beside]
    (killed.ran.with_name(killed.ran.name + ".go")).touch()
    for name in others:
        assert killed.end_of(name)["state"] == "SUCCEEDED", name
    ran = Counter(killed.ran.read_text().split())
    assert {name: ran[name] for name in others} == dict.fromkeys(others, 1)
    assert killed.deaths == 2 * rounds
    log = killed.cluster.log.read_text()
    assert "Traceback" not in log, log[-3000:]


def _submit_until_answered(cluster: Cluster, spec: dict[str, Any]) -> None:
    """The main thread restarts the server."""

    def answered() -> bool:
        with contextlib.suppress(*SERVER_DOWN):
            return cluster.submit(spec, key=spec["name"]).status in (200, 202)
        return False

    eventually(answered, "an answer of the server")


def _events(killed: KilledCluster, name: str) -> list[dict[str, Any]]:
    found = killed.answer(lambda: killed.cluster.events(name))
    return [event for event in found if event["reason"] in ("SourcesNotKept", "ServerDied")]


@pytest.mark.slow
@pytest.mark.parametrize("step", ["load", "render", "launch", "unpack"])
def test_no_job_kills_the_server_more_than_twice(killed: Callable[[str], KilledCluster], step: str) -> None:
    run_killers(killed(step), step, rounds=4)
