"""Metrics and parameters in lists of jobs, and the names that there are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from paicluster.api.v2.job_columns import MAX_COLUMNS, MAX_JOBS
from support.server_fixture import Cluster, eventually, job

LOG = """for step in 1 2 3; do loss=$((10 * (PAI_TASK_INDEX + 1) - step))
echo "{\\"step\\": $step, \\"values\\": {\\"loss\\": $loss, \\"nan\\": \\"NaN\\"}}"
done >> $PAI_METRICS_FILE"""


@pytest.fixture(scope="module")
def measured(cluster: Cluster) -> list[str]:
    """A job with a metric, a sweep, a gang, and a job without anything."""
    alone = job("columns-alone", LOG, parameters={"lr": 0.1, "model": "small", "deep": {"a": [1]}})
    values = {"lr": ["0.1", "0.01", "0.1"], "seed": [str(number) for number in range(30)]}
    swept = job("columns-sweep", LOG, instances=3, parameters={"model": "large"})
    swept["extras"] = {"gangAllocation": False, "openpaisdk": {"array": values}}
    gang = job("columns-gang", f"if [ $PAI_TASK_INDEX = 0 ]; then exit; fi; {LOG}", instances=3)
    names = [cluster.accept(spec) for spec in (alone, swept, gang, job("columns-none", "true"))]
    for name in names:
        cluster.wait_state(name, "SUCCEEDED")
    return names


def listed(cluster: Cluster, query: str) -> dict[str, dict[str, Any]]:
    reply = cluster.get(f"/api/v2/jobs?keyword=columns-&limit=50&order=jobName,ASC&{query}")
    assert reply.status == 200, reply.text
    return {one["name"].partition("-")[2]: one for one in reply.json()}


def test_metrics_of_a_list(cluster: Cluster, measured: list[str]) -> None:
    found = listed(cluster, "metric=loss&metric=nan&metric=missing&metric=loss")
    metrics = {name: one["metrics"] for name, one in found.items()}
    not_a_number = {"last": "NaN", "min": None, "max": None}
    assert metrics == {
        "alone": {"loss": {"last": 7, "min": 7, "max": 9}, "nan": not_a_number},
        # The tasks of an array are runs: together they have bounds, but no last value.
        "sweep": {"loss": {"last": None, "min": 7, "max": 29}, "nan": {**not_a_number, "last": None}},
        # Of others the first task that logged it counts, as in a comparison.
        "gang": {"loss": {"last": 17, "min": 17, "max": 19}, "nan": not_a_number},
        "none": {},
    }
    assert not any("parameters" in one for one in found.values())


def test_parameters_of_a_list(cluster: Cluster, measured: list[str]) -> None:
    found = listed(cluster, "parameter=lr&parameter=model&parameter=deep&parameter=seed&reasons=true")
    assert not any("metrics" in one for one in found.values())
    assert found["alone"]["parameters"] == {"lr": ["0.1"], "model": ["small"], "deep": ['{"a":[1]}']}
    # The first values of an array, each once.
    seeds = [str(number) for number in range(20)]
    assert found["sweep"]["parameters"] == {"lr": ["0.1", "0.01"], "model": ["large"], "seed": seeds}
    assert found["none"]["parameters"] == {}


def test_page_with_a_total_and_columns(cluster: Cluster, measured: list[str]) -> None:
    page = cluster.get("/api/v2/jobs?keyword=columns-a&limit=50&withTotalCount=true&metric=loss").json()
    assert (page["totalCount"], page["data"][0]["metrics"]["loss"]["last"]) == (1, 7)
    page = cluster.get("/api/v2/jobs?keyword=columns-x&limit=50&withTotalCount=true&metric=loss").json()
    assert page == {"totalCount": 0, "data": []}


def order_of(cluster: Cluster, order: str, more: str = "") -> list[str]:
    reply = cluster.get(f"/api/v2/jobs?keyword=columns-&limit=50&order={order}{more}")
    assert reply.status == 200, reply.text
    return [one["name"].partition("-")[2] for one in reply.json()]


def test_list_is_sorted_by_a_metric(cluster: Cluster, measured: list[str]) -> None:
    # Of an array, which has no last value, the lowest one counts; of equal jobs the newest is the first.
    assert order_of(cluster, "metric.loss.last,ASC") == ["sweep", "alone", "gang", "none"]
    assert order_of(cluster, "metric.loss.last,DESC") == ["gang", "sweep", "alone", "none"]
    assert order_of(cluster, "metric.loss.max,DESC") == ["sweep", "gang", "alone", "none"]
    newest = ["none", "gang", "sweep", "alone"]
    assert order_of(cluster, "metric.nan.last,ASC") == order_of(cluster, "metric.missing.min,DESC") == newest
    assert order_of(cluster, "metric.loss.mean,DESC") == newest


def test_list_is_sorted_by_a_parameter(cluster: Cluster, measured: list[str]) -> None:
    assert order_of(cluster, "parameter.model,ASC") == ["sweep", "alone", "none", "gang"]
    assert order_of(cluster, "parameter.model,DESC") == ["alone", "sweep", "none", "gang"]
    # The first value of an array counts; numbers are numbers.
    assert order_of(cluster, "parameter.seed,ASC")[0] == "sweep"
    assert order_of(cluster, "parameter.deep,ASC&parameter=deep")[0] == "alone"


def test_pages_of_a_sorted_list(cluster: Cluster, measured: list[str]) -> None:
    order = "metric.loss.max,DESC"
    pages = [order_of(cluster, order, f"&offset={offset}").pop(0) for offset in range(4)]
    assert pages == order_of(cluster, order) == ["sweep", "gang", "alone", "none"]
    path = f"/api/v2/jobs?keyword=columns-&limit=1&offset=1&order={order}&withTotalCount=true&metric=loss"
    page = cluster.get(path).json()
    assert (page["totalCount"], [one["metrics"]["loss"]["max"] for one in page["data"]]) == (4, [19])
    # A list of programs, which is longer than a page.
    listed = cluster.get(f"/api/v2/jobs?keyword=columns-&limit=9999&order={order}").json()
    assert [one["name"].partition("-")[2] for one in listed] == pages
    assert order_of(cluster, order, "&username=nobody") == []


def test_deleted_job_is_in_no_sorted_page(cluster: Cluster) -> None:
    names = [cluster.accept(job(f"dropped-{number}", LOG)) for number in range(2)]
    for name in names:
        cluster.wait_state(name, "SUCCEEDED")
    path = "/api/v2/jobs?keyword=dropped-&limit=9&order=metric.loss.last,ASC&metric=loss"
    assert len(cluster.get(path).json()) == 2
    assert cluster.ask("DELETE", f"/api/v1/user/{cluster.user}/jobs/{names[0]}").status == 202
    assert [one["name"] for one in cluster.get(path).json()] == ["dropped-1"]


def test_metrics_that_a_server_has_missed_are_read(cluster: Cluster, measured: list[str]) -> None:
    cluster.terminate()
    with closing(sqlite3.connect(cluster.home / "cluster.db")) as conn, conn:
        conn.execute("DELETE FROM task_metrics")
        conn.execute("DELETE FROM metric_files")
    cluster.start()
    assert listed(cluster, "metric=loss")["alone"]["metrics"]["loss"]["last"] == 7


def test_names_of_columns(cluster: Cluster, measured: list[str]) -> None:
    found = cluster.get("/api/v2/job-columns?keyword=columns-").json()
    assert found == {"parameters": ["deep", "lr", "model", "seed"], "metrics": ["loss", "nan"]}
    found = cluster.get("/api/v2/job-columns?keyword=columns-none").json()
    assert found == {"parameters": [], "metrics": []}


def test_too_many_columns_and_too_long_pages_are_refused(cluster: Cluster) -> None:
    many = "&".join(f"metric=m{number}" for number in range(MAX_COLUMNS + 1))
    reply = cluster.get(f"/api/v2/jobs?limit=10&{many}")
    assert (reply.status, reply.json()["message"]) == (
        400,
        f"A list may have {MAX_COLUMNS} metrics and parameters, not {MAX_COLUMNS + 1}.",
    )
    reply = cluster.get("/api/v2/jobs?metric=loss")
    assert reply.status == 400
    assert f"limit must be at most {MAX_JOBS}" in reply.json()["message"]


def test_job_that_logs_is_not_cached(cluster: Cluster) -> None:
    """What a job logged is there at each request, also when it has finished since the last one."""
    log = 'echo \'{"step": %d, "values": {"now": %d}}\' >> $PAI_METRICS_FILE'
    go = cluster.home / "go"
    wait = f"until test -e {go}; do sleep 0.05; done"
    name = cluster.accept(job("logs-columns", log % (1, 1), wait, log % (2, 2)))
    path = "/api/v2/jobs?keyword=logs-columns&limit=5&metric=now"

    def last() -> object:
        return cluster.get(path).json()[0]["metrics"].get("now", {}).get("last")

    eventually(lambda: last() == 1, "the first value")
    go.touch()
    cluster.wait_state(name, "SUCCEEDED")
    assert [last(), last()] == [2, 2]
    # A tag changes the job, not its metrics.
    cluster.ask("PUT", cluster.path(name, "/tag"), {"value": "kept"})
    (found,) = cluster.get(path).json()
    assert (found["tags"], found["metrics"]["now"]["last"]) == (["kept"], 2)
