"""Series of metrics on a real server: thinned for plots, part by part, of one task."""

from __future__ import annotations

import os
import sys

from support.server_fixture import Cluster, job

LOG = f"""PYTHONPATH={os.pathsep.join(sys.path)} {sys.executable} -c '
import os
from pairuntime.user_api import log_metrics
for step in range(5000):
    index = int(os.environ["PAI_TASK_INDEX"])
    log_metrics(step, {{"loss": -9 if step == 777 else 1 / (step + 1), "index": index}})
log_metrics(5000, loss=float("nan"))
'"""


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
    assert after == {"segments": [], "counts": [], "next": found["next"], "hasMore": False}
    other = cluster.get(f"{path}?role=main&index=1").json()
    assert {one["name"]: one["values"][0] for one in other["segments"]} == {"loss": 1.0, "index": 1.0}
    assert cluster.get(f"{path}?index=7").json()["segments"] == []


def test_what_is_asked_for_is_bounded(cluster: Cluster) -> None:
    name = cluster.accept(job("series-bound", "true"))
    cluster.wait_state(name, "SUCCEEDED")
    path = f"/api/v2/jobs/{cluster.user}~{name}/metric-series"
    assert cluster.get(f"{path}?points=99999999999&start=99999999999").json()["segments"] == []
    assert cluster.get(f"{path}?points=many").status == 400
    reply = cluster.get(f"{path}?{'&'.join(f'metric={at}' for at in range(1001))}")
    assert (reply.status, reply.json()["message"]) == (400, "A request may have 1000 metrics.")
    assert cluster.get(f"/api/v2/jobs/{cluster.user}~missing/metric-series").status == 404
