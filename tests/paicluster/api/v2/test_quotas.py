"""Quotas over the API: set by administrators, read by users, kept by admission and scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.server_fixture import eventually, job
from support.team_cluster import PASSWORD, TeamCluster

MINE = "/api/v2/quota"
LIMITS = ("tasks", "cpu", "memoryMB", "gpu", "storageBytes")


def set_quota(team: TeamCluster, where: str, **limits: int | None) -> None:
    reply = team.ask("PUT", f"/api/v2/{where}/quota", limits, token=team.tokens["admin"])
    assert reply.status == 201, reply.text


@pytest.fixture(autouse=True)
def no_quotas_left(team: TeamCluster) -> Iterator[None]:
    yield
    # Whatever a test left running would count for the next one.
    for name in ("first", "second", "member", "zero", "of-bob", "shared"):
        for user in ("alice", "bob"):
            team.ask(
                "PUT",
                f"/api/v2/jobs/{user}~{name}/executionType",
                {"value": "STOP"},
                token=team.tokens[user],
            )
    set_quota(team, "users/alice", **dict.fromkeys(LIMITS))
    set_quota(team, "groups/default", **dict.fromkeys(LIMITS))
    eventually(lambda: not quotas(team)[0]["resources"]["tasks"]["used"])


def submit(team: TeamCluster, spec: dict[str, Any], user: str = "alice") -> Any:
    return team.ask("POST", "/api/v2/jobs", spec, token=team.tokens[user])


def quotas(team: TeamCluster, user: str = "alice") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = team.get(MINE, token=team.tokens[user]).json()["quotas"]
    return found


def state_of_bobs_job(team: TeamCluster, name: str = "of-bob") -> str:
    found = team.get(f"/api/v2/jobs/bob~{name}", token=team.tokens["bob"]).json()
    return str(found["jobStatus"]["state"])


def pending_reason(team: TeamCluster, name: str) -> str:
    return next((e["message"] for e in team.events(name) if e["reason"] == "FailedScheduling"), "")


def test_user_without_a_quota_sees_what_is_used_and_no_limit(team: TeamCluster) -> None:
    [own] = quotas(team)
    assert (own["kind"], own["name"]) == ("user", "alice")
    assert set(own["resources"]) == set(LIMITS)
    assert own["resources"]["tasks"] == {"used": 0, "limit": None}


def test_administrator_sets_limits_one_by_one_and_removes_them(team: TeamCluster) -> None:
    set_quota(team, "users/alice", tasks=4)
    set_quota(team, "users/alice", gpu=0, storageBytes=1 << 40)
    set_quota(team, "users/alice", tasks=None)
    [own] = quotas(team)
    limits = {name: amounts["limit"] for name, amounts in own["resources"].items()}
    assert limits == {"tasks": None, "cpu": None, "memoryMB": None, "gpu": 0, "storageBytes": 1 << 40}


def test_only_administrators_set_quotas(team: TeamCluster) -> None:
    for where in ("users/alice", "groups/default"):
        assert team.ask("PUT", f"/api/v2/{where}/quota", {"tasks": 4}).status == 403
    assert team.get("/api/v2/users/bob/quota").status == 403
    assert team.get("/api/v2/users/alice/quota").status == 200
    assert team.get("/api/v2/users/bob/quota", token=team.tokens["admin"]).status == 200


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"tasks": -1}, '"tasks" must be larger than or equal to 0'),
        ({"cpu": 1.5}, '"cpu" must be an integer'),
        ({"disk": 1}, '"disk" is not allowed'),
        ({}, "There is no limit to set"),
        ({"storageBytes": 1 << 63}, '"storageBytes" must be less than or equal to'),
    ],
)
def test_wrong_limits_are_refused(team: TeamCluster, limits: dict[str, Any], message: str) -> None:
    reply = team.ask("PUT", "/api/v2/users/alice/quota", limits, token=team.tokens["admin"])
    assert reply.status == 400
    assert message in reply.json()["message"]


def test_quota_of_an_unknown_user_or_group_is_refused(team: TeamCluster) -> None:
    for where in ("users/nobody", "groups/nothing"):
        reply = team.ask("PUT", f"/api/v2/{where}/quota", {"tasks": 1}, token=team.tokens["admin"])
        assert reply.status in (400, 404)
        assert "not found" in reply.json()["message"]


def test_job_that_can_never_fit_is_refused_with_both_numbers(team: TeamCluster) -> None:
    set_quota(team, "users/alice", cpu=3)
    reply = submit(team, job("wide", "true", instances=4, cpu=1))
    assert reply.status == 403
    assert reply.json()["code"] == "QuotaExceededError"
    assert reply.json()["message"] == (
        "The job can never start within the quota of user alice: it asks for 4 cores; the quota is 3 cores."
    )


def test_second_job_waits_for_the_quota_and_says_so(team: TeamCluster) -> None:
    set_quota(team, "users/alice", tasks=1)
    assert submit(team, job("first", "sleep 600")).status == 202
    team.wait_state("first", "RUNNING")
    assert submit(team, job("second", "sleep 600")).status == 202
    eventually(
        lambda: (
            pending_reason(team, "second")
            == "The job waits for the quota of user alice: it asks for 1 task; 0 of 1 task are left."
        )
    )
    [own] = quotas(team)
    assert own["resources"]["tasks"] == {"used": 1, "limit": 1}
    assert own["resources"]["cpu"]["used"] == 1
    assert submit(team, job("of-bob", "true"), "bob").status == 202
    eventually(lambda: state_of_bobs_job(team) == "SUCCEEDED")
    set_quota(team, "users/alice", tasks=2)
    team.wait_state("second", "RUNNING")


def test_members_of_a_group_share_its_quota(team: TeamCluster) -> None:
    set_quota(team, "groups/default", tasks=1)
    assert submit(team, job("shared", "sleep 600"), "bob").status == 202
    eventually(lambda: state_of_bobs_job(team, "shared") == "RUNNING")
    assert submit(team, job("member", "true")).status == 202
    eventually(lambda: "quota of group default" in pending_reason(team, "member"))
    _, group = quotas(team)
    assert (group["kind"], group["name"]) == ("group", "default")
    assert group["resources"]["tasks"] == {"used": 1, "limit": 1}


def test_zero_is_not_free(team: TeamCluster) -> None:
    assert submit(team, job("zero", "sleep 600", cpu=0, memory_mb=0)).status == 202
    team.wait_state("zero", "RUNNING")
    resources = quotas(team)[0]["resources"]
    assert resources["cpu"]["used"] == 1
    assert resources["memoryMB"]["used"] == 16
    set_quota(team, "users/alice", cpu=3)
    reply = submit(team, job("wide", "true", instances=4, cpu=0, memory_mb=0))
    assert reply.status == 403
    assert "it asks for 4 cores; the quota is 3 cores" in reply.json()["message"]


def test_quota_goes_with_its_user_and_group(team: TeamCluster) -> None:
    admin = team.tokens["admin"]
    new_user = {"username": "dora", "password": PASSWORD, "virtualCluster": ["default"]}
    for where, new, name in (
        ("users", new_user, "dora"),
        ("groups", {"groupname": "crew", "description": ""}, "crew"),
    ):
        assert team.ask("POST", f"/api/v2/{where}", new, token=admin).status == 201
        set_quota(team, f"{where}/{name}", tasks=1)
        assert team.ask("DELETE", f"/api/v2/{where}/{name}", token=admin).status == 200
        assert team.ask("POST", f"/api/v2/{where}", new, token=admin).status == 201
        report = team.get(f"/api/v2/{where}/{name}/quota", token=admin).json()
        assert report["resources"]["tasks"]["limit"] is None, name
