"""GET /api/v2/jobs: filters, orders, pages."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from support.server_fixture import job
from support.team_cluster import TeamCluster

SUMMARY = {
    "debugId", "name", "username", "state", "subState", "executionType", "tags", "retries", "retryDetails",
    "retryDelayTime", "submissionTime", "createdTime", "launchedTime", "completedTime", "appExitCode",
    "virtualCluster", "totalGpuNumber", "totalTaskNumber", "totalTaskRoleNumber", "jobPriority",
}  # fmt: skip


@pytest.fixture(scope="module")
def listed(cluster: TeamCluster) -> list[str]:
    """Six jobs of two users, in submission order; the last two stay pending."""
    specs = [
        job("listed-a", "true"),
        job("listed-b", "exit 1"),
        job("listed-c", "true", gpu=1, extras={"hivedScheduler": {"jobPriorityClass": "prod"}}),
        job("listed-d", "true", instances=3),
        job("listed-e", "true", cpu=4096),
        job("listed-f", "true", cpu=4096, instances=2),
    ]
    names = []
    for number, spec in enumerate(specs):
        token = cluster.tokens["bob" if number in (1, 5) else "alice"]
        assert cluster.submit(spec, token=token).status == 202
        names.append(spec["name"])
    for name in ("listed-a", "listed-c", "listed-d"):
        cluster.wait_over(name)
    me, cluster.user = cluster.user, "bob"
    cluster.wait_over("listed-b")
    cluster.user = me
    return names


def names_of(cluster: TeamCluster, query: str) -> list[str]:
    reply = cluster.get(f"/api/v2/jobs?keyword=listed-&{query}")
    assert reply.status == 200, reply.text
    return [one["name"] for one in reply.json()]


def test_list_is_an_array_of_summaries_latest_first(cluster: TeamCluster, listed: list[str]) -> None:
    found = cluster.get("/api/v2/jobs?keyword=listed-").json()
    assert [one["name"] for one in found] == listed[::-1]
    assert all(set(one) == SUMMARY for one in found)
    by_name = {one["name"]: one for one in found}
    assert by_name["listed-b"]["appExitCode"] == 255
    assert by_name["listed-c"]["totalGpuNumber"] == 1
    assert by_name["listed-c"]["jobPriority"] == "prod"
    assert by_name["listed-f"]["totalTaskNumber"] == 2
    assert by_name["listed-f"]["username"] == "bob"
    assert by_name["listed-a"]["virtualCluster"] == "default"
    assert by_name["listed-a"]["submissionTime"] % 1000 == 0


@pytest.mark.parametrize(
    ("query", "which"),
    [
        ("username=alice", "edca"),
        ("username=bob", "fb"),
        ("username=alice,bob", "fedcba"),
        ("username=nobody", ""),
        ("state=SUCCEEDED", "dca"),
        ("state=FAILED", "b"),
        ("state=WAITING", "fe"),
        ("state=FAILED,WAITING", "feb"),
        ("state=failed", ""),
        ("vc=default", "fedcba"),
        ("vc=other", ""),
        ("jobPriority=prod", "c"),
        ("jobPriority=default", "fedba"),
        ("jobPriority=prod,default", "fedcba"),
        ("tagsContain=anything", ""),
        ("tagsNotContain=anything", "fedcba"),
        ("username=bob&state=WAITING", "f"),
        ("limit=2", "fe"),
        ("limit=2&offset=2", "dc"),
        ("offset=4", "ba"),
        ("offset=100", ""),
        ("limit=0", ""),
    ],
)
def test_filters_and_pages(cluster: TeamCluster, listed: list[str], query: str, which: str) -> None:
    assert names_of(cluster, query) == [f"listed-{letter}" for letter in which]


def test_keyword_matches_user_name_and_virtual_cluster(cluster: TeamCluster, listed: list[str]) -> None:
    assert [one["name"] for one in cluster.get("/api/v2/jobs?keyword=isted-c").json()] == ["listed-c"]
    assert cluster.get("/api/v2/jobs?keyword=no-such-thing").json() == []
    bobs = cluster.get("/api/v2/jobs?keyword=bob").json()
    assert {"listed-b", "listed-f"} <= {one["name"] for one in bobs}
    for odd in ("%25", "_", "'", '"', "%00", "%F0%9F%90%99", "a" * 5000, "*", "%22%20OR%20%22"):
        assert cluster.get(f"/api/v2/jobs?keyword={odd}&limit=3").status == 200


FIELDS = {
    "jobName": "name",
    "submissionTime": "submissionTime",
    "username": "username",
    "vc": "virtualCluster",
    "retries": "retries",
    "totalTaskNumber": "totalTaskNumber",
    "totalGpuNumber": "totalGpuNumber",
    "state": "state",
    "completionTime": "completedTime",
    "jobPriority": "jobPriority",
}


@pytest.mark.parametrize(("field", "direction"), list(itertools.product(FIELDS, ["ASC", "DESC"])))
def test_order_by_each_field(cluster: TeamCluster, listed: list[str], field: str, direction: str) -> None:
    found = cluster.get(f"/api/v2/jobs?keyword=listed-&order={field},{direction}").json()
    values: list[Any] = [one[FIELDS[field]] for one in found]
    assert len(values) == len(listed)
    present = [value for value in values if value is not None]
    assert present == sorted(present, reverse=direction == "DESC")
    nulls = [value is None for value in values]
    # A missing value sorts as the largest.
    assert nulls == sorted(nulls, reverse=direction == "DESC")


@pytest.mark.parametrize("order", ["nonsense", "jobName", "jobName,UP", "name;drop,ASC", ",", ""])
def test_unknown_order_is_the_default(cluster: TeamCluster, listed: list[str], order: str) -> None:
    assert names_of(cluster, f"order={order}") == listed[::-1]


def test_total_counts_jobs_beyond_the_page(cluster: TeamCluster, listed: list[str]) -> None:
    both = cluster.get("/api/v2/jobs?keyword=listed-&limit=2&withTotalCount=true").json()
    assert both["totalCount"] == 6
    assert [one["name"] for one in both["data"]] == ["listed-f", "listed-e"]
    only = cluster.get("/api/v2/jobs?keyword=listed-&limit=0&withTotalCount=true&state=WAITING").json()
    assert only == {"totalCount": 2, "data": []}


@pytest.mark.parametrize(
    "query",
    ["limit=-1", "limit=x", "limit=50001", "limit=1.5", "offset=-1", "offset=x", "limit=²", "limit=1e3"],
)
def test_invalid_page_is_rejected(cluster: TeamCluster, query: str) -> None:
    from urllib.parse import quote

    reply = cluster.get("/api/v2/jobs?" + quote(query, safe="=&"))
    assert (reply.status, reply.json()["code"]) == (400, "InvalidParametersError")


@pytest.mark.parametrize("offset", ["9223372036854775807", "9999999999999999999", "9" * 40, "9" * 5000])
def test_huge_offset_is_an_empty_page_or_rejected(cluster: TeamCluster, offset: str) -> None:
    reply = cluster.get(f"/api/v2/jobs?offset={offset}")
    assert reply.status == 400 or (reply.status == 200 and reply.json() == [])


def test_failed_jobs_have_their_cause_on_request(cluster: TeamCluster) -> None:
    # Coloured, and the colour is reset in a line of its own.
    coloured = r"printf '\033[31mthe disk is \033[1mfull\n\033[0m\n' >&2"
    cluster.run(job("caused-a", f"echo step 7; {coloured}; exit 4"))
    cluster.run(job("caused-b", "exit 5"))
    cluster.run(job("caused-c", "echo fine"))
    cluster.run(job("caused-d", "true", extras={"openpaisdk": {"after": [{"job": "caused-b"}]}}))
    reply = cluster.get("/api/v2/jobs?keyword=caused-&causes=true&withTotalCount=true").json()
    found = {one["name"]: one.get("reason") for one in reply["data"]}
    assert found == {
        "caused-a": "Exit code 4: the disk is full",
        "caused-b": "Exit code 5",
        "caused-c": None,
        "caused-d": "The job alice~caused-b that it depends on ended as FAILED: Exit code 5.",
    }
    assert reply["totalCount"] == 4
    assert {name: cluster.detail(name).get("cause") for name in found} == found
    plain = cluster.get("/api/v2/jobs?keyword=caused-&reasons=true").json()
    assert not any("reason" in one for one in plain)


def test_tags_of_a_submission_are_those_of_the_job(cluster: TeamCluster) -> None:
    spec = job("tagged-v2", "true", extras={"tags": ["night", "größe", "night"]})
    assert cluster.submit(spec).status == 202
    v1 = {
        "jobName": "tagged-v1",
        "image": "host",
        "extras": {"tags": ["night"]},
        "taskRoles": [{"name": "main", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 16, "command": "true"}],
    }
    assert cluster.ask("POST", "/api/v1/jobs", v1).status == 202
    found = cluster.get("/api/v2/jobs?tagsContain=night&order=name,ASC").json()
    assert [(one["name"], one["tags"]) for one in found] == [
        ("tagged-v1", ["night"]),
        ("tagged-v2", ["größe", "night"]),
    ]
    assert cluster.detail("tagged-v2")["tags"] == ["größe", "night"]
    body = {"value": "night"}
    assert cluster.ask("DELETE", cluster.path("tagged-v2", "/tag"), body).status == 200
    assert [one["name"] for one in cluster.get("/api/v2/jobs?tagsContain=night").json()] == ["tagged-v1"]


def test_job_with_very_many_tags_is_refused(cluster: TeamCluster) -> None:
    reply = cluster.submit(job("much-tagged", "true", extras={"tags": [f"t{i}" for i in range(101)]}))
    assert reply.status == 400 and "has 101 tags" in reply.json()["message"]


def test_job_gets_no_more_tags_than_it_may_have(cluster: TeamCluster) -> None:
    name = cluster.accept(job("full-of-tags", "true", extras={"tags": [f"t{i}" for i in range(100)]}))
    put = cluster.ask("PUT", cluster.path(name, "/tag"), {"value": "one more"})
    assert put.status == 400 and "has 100 tags, which is the limit" in put.json()["message"]
    assert cluster.ask("PUT", cluster.path(name, "/tag"), {"value": "t5"}).status == 200, "it has this one"
    assert cluster.ask("DELETE", cluster.path(name, "/tag"), {"value": "t5"}).status == 200
    assert cluster.ask("PUT", cluster.path(name, "/tag"), {"value": "one more"}).status == 200
    assert len(cluster.detail(name)["tags"]) == 100


@pytest.mark.parametrize("tag", ["a,b", "", " ", "x" * 256])
def test_tag_that_no_list_could_be_filtered_by_is_refused(cluster: TeamCluster, tag: str) -> None:
    reply = cluster.submit(job("badly-tagged", "true", extras={"tags": ["good", tag]}))
    assert reply.status == 400 and '"extras.tags[1]" cannot be a tag: a tag ' in reply.json()["message"]
    assert cluster.get(cluster.path("badly-tagged")).status == 404
