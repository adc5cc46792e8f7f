"""Functions on a cluster with several users that enforces limits: memory, files of others, other storages."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import openpaisdk
from openpaisdk.binding.cluster import Cluster
from openpaisdk.functions import JobFuture, futures_of, task_errors
from paiprotocol.errors import Forbidden
from pairuntime.transport import call_format
from support.engine_rig import missing
from support.team_cluster import TeamCluster, module_team  # noqa: F401

TIMEOUT_S = 60


def cluster_of(team: TeamCluster, user: str) -> Cluster:
    host, port = team.address
    return Cluster(user, f"http://{host}:{port}", user, token=team.tokens[user])


def submit(cluster: Cluster, function: Callable[..., Any], *args: Any, **options: Any) -> JobFuture:
    return openpaisdk.submit(function, *args, cluster=cluster, mem="128m", **options)


# --- memory ---


@pytest.fixture(name="limited")
def limited_cluster(team: TeamCluster, here_on_host: Path) -> Cluster:
    """A cluster whose tasks have no more memory than they requested."""
    cluster = cluster_of(team, "alice")
    future = submit(cluster, int)
    assert future.result(TIMEOUT_S) == 0
    if any(event.reason == "LimitsNotEnforced" for event in cluster.client.events(future.job)):
        missing("a writable memory controller")
    return cluster


@pytest.fixture(name="fill")
def function_that_fills_memory() -> Callable[[int], int]:
    def fill(megabytes: int) -> int:
        print("filling", megabytes, flush=True)
        return len(b"1" * (megabytes << 20)) >> 20

    return fill


def test_task_out_of_memory_is_a_typed_error(limited: Cluster, fill) -> None:
    future = submit(limited, fill, 300)
    with pytest.raises(task_errors.TaskOutOfMemory, match="memory") as caught:
        future.result(TIMEOUT_S)
    assert (caught.value.job, caught.value.exit_code) == (future.job, -1200)
    assert "filling 300" in caught.value.log_end
    assert "--mem" in caught.value.hint


@pytest.mark.parametrize("limit", [1, 2])
def test_item_out_of_memory_does_not_spoil_the_others(limited: Cluster, fill, limit: int) -> None:
    """With ``limit=1`` the items share a task, with 2 each has its own."""
    futures = openpaisdk.map(fill, [1, 300, 2, 3], limit=limit, cluster=limited, mem="128m")
    assert isinstance(futures[1].exception(TIMEOUT_S), task_errors.TaskOutOfMemory)
    assert "filling 300" in futures[1].exception().log_end
    assert [futures[i].result(TIMEOUT_S) for i in (0, 2, 3)] == [1, 2, 3]


# --- modules beside the program ---


@pytest.mark.parametrize("package", ["openpaisdk.functions", "openpaisdk.functions.helpers", "openpaisdk"])
def test_module_of_the_user_names_what_the_sdk_has(
    team: TeamCluster, here_on_host: Path, monkeypatch, package: str
) -> None:
    """A task has no SDK there: annotations, base classes and decorators of a module must not fail."""
    names = importlib.import_module(package).__all__
    if package == "openpaisdk":
        names = ["Executor", "map", "remote", "submit"]
    annotated = "".join(f"def use_{name}(value: sdk.{name}): ...\n" for name in names)
    (here_on_host / "beside.py").write_text(
        f"import {package} as sdk\n"
        "import openpaisdk\n"
        "from openpaisdk.functions.task_errors import TaskTimeout\n"
        f"{annotated}"
        "@openpaisdk.remote(cpu=1)\n"
        "def double(number): return 2 * number\n"
        "def answer():\n"
        "    try:\n"
        "        openpaisdk.submit(abs, -1)\n"
        "    except RuntimeError as error:\n"
        "        return double.local(21), str(error)\n"
    )
    monkeypatch.syspath_prepend(str(here_on_host))
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    beside = importlib.import_module("beside")
    doubled, error = submit(cluster_of(team, "alice"), beside.answer).result(TIMEOUT_S)
    assert doubled == 42 and "submit needs the SDK, which this task does not have" in error


# --- files of others ---


def test_users_share_a_workspace_but_no_pickles(team: TeamCluster, here_on_host: Path) -> None:
    """Another user could replace what is in a shared folder: pickles are in the user's own."""
    for user in ("alice", "bob"):
        future = submit(cluster_of(team, user), len, b"x" * (2 << 20), workspace="/tmp/team")
        assert str(future.paths.folder) == f"/user/{user}/functions/{future.job}"
        assert future.result(TIMEOUT_S) == 2 << 20
    inside = submit(cluster_of(team, "bob"), abs, -1, workspace="/user/bob/project")
    assert str(inside.paths.folder) == f"/user/bob/project/functions/{inside.job}"
    assert inside.result(TIMEOUT_S) == 1


def test_result_of_another_user_is_not_loaded(team: TeamCluster, here_on_host: Path) -> None:
    future = submit(cluster_of(team, "bob"), abs, -3)
    assert future.result(TIMEOUT_S) == 3
    with pytest.raises(
        Forbidden, match="is a job of bob: its result is not loaded, because loading a pickle"
    ):
        futures_of(cluster_of(team, "alice"), f"bob~{future.job}")


def test_result_that_another_user_wrote_is_not_loaded(team: TeamCluster, here_on_host: Path) -> None:
    """Where another user can write, as in jobs of earlier versions with a shared workspace."""
    alice, bob = (cluster_of(team, user) for user in ("alice", "bob"))
    future = submit(alice, abs, -3)
    future.result(TIMEOUT_S)
    forged = JobFuture(future.cluster).attach(future.job, "/tmp/forged")
    content = b"".join(call_format.pack_result(call_format.DONE, pickle.dumps("forged")))
    bob.storage.backend.write_bytes("/tmp/forged/result.pickle", content, 0, 0o644)
    openpaisdk.functions.job_watcher.complete(forged)
    with pytest.raises(Forbidden, match="was written by bob: it is not loaded"):
        forged.result(TIMEOUT_S)


def test_storage_that_refuses_a_large_argument_says_why(
    team: TeamCluster, here_on_host: Path, monkeypatch
) -> None:
    monkeypatch.setattr("openpaisdk.functions.function_job._calls_folder", lambda *_: "/shared/functions")
    with pytest.raises(Forbidden, match="Permission denied: user=alice"):
        submit(cluster_of(team, "alice"), len, b"x" * (2 << 20))
