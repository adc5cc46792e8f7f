"""Runs of jobs on a real server: metrics as they arrive, parameters, states, jobs from before, kills."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from support.prepared_database import prepare_database
from support.server_fixture import Cluster, eventually, job

# Logs metrics of as many steps.
LOG = f"""PYTHONPATH={os.pathsep.join(sys.path)} {sys.executable} -c '
import sys
from pairuntime.user_api import log_metrics
for step in range(%d):
    log_metrics(step, {{"loss": 1 / (step + 1), "val/acc": step}})
'"""


def array(
    name: str, *commands: str, values: dict[str, list[str]], instances: int, **more: Any
) -> dict[str, Any]:
    # As `pai sub --array` says: a task that fails ends no other one.
    completion = {"minFailedInstances": -1}
    spec = job(name, *commands, instances=instances, completion=completion, **more)
    spec["extras"] = {"gangAllocation": False, "openpaisdk": {"array": values}}
    return spec


def runs(cluster: Cluster, *names: str, query: str = "") -> list[dict[str, Any]]:
    listed = ",".join(f"{cluster.user}~{name}" for name in names)
    reply = cluster.get(f"/api/v2/runs?jobs={quote(listed)}{query}")
    assert reply.status == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["jobs"]
    return found


def stored(cluster: Cluster) -> dict[str, tuple[int, float]]:
    """Count and last value of each metric in the database, whatever asks for it."""
    with closing(sqlite3.connect(cluster.home / "cluster.db")) as conn:
        rows = conn.execute("SELECT name, sum(count), max(last_value) FROM task_metrics GROUP BY name")
        return {name: (count, last) for name, count, last in rows}


def logged(cluster: Cluster, name: str) -> dict[str, Any]:
    (found,) = runs(cluster, name)
    metrics: dict[str, Any] = found["tasks"][0]["metrics"]
    return metrics


def test_a_sweep_has_parameters_states_and_metrics(cluster: Cluster) -> None:
    values = {"lr": ["0.1", "0.01"], "seed": ["1", "2"]}
    spec = array("runs-sweep", LOG % 3, "test $PAI_TASK_INDEX != 3", values=values, instances=4)
    spec["parameters"] = {"epochs": 3}
    spec["extras"]["tags"] = ["mine"]
    name = cluster.accept(spec)
    cluster.wait_state(name, "SUCCEEDED", "FAILED")
    (found,) = runs(cluster, name)
    assert found["parameters"] == {"epochs": 3}
    assert (found["isArray"], found["array"], found["arrayRows"]) == (True, values, {})
    assert found["tags"] == ["mine"]
    assert [task["index"] for task in found["tasks"]] == [0, 1, 2, 3]
    assert [task["exitCode"] == 0 for task in found["tasks"]] == [True, True, True, False]
    loss = {"count": 3, "last": 1 / 3, "lastStep": 2, "min": 1 / 3, "minStep": 2, "max": 1.0, "maxStep": 0}
    assert [task["metrics"]["loss"] for task in found["tasks"]] == [loss] * 4
    assert found["tasks"][0]["metrics"]["val/acc"]["max"] == 2.0
    (found,) = runs(cluster, name, query="&metric=val/acc")
    assert list(found["tasks"][0]["metrics"]) == ["val/acc"]


def test_metrics_of_a_running_task_arrive_without_a_request(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "more"
    name = cluster.accept(
        job(
            "runs-arriving",
            'echo \'{"step": 1, "values": {"arriving": "NaN"}}\' >> $PAI_METRICS_FILE',
            f"until test -e {path}; do sleep 0.05; done",
            'echo \'{"step": 2, "values": {"arriving": "-Infinity"}}\' >> $PAI_METRICS_FILE',
        )
    )
    eventually(lambda: stored(cluster).get("arriving") == (1, None), "the first value")
    (found,) = runs(cluster, name)
    assert (found["state"], found["tasks"][0]["state"]) == ("RUNNING", "RUNNING")
    assert found["tasks"][0]["metrics"]["arriving"] == {
        "count": 1,
        "last": "NaN",
        "lastStep": 1,
        **dict.fromkeys(("min", "minStep", "max", "maxStep")),
    }
    path.touch()
    cluster.wait_state(name, "SUCCEEDED")
    eventually(lambda: stored(cluster)["arriving"] == (2, float("-inf")), "the last value")
    assert logged(cluster, name)["arriving"]["min"] == "-Infinity"


def test_jobs_that_have_not_started_are_there(cluster: Cluster) -> None:
    first = cluster.accept(job("runs-first", "sleep 1000"))
    spec = array("runs-waiting", "true", values={"lr": ["1", "2"]}, instances=2)
    spec["extras"]["openpaisdk"]["after"] = [{"job": first}]
    name = cluster.accept(spec)
    (found,) = runs(cluster, name)
    assert found["launchedTime"] is None
    assert [(task["index"], task["state"], task["metrics"]) for task in found["tasks"]] == [
        (0, "WAITING", {}),
        (1, "WAITING", {}),
    ]
    cluster.stop(name)
    cluster.wait_state(name, "STOPPED")
    (found,) = runs(cluster, name)
    assert {task["state"] for task in found["tasks"]} == {"STOPPED"}
    cluster.stop(first)


def test_several_jobs_by_name_and_by_tag(cluster: Cluster) -> None:
    names = []
    for number in range(3):
        spec = job(f"runs-tagged-{number}", LOG % (number + 1))
        spec["extras"] = {"tags": ["runs-study"]}
        names.append(cluster.accept(spec))
    for name in names:
        cluster.wait_state(name, "SUCCEEDED")
    found = runs(cluster, names[2], names[0])
    assert [one["tasks"][0]["metrics"]["loss"]["count"] for one in found] == [3, 1]
    page = cluster.get("/api/v2/runs?tagsContain=runs-study&limit=2").json()
    assert [one["name"] for one in page["jobs"]] == ["runs-tagged-2", "runs-tagged-1"]
    assert not page["jobs"][0]["isArray"]
    page = cluster.get(f"/api/v2/runs?tagsContain=runs-study&limit=2&offset={page['next']}").json()
    assert ([one["name"] for one in page["jobs"]], page["next"]) == (["runs-tagged-0"], None)
    assert cluster.get("/api/v2/runs?tagsContain=none").json() == {"jobs": [], "next": None}
    reply = cluster.get(f"/api/v2/runs?jobs={cluster.user}~missing")
    assert (reply.status, reply.json()["code"]) == (404, "NoJobError")


def test_attempts_of_a_task_are_one_series(cluster: Cluster) -> None:
    metrics = (
        '{\\"step\\": $FC_FRAMEWORK_ATTEMPT_ID, \\"values\\": {\\"loss\\": $((5 - FC_FRAMEWORK_ATTEMPT_ID))}}'
    )
    command = f'echo "{metrics}" >> $PAI_METRICS_FILE; test $FC_FRAMEWORK_ATTEMPT_ID = 1'
    name = cluster.accept(job("runs-retried", command, jobRetryCount=1))
    cluster.wait_state(name, "SUCCEEDED")
    assert logged(cluster, name)["loss"] == {
        "count": 2,
        "last": 4.0,
        "lastStep": 1,
        "min": 4.0,
        "minStep": 1,
        "max": 5.0,
        "maxStep": 0,
    }


@pytest.fixture(name="own")
def own_cluster(tmp_path: Path) -> Any:
    home = tmp_path / "home"
    prepare_database(home)
    running = Cluster(home).start()
    yield running
    running.close()


def test_a_killed_server_loses_and_doubles_nothing(own: Cluster, tmp_path: Path) -> None:
    path, steps = tmp_path / "stop", tmp_path / "steps"
    command = (
        f"i=0; until test -e {path}; do "
        'echo "{\\"step\\": $i, \\"values\\": {\\"loss\\": $i}}" >> $PAI_METRICS_FILE; i=$((i + 1)); '
        f"sleep 0.01; done; echo $i > {steps}"
    )
    name = own.accept(job("killed", command))
    for _ in range(4):
        before = stored(own).get("loss", (0, 0))[0]
        eventually(lambda before=before: stored(own).get("loss", (0, 0))[0] > before, "more metrics")  # type: ignore[misc]
        own.kill()
        own.start()
    own.kill()
    path.touch()
    count = int(eventually(lambda: steps.exists() and steps.read_text(), "the end of the task"))
    own.start()
    own.wait_state(name, "SUCCEEDED")
    eventually(lambda: stored(own)["loss"] == (count, count - 1), "all metrics, once")
    assert logged(own, name)["loss"] == {
        "count": count,
        "last": count - 1.0,
        "lastStep": count - 1,
        "min": 0.0,
        "minStep": 0,
        "max": count - 1.0,
        "maxStep": count - 1,
    }


def test_jobs_from_before_are_filled_when_they_are_looked_at(own: Cluster) -> None:
    names = [own.accept(job("logged", LOG % 4)), own.accept(job("silent", "true"))]
    for name in names:
        own.wait_state(name, "SUCCEEDED")
    runs(own, *names)
    expected = logged(own, names[0])
    assert expected["loss"]["count"] == 4
    own.terminate()
    with closing(sqlite3.connect(own.home / "cluster.db")) as conn, conn:
        conn.execute("DELETE FROM task_metrics")
        conn.execute("DELETE FROM metric_files")
    own.start()
    assert stored(own) == {}
    assert logged(own, names[0]) == expected
    assert runs(own, names[1])[0]["tasks"][0]["metrics"] == {}
    # Then the files are not needed.
    for file in own.home.glob("tasks/*/*/work/.pai/metrics.jsonl"):
        file.write_text(json.dumps({"step": 1, "values": {"loss": 7}}) + "\n")
    assert logged(own, names[0]) == expected


def test_rows_go_with_the_job(own: Cluster) -> None:
    name = own.accept(job("removed", LOG % 2))
    own.wait_state(name, "SUCCEEDED")
    assert logged(own, name)["loss"]["count"] == 2
    assert own.ask("DELETE", f"/api/v1/user/{own.user}/jobs/{name}").status == 202
    assert stored(own) == {}


def test_more_names_than_are_kept(cluster: Cluster) -> None:
    names = ", ".join(f'\\"m{number:04}\\": {number}' for number in range(1001))
    name = cluster.accept(
        job("runs-names", f'echo "{{\\"step\\": 1, \\"values\\": {{{names}}}}}" >> $PAI_METRICS_FILE')
    )
    cluster.wait_state(name, "SUCCEEDED")
    (found,) = runs(cluster, name)
    assert found["hasOmittedMetrics"]
    assert len(found["tasks"][0]["metrics"]) == 1000
    events = cluster.get(cluster.path(name, "/events")).json()["data"]
    assert [event["message"] for event in events if event["reason"] == "TooManyMetrics"] == [
        "A task logged more than 1000 metrics, or one with a name of more than 255 characters: pai runs "
        "shows the others, pai job-metrics all."
    ]
