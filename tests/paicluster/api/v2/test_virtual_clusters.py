"""Virtual clusters created, changed and deleted at run time: quotas, jobs and permissions follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.server_fixture import Reply, eventually, job
from support.team_cluster import PASSWORD, TeamCluster

V1, V2 = "/api/v1/virtual-clusters", "/api/v2/virtual-clusters"


def admin(cluster: TeamCluster, method: str, path: str, body: Any = None) -> Reply:
    return cluster.ask(method, path, body, token=cluster.tokens["admin"])


@pytest.fixture
def lab(cluster: TeamCluster) -> Iterator[str]:
    """A virtual cluster with half of the cluster, deleted afterwards."""
    made = admin(cluster, "PUT", f"{V2}/lab", {"vcCapacity": 50})
    message = "Create virtual cluster lab to capacity 50 successfully."
    assert (made.status, made.json()) == (201, {"status": 201, "message": message})
    yield "lab"
    admin(cluster, "DELETE", f"{V2}/lab")


def job_in(name: str, vc: str, *commands: str, **more: Any) -> dict[str, Any]:
    return job(name, *(commands or ("true",)), defaults={"virtualCluster": vc}, **more)


def test_nodes_tell_what_tasks_requested_of_them(cluster: TeamCluster) -> None:
    def nodes() -> list[dict[str, int]]:
        return list(cluster.get(f"{V2}?nodes").json().values())

    before = nodes()
    name = cluster.accept(job("on-a-node", "sleep 600", cpu=3, memory_mb=64, gpu=1))
    cluster.wait_state(name, "RUNNING")
    (was,), (now,) = before, nodes()
    totals = {key: value for key, value in now.items() if key.endswith("Total")}
    assert totals == {"cpuTotal": 64, "memoryTotal": 65536, "gpuTotal": 4}
    # Jobs of other tests may end meanwhile, so only what this one adds is certain.
    assert now["cpuUsed"] >= 3 and now["memoryUsed"] >= 64 and now["gpuUsed"] >= 1
    assert now["gpuAvailable"] == 4 - now["gpuUsed"] and set(was) == set(now)
    cluster.stop(name)
    cluster.wait_over(name)


def test_capacity_is_taken_from_default_and_returned(cluster: TeamCluster, lab: str) -> None:
    found = cluster.get(V2).json()
    assert found["lab"]["resourcesTotal"] == {
        "cpu": 32, "memory": 32768, "gpu": 2, "vCores": 32, "GPUs": 2,
    }  # fmt: skip
    assert (found["lab"]["capacity"], found["lab"]["maxCapacity"]) == (50, 50)
    assert found["default"]["resourcesTotal"]["gpu"] == 2 and found["default"]["capacity"] == 50
    change = {"vcCapacity": 25, "vcMaxCapacity": 75, "description": "ours"}
    changed = admin(cluster, "PUT", f"{V2}/{lab}", change)
    assert changed.json()["message"] == "Update virtual cluster lab to capacity 25 successfully."
    one = cluster.get(f"{V2}/{lab}").json()
    assert (one["capacity"], one["maxCapacity"], one["resourcesTotal"]["gpu"]) == (25, 75, 1)
    gone = admin(cluster, "DELETE", f"{V2}/{lab}")
    message = "Remove virtual cluster lab successfully."
    assert (gone.status, gone.json()) == (201, {"status": 201, "message": message})
    assert set(cluster.get(V2).json()) == {"default"}
    assert cluster.get(V2).json()["default"]["resourcesTotal"]["gpu"] == 4
    assert cluster.get("/api/v2/groups/lab").status == 400, "its group is deleted too"


def test_warning_at_submission_follows_a_change_of_capacity(cluster: TeamCluster, lab: str) -> None:
    """The answer for equal requests is kept, but not past a change of the quotas."""

    def warning(name: str) -> str:
        reply = admin(cluster, "POST", "/api/v2/jobs", job_in(name, lab, gpu=2))
        assert reply.status == 202, reply.text
        return reply.headers.get("x-warning", "")

    assert warning("fits") == ""
    admin(cluster, "PUT", f"{V2}/{lab}", {"vcCapacity": 25})
    assert warning("exceeds").endswith("the job asks for 2 GPUs; the virtual cluster lab has at most 1 GPU.")
    admin(cluster, "PUT", f"{V2}/{lab}", {"vcCapacity": 50})
    assert warning("fits-again") == ""
    for name in ("fits", "exceeds", "fits-again"):
        path = f"/api/v2/jobs/admin~{name}"
        admin(cluster, "PUT", f"{path}/executionType", {"value": "STOP"})
        eventually(lambda path=path: admin(cluster, "GET", path).json()["jobStatus"]["completedTime"])


def test_version_1_has_its_own_messages(cluster: TeamCluster) -> None:
    made = admin(cluster, "PUT", f"{V1}/old", {"vcCapacity": 10})
    assert (made.status, made.json()) == (201, {"message": "create vc: old to capacity: 10 successfully"})
    try:
        again = admin(cluster, "PUT", f"{V1}/old", {"vcCapacity": "20"})
        assert again.json() == {"message": "update vc: old to capacity: 20 successfully"}
        stopped = admin(cluster, "PUT", f"{V1}/old/status", {"vcStatus": "stopped"})
        assert (stopped.status, stopped.json()) == (201, {"message": "stop vc old successfully"})
        assert cluster.get(f"{V1}/old").json()["status"] == "STOPPED"
        running = admin(cluster, "PUT", f"{V1}/old/status", {"vcStatus": "running"})
        assert running.json() == {"message": "active vc old successfully"}
        assert cluster.get(f"{V1}/old").json()["status"] == "RUNNING"
    finally:
        gone = admin(cluster, "DELETE", f"{V1}/old")
    assert (gone.status, gone.json()) == (201, {"message": "Remove vc: old successfully"})


def test_members_of_its_group_may_use_it(cluster: TeamCluster, lab: str, name: str) -> None:
    refused = cluster.submit(job_in(name, lab))
    assert (refused.status, refused.json()["code"]) == (403, "ForbiddenUserError")
    assert refused.json()["message"] == "User alice is not allowed to do operation in lab."
    assert refused.json()["hint"] == "Virtual clusters you may use: default."
    v1 = {
        "jobName": name,
        "image": "x",
        "virtualCluster": lab,
        "taskRoles": [{"name": "main", "command": "true", "memoryMB": 16, "shmMB": 8}],
    }
    assert cluster.ask("POST", "/api/v1/jobs", v1).json()["code"] == "ForbiddenUserError"
    assert cluster.get("/api/v2/users/alice").json()["virtualCluster"] == ["default"]
    granted = admin(cluster, "PUT", "/api/v2/users/alice/virtualcluster", {"virtualCluster": [lab]})
    assert granted.status == 201
    assert cluster.get("/api/v2/users/alice").json()["virtualCluster"] == ["default", lab]
    cluster.accept(job_in(name, lab))
    assert cluster.wait_over(name)["virtualCluster"] == lab
    revoked = admin(cluster, "PUT", "/api/v2/users/alice/virtualcluster", {"virtualCluster": []})
    assert revoked.status == 201
    assert cluster.submit(job_in(name + "-2", lab)).status == 403
    of_admin = cluster.submit(job_in(name, lab), token=cluster.tokens["admin"])
    assert of_admin.status == 202, "administrators use every virtual cluster"
    done = f"/api/v2/jobs/admin~{name}"
    eventually(lambda: cluster.get(done).json()["jobStatus"]["state"] == "SUCCEEDED", "its end")


def test_stopped_virtual_cluster_drains_and_accepts_no_jobs(
    cluster: TeamCluster, lab: str, name: str
) -> None:
    token = cluster.tokens["admin"]
    assert cluster.submit(job_in(name, lab, "sleep 600"), token=token).status == 202
    stopped = admin(cluster, "PUT", f"{V2}/{lab}/status", {"vcStatus": "stopped"})
    assert stopped.json()["message"] == "Stop virtual cluster lab successfully."
    assert cluster.get(f"{V1}/{lab}").json()["status"] == "DRAINING"
    refused = cluster.submit(job_in(name + "-2", lab), token=token)
    assert (refused.status, refused.json()["code"]) == (403, "ForbiddenUserError")
    assert "is stopped" in refused.json()["message"]
    running = admin(cluster, "DELETE", f"{V2}/{lab}")
    assert (running.status, running.json()["code"]) == (403, "RemoveRunningVcError")
    where = f"/api/v2/jobs/admin~{name}"
    admin(cluster, "PUT", f"{where}/executionType", {"value": "STOP"})
    eventually(lambda: cluster.get(where).json()["jobStatus"]["state"] == "STOPPED", "the stop")
    assert cluster.get(f"{V1}/{lab}").json()["status"] == "STOPPED"
    again = admin(cluster, "PUT", f"{V2}/{lab}/status", {"vcStatus": "running"})
    assert again.json()["message"] == "Activate virtual cluster lab successfully."


def test_unschedulable_job_starts_when_capacity_grows(cluster: TeamCluster, lab: str, name: str) -> None:
    token = cluster.tokens["admin"]
    assert cluster.submit(job_in(name, lab, gpu=3), token=token).status == 202
    where = f"/api/v2/jobs/admin~{name}"
    eventually(lambda: cluster.get(f"{where}/events").json()["totalCount"], "the pending reason")
    assert cluster.get(where).json()["jobStatus"]["state"] == "WAITING"
    assert admin(cluster, "PUT", f"{V2}/{lab}", {"vcCapacity": 75}).status == 201
    eventually(lambda: cluster.get(where).json()["jobStatus"]["state"] == "SUCCEEDED", "its end")


def test_idle_capacity_is_borrowed_up_to_max_capacity(cluster: TeamCluster, lab: str, name: str) -> None:
    token = cluster.tokens["admin"]
    assert cluster.submit(job_in(name, lab, "sleep 600", gpu=3), token=token).status == 202
    where = f"/api/v2/jobs/admin~{name}"

    def reasons() -> list[str]:
        return [event["message"] for event in cluster.get(f"{where}/events").json()["data"]]

    numbers = f"The job asks for 3 GPUs; the virtual cluster {lab} has at most 2 GPUs."
    reason = f"The job requests more resources than the virtual cluster {lab} can have. {numbers}"
    eventually(lambda: reason in reasons(), "the reason")
    assert admin(cluster, "PUT", f"{V2}/{lab}", {"vcCapacity": 50, "vcMaxCapacity": 75}).status == 201
    eventually(lambda: cluster.get(where).json()["jobStatus"]["state"] == "RUNNING", "its start")
    now = cluster.get(f"{V2}/{lab}").json()
    assert (now["capacity"], now["maxCapacity"], now["usedCapacity"]) == (50, 75, 75)
    admin(cluster, "PUT", f"{where}/executionType", {"value": "STOP"})
    eventually(lambda: cluster.get(where).json()["jobStatus"]["state"] == "STOPPED", "its end")


@pytest.mark.parametrize(
    ("method", "rest", "body", "status", "code"),
    [
        ("PUT", "default", {"vcCapacity": 5}, 403, "ForbiddenUserError"),
        ("DELETE", "default", None, 403, "ForbiddenUserError"),
        ("PUT", "default/status", {"vcStatus": "stopped"}, 403, "ForbiddenUserError"),
        ("PUT", "a-b", {"vcCapacity": 5}, 400, "InvalidParametersError"),
        ("GET", "a-b", None, 400, "InvalidParametersError"),
        ("PUT", "other", {}, 400, "InvalidParametersError"),
        ("PUT", "other", {"vcCapacity": 101}, 400, "InvalidParametersError"),
        ("PUT", "other", {"vcCapacity": -1}, 400, "InvalidParametersError"),
        ("PUT", "other", {"vcCapacity": "x"}, 400, "InvalidParametersError"),
        ("PUT", "other", {"vcCapacity": 50, "vcMaxCapacity": 40}, 400, "InvalidParametersError"),
        ("PUT", "other", {"vcCapacity": 51}, 403, "NoEnoughQuotaError"),
        ("PUT", "admingroup", {"vcCapacity": 5}, 409, "ConflictVcError"),
        ("PUT", "lab/status", {"vcStatus": "asleep"}, 400, "BadConfigurationError"),
        ("PUT", "other/status", {"vcStatus": "stopped"}, 404, "NoVirtualClusterError"),
        ("DELETE", "other", None, 404, "NoVirtualClusterError"),
        ("GET", "other", None, 404, "NoVirtualClusterError"),
    ],
)
def test_invalid_change_is_rejected(
    cluster: TeamCluster, lab: str, method: str, rest: str, body: Any, status: int, code: str
) -> None:
    before = cluster.get(V2).json()
    for where in (V1, V2):
        reply = admin(cluster, method, f"{where}/{rest}", body)
        assert (reply.status, reply.json()["code"]) == (status, code)
        if method != "GET":
            assert cluster.ask(method, f"{where}/{rest}", body).status == 403
            assert cluster.ask(method, f"{where}/{rest}", body, token=None).status == 401
    after = cluster.get(V2).json()
    assert {name: vc["resourcesTotal"] for name, vc in after.items()} == {
        name: vc["resourcesTotal"] for name, vc in before.items()
    }


def test_sku_types_are_the_allocation_units_of_nodes(cluster: TeamCluster) -> None:
    expected = {"gpu": {"cpu": 16, "memory": 16384, "gpu": 1}}
    for where in (
        "/api/v2/cluster/sku-types",
        "/api/v2/cluster/sku-types?vc=default",
        "/api/v2/virtual-clusters/default/sku-types",
    ):
        assert cluster.get(where).json() == expected
    unknown = cluster.get("/api/v2/cluster/sku-types?vc=none")
    assert (unknown.status, unknown.json()["code"]) == (404, "NoVirtualClusterError")
    assert cluster.get("/api/v2/virtual-clusters/none/sku-types").status == 404
    assert cluster.get("/api/v2/cluster/sku-types", token=None).status == 401


@pytest.mark.slow
def test_changes_survive_a_restart_and_configured_ones_are_read_only(tmp_path: Path) -> None:
    options = (
        "--cpus", "8", "--memory-mb", "800", "--gpus", "0", "--virtual-cluster", "fixed=0,2,200",
    )  # fmt: skip
    cluster = TeamCluster(tmp_path / "home", options, {"PAICLUSTER_ADMIN_PASSWORD": PASSWORD})
    try:
        cluster.start()
        cluster.token = cluster.tokens["admin"] = cluster.log_in("admin")
        assert admin(cluster, "PUT", f"{V2}/made", {"vcCapacity": 50}).status == 201
        assert admin(cluster, "PUT", f"{V2}/made/status", {"vcStatus": "stopped"}).status == 201
        fixed = admin(cluster, "DELETE", f"{V2}/fixed")
        assert (fixed.status, fixed.json()["code"]) == (403, "ReadOnlyVcError")
        assert cluster.get("/api/v2/groups/fixed").status == 200, "each has a group of the same name"
        assert cluster.terminate() == 0
        cluster.start()
        found = cluster.get(V1).json()
        assert {name: (vc["capacity"], vc["resourcesTotal"]["vCores"]) for name, vc in found.items()} == {
            "default": (25, 2),
            "fixed": (25, 2),
            "made": (50, 4),
        }
        assert found["made"]["status"] == "STOPPED"
    finally:
        cluster.close()
