"""Quotas, preemption, dependencies, arrays, task retries and time limits on a running cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.server_fixture import Cluster, eventually, job


def ours(**additions: Any) -> dict[str, Any]:
    return {"openpaisdk": additions}


def priority(level: str) -> dict[str, Any]:
    return {"hivedScheduler": {"jobPriorityClass": level}}


def gate(path: Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.02; done"


def test_virtual_cluster_stays_within_its_quota(own_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = own_cluster(
        "--cpus", "4", "--memory-mb", "1000", "--gpus", "0", "--virtual-cluster", "lab=0,3,500"
    )
    in_lab = {"defaults": {"virtualCluster": "lab"}}
    cluster.accept(job("a", gate(tmp_path / "open"), cpu=2, **in_lab))
    cluster.accept(job("b", "true", cpu=2, **in_lab))
    cluster.wait_state("a", "RUNNING")
    events: list[dict[str, Any]] = eventually(lambda: cluster.events("b"), "an event")
    numbers = "The job asks for 2 cores; its quota has 1 core left."
    assert events[0]["message"] == f"The virtual cluster lab has used up its quota. {numbers}"
    assert cluster.run(job("c", "true"))["state"] == "SUCCEEDED"
    status = cluster.get("/api/v2/virtual-clusters").json()
    assert status["lab"]["resourcesTotal"]["cpu"] == 3
    assert status["lab"]["resourcesUsed"]["cpu"] == 2
    assert status["default"]["resourcesTotal"]["cpu"] == 1
    (tmp_path / "open").touch()
    assert cluster.wait_over("b")["state"] == "SUCCEEDED"
    rejected = cluster.submit(job("d", "true", defaults={"virtualCluster": "nowhere"}))
    assert (rejected.status, rejected.json()["code"]) == (404, "NoVirtualClusterError")


def test_opportunistic_job_is_preempted_and_retried(
    own_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = own_cluster("--cpus", "2", "--memory-mb", "1000", "--gpus", "0")
    caught = tmp_path / "caught"
    command = f"trap 'touch {caught}; exit 7' TERM; {gate(tmp_path / 'open')}"
    cluster.accept(job("opportunistic", command, cpu=2, extras=priority("oppo")))
    cluster.wait_state("opportunistic", "RUNNING")
    # It is preemptible: it counts against no quota.
    assert cluster.get("/api/v2/virtual-clusters").json()["default"]["resourcesUsed"]["cpu"] == 0
    assert cluster.run(job("owner", "true", cpu=2))["state"] == "SUCCEEDED"
    assert caught.exists()
    (tmp_path / "open").touch()
    status = cluster.wait_over("opportunistic")
    assert status["state"] == "SUCCEEDED"
    assert (status["retries"], status["retryDetails"]["user"], status["retryDetails"]["platform"]) == (
        1,
        0,
        1,
    )
    messages = {event["reason"]: event["message"] for event in cluster.events("opportunistic")}
    assert f"preempted by {cluster.user}~owner" in messages["Preempted"]


def test_preempted_job_that_exits_with_0_is_retried(
    own_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = own_cluster("--cpus", "2", "--memory-mb", "1000", "--gpus", "0")
    command = f"trap 'exit 0' TERM; {gate(tmp_path / 'open')}"
    cluster.accept(job("opportunistic", command, cpu=2, extras=priority("oppo")))
    # Its completion policy tolerates the loss of every task; that does not mean the preemption of the gang.
    bearing = {"minFailedInstances": -1}
    cluster.wait_state("opportunistic", "RUNNING")
    assert cluster.run(job("owner", "true", cpu=2))["state"] == "SUCCEEDED"
    (tmp_path / "open").touch()
    status = cluster.wait_over("opportunistic")
    assert (status["state"], status["retryDetails"]["platform"]) == ("SUCCEEDED", 1)

    again = job("gang", gate(tmp_path / "on"), instances=2, completion=bearing, extras=priority("oppo"))
    cluster.accept(again)
    cluster.wait_state("gang", "RUNNING")
    assert cluster.run(job("owner-2", "true", cpu=2))["state"] == "SUCCEEDED"
    (tmp_path / "on").touch()
    status = cluster.wait_over("gang")
    assert (status["state"], status["retryDetails"]["platform"]) == ("SUCCEEDED", 1)


def test_preempted_array_tasks_are_retried_and_finished_ones_kept(
    own_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = own_cluster("--cpus", "2", "--memory-mb", "1000", "--gpus", "0")
    command = (
        f'echo $PAI_TASK_INDEX >> {tmp_path}/ran; [ "$PAI_TASK_INDEX" = 0 ] || {gate(tmp_path / "open")}'
    )
    extras = {"gangAllocation": False, **priority("oppo")}
    cluster.accept(job("array", command, instances=2, extras=extras))

    def first_is_done() -> bool:
        tasks = cluster.detail("array")["taskRoles"].get("main", {}).get("taskStatuses", [])
        return [task["taskState"] for task in tasks] == ["SUCCEEDED", "RUNNING"]

    eventually(first_is_done, "the first task's end")
    assert cluster.run(job("owner", "true", cpu=2))["state"] == "SUCCEEDED"
    (tmp_path / "open").touch()
    status = cluster.wait_over("array")
    assert (status["state"], status["retries"]) == ("SUCCEEDED", 0)
    assert sorted((tmp_path / "ran").read_text().split()) == ["0", "1", "1"]
    tasks = cluster.detail("array")["taskRoles"]["main"]["taskStatuses"]
    assert [(task["retries"], task["accountableRetries"]) for task in tasks] == [(0, 0), (1, 0)]


def test_job_waits_for_a_dependency_to_succeed(cluster: Cluster, name: str, tmp_path: Path) -> None:
    order = tmp_path / "order"
    cluster.accept(job(f"{name}-first", gate(tmp_path / "open"), f"echo first >> {order}"))
    after = ours(after=[{"job": f"{name}-first"}])
    cluster.accept(job(f"{name}-second", f"echo second >> {order}", extras=after))
    events: list[dict[str, Any]] = eventually(lambda: cluster.events(f"{name}-second"), "an event")
    assert events[0]["message"] == f"The job waits for {cluster.user}~{name}-first to finish."
    (tmp_path / "open").touch()
    assert cluster.wait_over(f"{name}-second")["state"] == "SUCCEEDED"
    assert order.read_text().split() == ["first", "second"]


def test_no_client_sees_a_job_pending_on_a_finished_dependency(
    cluster: Cluster, name: str, tmp_path: Path
) -> None:
    first, second, both = (f"{name}-{which}" for which in ("first", "second", "both"))
    cluster.accept(job(first, gate(tmp_path / "first")))
    cluster.accept(job(second, gate(tmp_path / "second")))
    cluster.accept(job(both, "true", extras=ours(after=[{"job": first}, {"job": second}])))

    def reason() -> str:
        listed = cluster.get(f"/api/v2/jobs?reasons=true&keyword={both}").json()[0]
        return str(listed.get("reason"))

    mine = f"{cluster.user}~"
    eventually(lambda: reason() == f"The job waits for {mine}{first}, {mine}{second} to finish.", "a reason")
    for over, expected in ((first, f"The job waits for {mine}{second} to finish."), (second, "")):
        watch = iter(cluster.follow(over))
        (tmp_path / over.removeprefix(f"{name}-")).touch()
        assert next(frame for frame in watch if frame["kind"] == "end")["state"] == "SUCCEEDED"
        # At once, without waiting.
        assert reason() == expected or (not expected and "waits for" not in reason())
    cluster.wait_over(both)
    reasons = [event["reason"] for event in cluster.events(both)]
    assert reasons == ["Scheduled", "FailedScheduling", "FailedScheduling"]


def test_job_with_a_failed_dependency_ends_with_a_reason(cluster: Cluster, name: str) -> None:
    cluster.run(job(f"{name}-first", "echo the disk is full; exit 1"))
    cluster.accept(job(f"{name}-second", "true", extras=ours(after=[{"job": f"{name}-first"}])))
    status = cluster.wait_over(f"{name}-second")
    assert (status["state"], status["appExitCode"]) == ("FAILED", -1100)
    assert status["appExitDiagnostics"].endswith("ended as FAILED: Exit code 1: the disk is full.")
    assert "a dependency failed" in status["appExitSpec"]["reason"]
    on_end = ours(after=[{"job": f"{name}-first", "on": "end"}])
    assert cluster.run(job(f"{name}-third", "true", extras=on_end))["state"] == "SUCCEEDED"


def test_dependency_on_a_missing_job_is_rejected(cluster: Cluster, name: str) -> None:
    rejected = cluster.submit(job(name, "true", extras=ours(after=[{"job": "missing"}])))
    assert (rejected.status, rejected.json()["code"]) == (404, "NoJobError")


def test_dependencies_survive_a_restart(own_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = own_cluster("--cpus", "4", "--memory-mb", "1000", "--gpus", "0")
    cluster.accept(job("first", gate(tmp_path / "open")))
    cluster.accept(job("second", "true", extras=ours(after=[{"job": "first"}])))
    cluster.wait_state("first", "RUNNING")
    cluster.kill()
    (tmp_path / "open").touch()
    cluster.start()
    assert cluster.wait_over("second")["state"] == "SUCCEEDED"


def test_dependency_that_was_deleted_stays_satisfied_after_a_restart(
    own_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = own_cluster("--cpus", "1", "--memory-mb", "1000", "--gpus", "0")
    cluster.run(job("first", "true", cpu=1))
    cluster.accept(job("busy", gate(tmp_path / "open"), cpu=1))
    cluster.wait_state("busy", "RUNNING")
    cluster.accept(job("second", "true", cpu=1, extras=ours(after=[{"job": "first"}])))
    eventually(lambda: cluster.events("second"), "a reason why it waits for the core")
    assert cluster.ask("DELETE", f"/api/v1/user/{cluster.user}/jobs/first").status == 202
    cluster.kill()
    (tmp_path / "open").touch()
    cluster.start()
    assert cluster.wait_over("second")["state"] == "SUCCEEDED"


def test_array_limit_bounds_concurrent_tasks(cluster: Cluster, name: str, tmp_path: Path) -> None:
    here = tmp_path / "running"
    here.mkdir()
    command = (
        f"touch {here}/$PAI_TASK_INDEX; ls {here} | wc -l >> {tmp_path}/seen; sleep 0.1;"
        f" rm {here}/$PAI_TASK_INDEX"
    )
    extras = {"gangAllocation": False, **ours(arrayLimit=2)}
    status = cluster.run(job(name, command, instances=7, extras=extras))
    assert status["state"] == "SUCCEEDED"
    seen = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert len(seen) == 7
    assert max(seen) <= 2


def test_task_without_a_gang_is_retried_individually(cluster: Cluster, name: str, tmp_path: Path) -> None:
    flaky = (
        f'echo "$PAI_TASK_INDEX" >> {tmp_path}/ran; [ "$PAI_TASK_INDEX" = 0 ] || [ -e {tmp_path}/again ] ||'
    )
    work = job(name, f"{flaky} {{ touch {tmp_path}/again; exit 3; }}", instances=2)
    work["taskRoles"]["main"]["taskRetryCount"] = 1
    work["extras"] = {"gangAllocation": False}
    status = cluster.run(work)
    assert (status["state"], status["retries"]) == ("SUCCEEDED", 0)
    assert sorted((tmp_path / "ran").read_text().split()) == ["0", "1", "1"]
    tasks = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"]
    assert [task["retries"] for task in tasks] == [0, 1]


def test_task_retry_delay_survives_a_restart(own_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = own_cluster("--cpus", "2", "--memory-mb", "1000", "--gpus", "0")
    ran = tmp_path / "ran"
    work = job("restless", f"date +%s.%N >> {ran}; exit 3", extras={"gangAllocation": False})
    work["taskRoles"]["main"]["taskRetryCount"] = -1
    cluster.accept(work)

    def starts() -> list[float]:
        return [float(word) for word in ran.read_text().split()] if ran.exists() else []

    # Retries start at once, then after 1 and 2 seconds.
    eventually(lambda: len(starts()) >= 3)
    cluster.kill()
    cluster.start()
    eventually(lambda: len(starts()) >= 4)
    assert starts()[3] - starts()[2] >= 2


@pytest.mark.slow
def test_task_in_its_retry_delay_is_shown_as_running(
    own_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """As in OpenPAI, before and after a restart; its attempt failed. A stop meanwhile ends the task."""
    cluster = own_cluster("--cpus", "2", "--memory-mb", "1000", "--gpus", "0")
    ran = tmp_path / "ran"
    command = f'[ "$PAI_TASK_INDEX" = 0 ] || exec sleep 600; echo >> {ran}; exit 3'
    work = job("restless", command, instances=2, extras={"gangAllocation": False})
    work["taskRoles"]["main"]["taskRetryCount"] = -1
    cluster.accept(work)

    def first() -> dict[str, Any]:
        found: dict[str, Any] = cluster.detail("restless")["taskRoles"]["main"]["taskStatuses"][0]
        return found

    def backs_off() -> bool:
        task = first()
        assert task["taskState"] in ("WAITING", "RUNNING"), "it is not over"
        # The fourth delay is long enough to observe it.
        return task["attemptState"] == "FAILED" and task["retries"] == 4

    def check() -> None:
        task = first()
        assert (task["taskState"], task["attemptState"], task["retries"]) == ("RUNNING", "FAILED", 4)
        assert (task["containerExitCode"], task["originUserExitCode"]) == (255, 3)
        assert task["completedTime"] is None
        assert task["currentAttemptCompletedTime"] >= task["launchedTime"]
        whole = cluster.get(
            cluster.path("restless", "/attempts/0/taskRoles/main/taskIndex/0/attempts")
        ).json()
        assert (whole["taskState"], whole["completedTime"]) == ("RUNNING", None)
        assert [one["attemptState"] for one in whole["attempts"]] == ["FAILED"] * 5
        old = cluster.get(f"/api/v1/user/{cluster.user}/jobs/restless").json()["taskRoles"]["main"]
        assert [one["taskState"] for one in old["taskStatuses"]] == ["RUNNING", "RUNNING"]

    cluster.wait_state("restless", "RUNNING")
    eventually(backs_off, "the fourth delay")
    check()
    cluster.kill()
    cluster.start()
    check()
    assert cluster.stop("restless").status == 202
    assert cluster.wait_over("restless")["state"] == "STOPPED"
    done, stopped = cluster.detail("restless")["taskRoles"]["main"]["taskStatuses"]
    assert (done["taskState"], done["attemptState"], done["containerExitCode"]) == ("FAILED", "FAILED", 255)
    assert done["completedTime"] == done["currentAttemptCompletedTime"]
    assert stopped["taskState"] == "STOPPED"
    assert len(ran.read_text().splitlines()) == 5


def test_task_over_its_time_limit_is_signaled_then_killed(
    own_cluster: Callable[..., Cluster], name: str
) -> None:
    cluster = own_cluster("--grace", "3")
    command = "trap 'echo asked' TERM; while true; do sleep 0.05; done"
    cluster.accept(job(name, command, extras=ours(timeLimit=1)))
    cluster.wait_state(name, "RUNNING")
    status = cluster.wait_over(name)
    assert (status["state"], status["appExitCode"]) == ("FAILED", -1004)
    message = "The task was ended because it ran longer than its time limit of 1 s."
    assert status["appExitDiagnostics"].endswith(message)
    assert message in [event["message"] for event in cluster.events(name)]
    assert b"asked" in cluster.log_of(name)
