"""Series of metrics on a real server: thinned for plots, part by part, of one task."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from support.event_files import event, simple
from support.server_fixture import Cluster, eventually, job

LOG = f"""PYTHONPATH={os.pathsep.join(sys.path)} {sys.executable} -c '
import os
from pairuntime.user_api import log_metrics
for step in range(5000):
    index = int(os.environ["PAI_TASK_INDEX"])
    log_metrics(step, {{"loss": -9 if step == 777 else 1 / (step + 1), "index": index}})
log_metrics(5000, loss=float("nan"))
'"""


LOSS_COUNT = {"name": "tensorboard/train/loss", "count": 100, "notFinite": 0}


def test_series_of_a_task_are_thinned(cluster: Cluster) -> None:
    name = cluster.accept(job("series", LOG, instances=2))
    cluster.wait_state(name, "SUCCEEDED")
    path = f"/api/v2/jobs/{cluster.user}~{name}/metric-series"
    found = cluster.get(f"{path}?points=200&metric=loss").json()
    assert found["counts"] == [{"name": "loss", "count": 5001, "notFinite": 1}]
    (loss,) = found["segments"]
    assert 90 < len(loss["steps"]) <= 200
    assert (loss["name"], loss["attempt"], loss["steps"][0], loss["steps"][-1]) == ("loss", 1, 0, 5000)
    assert (777, -9) in zip(loss["steps"], loss["values"], strict=True)
    assert loss["values"][-1] == "NaN"
    assert min(loss["times"]) > 1_600_000_000_000
    assert not found["hasMore"]
    after = cluster.get(f"{path}?start={found['next']}").json()
    assert after == {"segments": [], "counts": [], "next": found["next"], "hasMore": False, "isWhole": False}
    other = cluster.get(f"{path}?role=main&index=1").json()
    assert {one["name"]: one["values"][0] for one in other["segments"]} == {"loss": 1.0, "index": 1.0}
    assert cluster.get(f"{path}?index=7").json()["segments"] == []


def test_scalars_of_event_files_are_series_and_rows(cluster: Cluster, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    file, more = tmp_path / "events.out.tfevents.1", tmp_path / "more"
    file.write_bytes(b"".join(event(step, simple("loss", 1 / (step + 1))) for step in range(100)))
    log = 'echo "{\\"step\\": 1, \\"values\\": {\\"loss\\": 7}}" >> $PAI_METRICS_FILE'
    wait = f"until test -e {more}; do sleep 0.05; done"
    command = f"mkdir $PAI_OUTPUT_DIR/train; cp {file} $PAI_OUTPUT_DIR/train; {log}; {wait}"
    name = cluster.accept(job("series-events", command))
    path = f"/api/v2/jobs/{cluster.user}~{name}/metric-series"

    def found() -> dict[str, Any]:
        part: dict[str, Any] = cluster.get(f"{path}?source=tensorboard").json()
        return part

    # Of a running task, too.
    eventually(lambda: found()["counts"] == [LOSS_COUNT], "the event file")
    part = found()
    assert (part["isWhole"], part["segments"][0]["steps"]) == (True, list(range(100)))
    assert part["segments"][0]["times"][0] == 1_800_000_000_000
    again = cluster.get(f"{path}?source=tensorboard&start={part['next']}").json()
    assert (again["segments"], again["isWhole"]) == ([], False)
    for name_of_none in ("other", "%00", "%FF", "x" * 5000):
        reply = cluster.get(f"{path}?source=tensorboard&metric={name_of_none}")
        assert (reply.status, reply.json()["segments"]) == (200, []), name_of_none
    logged = cluster.get(path).json()
    assert [one["name"] for one in logged["counts"]] == ["loss"]
    more.touch()
    cluster.wait_state(name, "SUCCEEDED")

    def rows() -> dict[str, Any]:
        reply = cluster.get(f"/api/v2/runs?jobs={cluster.user}~{name}").json()
        metrics: dict[str, Any] = reply["jobs"][0]["tasks"][0]["metrics"]
        return metrics

    eventually(lambda: len(rows()) == 2, "the rows")
    assert rows()["loss"]["last"] == 7
    assert rows()["tensorboard/train/loss"] == {
        "count": 100,
        "max": 1.0,
        "maxStep": 0,
        "lastStep": 99,
        "minStep": 99,
        **dict.fromkeys(("last", "min"), pytest.approx(0.01)),
    }


def test_what_is_asked_for_is_bounded(cluster: Cluster) -> None:
    name = cluster.accept(job("series-bound", "true"))
    cluster.wait_state(name, "SUCCEEDED")
    path = f"/api/v2/jobs/{cluster.user}~{name}/metric-series"
    assert cluster.get(f"{path}?points=99999999999&start=99999999999").json()["segments"] == []
    assert cluster.get(f"{path}?points=many").status == 400
    reply = cluster.get(f"{path}?{'&'.join(f'metric={at}' for at in range(1001))}")
    assert (reply.status, reply.json()["message"]) == (400, "A request may have 1000 metrics.")
    assert cluster.get(f"/api/v2/jobs/{cluster.user}~missing/metric-series").status == 404
