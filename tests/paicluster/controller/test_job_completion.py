"""Job completion: success, failure, retries and stops on a real cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pairuntime.supervisor import process_tree
from support.server_fixture import Cluster, eventually, job, role


def tasks_of(
    cluster: Cluster, name: str, role: str = "main", attempt: int | None = None
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.detail(name, attempt)["taskRoles"][role]["taskStatuses"]
    return found


def supervisor_of(cluster: Cluster, name: str) -> int:
    uid = tasks_of(cluster, name)[0]["containerId"]
    claim = cluster.home / "tasks" / uid[:2] / uid / "claim"
    return int(json.loads(eventually(lambda: claim.exists() and claim.read_text(), "the claim"))["pid"])


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
    return False


def test_job_succeeds(cluster: Cluster, name: str) -> None:
    status = cluster.run(job(name, "true"))
    assert (status["state"], status["subState"], status["appExitCode"]) == ("SUCCEEDED", "Completed", 0)
    expected = "SucceededTaskCount 1 has reached MinSucceededTaskCount 1 in the TaskRole"
    assert status["appExitTriggerMessage"] == expected
    assert (status["appExitTriggerTaskRoleName"], status["appExitTriggerTaskIndex"]) == ("main", 0)


def test_failure_is_255_with_the_original_exit_code(cluster: Cluster, name: str) -> None:
    status = cluster.run(job(name, "echo before", "exit 7", "echo after"))
    assert (status["state"], status["appExitCode"], status["retries"]) == ("FAILED", 255, 0)
    assert status["appExitMessages"]["runtime"]["originUserExitCode"] == 7
    assert status["appExitSpec"]["phrase"] == "PAIRuntimeUnknownFailed"
    assert cluster.log_of(name) == b"before\n"


def test_first_failing_command_ends_the_task(cluster: Cluster, name: str) -> None:
    status = cluster.run(job(name, "false", "echo not reached"))
    assert status["state"] == "FAILED"
    assert cluster.log_of(name) == b""


def test_missing_command_is_220(cluster: Cluster, name: str) -> None:
    status = cluster.run(job(name, "no-such-command-anywhere", jobRetryCount=3))
    assert (status["state"], status["appExitCode"]) == ("FAILED", 220)
    assert status["appExitMessages"]["runtime"]["originUserExitCode"] == 127
    assert "command not found" in status["appExitMessages"]["runtime"]["matchedUserLogString"]
    assert status["retries"] == 0, "what would come again is not tried again"


@pytest.mark.parametrize(("signum", "code"), [("KILL", 137), ("TERM", 143), ("SEGV", 139)])
def test_signal_from_the_program_itself_counts_as_user_failure(
    cluster: Cluster, name: str, signum: str, code: int
) -> None:
    status = cluster.run(job(name, f"kill -{signum} $$", "sleep 600", jobRetryCount=1))
    assert (status["state"], status["appExitCode"]) == ("FAILED", code)
    assert status["retryDetails"] == {"user": 1, "platform": 0, "resource": 0}


def test_retries_are_counted_and_all_attempts_kept(cluster: Cluster, name: str, tmp_path: Path) -> None:
    count = tmp_path / "count"
    status = cluster.run(job(name, f"echo x >> {count}", f"[ $(wc -l < {count}) = 3 ]", jobRetryCount=5))
    assert (status["state"], status["retries"], status["attemptId"]) == ("SUCCEEDED", 2, 2)
    assert status["retryDetails"] == {"user": 2, "platform": 0, "resource": 0}
    states = [cluster.detail(name, attempt)["jobStatus"]["attemptState"] for attempt in range(3)]
    assert states == ["FAILED", "FAILED", "SUCCEEDED"]
    uids = {tasks_of(cluster, name, attempt=attempt)[0]["containerId"] for attempt in range(3)}
    assert len(uids) == 3


def test_retries_are_bounded(cluster: Cluster, name: str) -> None:
    status = cluster.run(job(name, "exit 1", jobRetryCount=2))
    assert (status["state"], status["retries"]) == ("FAILED", 2)
    assert "All 2 retries are used." in [event["message"] for event in cluster.events(name)]


# -- completion -----------------------------------------------------------------------------------


def test_other_tasks_are_stopped_when_one_fails(cluster: Cluster, name: str) -> None:
    wait = 'if [ "$PAI_TASK_INDEX" = 1 ]; then exit 9; fi'
    status = cluster.run(job(name, wait, "sleep 600", instances=3))
    assert (status["state"], status["appExitTriggerTaskIndex"]) == ("FAILED", 1)
    expected = "FailedTaskCount 1 has reached MinFailedTaskCount 1 in the TaskRole"
    assert status["appExitTriggerMessage"] == expected
    assert status["appExitMessages"]["runtime"]["originUserExitCode"] == 9
    assert [task["taskState"] for task in tasks_of(cluster, name)] == ["STOPPED", "FAILED", "STOPPED"]
    assert [task["containerExitCode"] for task in tasks_of(cluster, name)] == [-220, 255, -220]


def test_gang_tolerates_failures_up_to_its_policy(cluster: Cluster, name: str) -> None:
    some = 'if [ "$PAI_TASK_INDEX" = 0 ]; then exit 1; fi'
    what = job(name, some, instances=3, completion={"minFailedInstances": 2, "minSucceededInstances": 2})
    status = cluster.run(what)
    assert (status["state"], status["appExitCode"]) == ("SUCCEEDED", 0)
    expected = "SucceededTaskCount 2 has reached MinSucceededTaskCount 2 in the TaskRole"
    assert status["appExitTriggerMessage"] == expected


def test_minimum_of_successes_ends_a_gang(cluster: Cluster, name: str) -> None:
    some = 'if [ "$PAI_TASK_INDEX" = 2 ]; then exit 0; fi'
    what = job(name, some, "sleep 600", instances=3, completion={"minSucceededInstances": 1})
    status = cluster.run(what)
    assert (status["state"], status["appExitTriggerTaskIndex"]) == ("SUCCEEDED", 2)
    assert [task["containerExitCode"] for task in tasks_of(cluster, name)] == [-220, -220, 0]


def test_failures_can_be_ignored(cluster: Cluster, name: str) -> None:
    what = job(
        name, "exit 1", instances=2, completion={"minFailedInstances": -1, "minSucceededInstances": -1}
    )
    status = cluster.run(what)
    assert (status["state"], status["appExitCode"]) == ("SUCCEEDED", 0)
    assert status["appExitTriggerMessage"].startswith("CompletedTaskCount 2 has reached TotalTaskCount 2")


def test_finished_workers_end_their_parameter_servers(cluster: Cluster, name: str) -> None:
    what = job(name, "true", instances=2)
    what["taskRoles"]["ps"] = role("sleep 600", completion={"minSucceededInstances": -1})
    status = cluster.run(what)
    assert (status["state"], status["appExitTriggerTaskRoleName"]) == ("SUCCEEDED", "main")
    assert [task["containerExitCode"] for task in tasks_of(cluster, name, "ps")] == [-220]


def test_failed_role_ends_the_other(cluster: Cluster, name: str) -> None:
    what = job(name, "sleep 600")
    what["taskRoles"]["other"] = role("exit 5")
    status = cluster.run(what)
    assert (status["state"], status["appExitTriggerTaskRoleName"]) == ("FAILED", "other")
    assert status["appExitMessages"]["runtime"]["originUserExitCode"] == 5


# -- stopping -------------------------------------------------------------------------------------


def test_stop_of_a_pending_job(cluster: Cluster, name: str) -> None:
    cluster.accept(job(name, "true", cpu=4096))
    cluster.wait_state(name, "WAITING")
    assert cluster.stop(name).status == 202
    status = cluster.wait_over(name)
    assert (status["state"], status["appExitCode"]) == ("STOPPED", -210)
    assert status["appExitDiagnostics"] == "User has requested to stop the Framework"
    assert cluster.detail(name)["taskRoles"] == {}


def test_stop_right_after_submission(cluster: Cluster, name: str) -> None:
    """In any state (new, intent written, launching, running) it ends without being killed."""
    names = [f"{name}-{number}" for number in range(20)]
    for one in names:
        cluster.accept(job(one, "sleep 600", instances=2))
        cluster.stop(one)
    for one in names:
        assert cluster.wait_over(one)["state"] == "STOPPED"


def test_processes_forked_during_a_stop_are_signaled_too(cluster: Cluster, name: str) -> None:
    for number in range(5):
        one = f"{name}-{number}"
        cluster.accept(job(one, "echo on", "while :; do sleep 600 & sleep 0.003; done"))
        stream = cluster.follow(one)
        next(frame for frame in stream if frame["kind"] == "log")
        cluster.stop(one)
        assert cluster.wait_over(one)["state"] == "STOPPED"
        stream.close()


def test_stop_of_a_running_job_leaves_no_processes(
    own_cluster: Callable[..., Cluster], name: str, tmp_path: Path
) -> None:
    cluster = own_cluster("--grace", "1")
    pids = tmp_path / "pids"
    cluster.accept(
        job(name, f"(trap '' TERM; setsid sleep 600 & echo $! >> {pids}; echo $$ >> {pids}; wait)")
    )
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2, "the start")
    cluster.wait_state(name, "RUNNING")
    cluster.stop(name)
    status = cluster.wait_over(name)
    assert (status["state"], status["appExitCode"], status["executionType"]) == ("STOPPED", -210, "STOP")
    assert [pid for pid in map(int, pids.read_text().split()) if alive(pid)] == []


def test_stopped_job_gets_its_grace_period(cluster: Cluster, name: str) -> None:
    gentle = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    cluster.accept(job(name, gentle))
    stream = cluster.follow(name)
    for frame in stream:
        if frame["kind"] == "log":
            cluster.stop(name)
            break
    assert cluster.wait_over(name)["state"] == "STOPPED"
    assert cluster.log_of(name, "stdout") == b"ready\nsaved\n"
    stream.close()


def test_stop_of_a_job_in_its_retry_delay(cluster: Cluster, name: str) -> None:
    cluster.accept(job(name, "sleep 600"))
    cluster.wait_state(name, "RUNNING")
    stream = iter(cluster.follow(name))
    os.kill(supervisor_of(cluster, name), signal.SIGKILL)
    next(frame for frame in stream if frame["kind"] == "event" and frame["reason"] == "Retrying")
    cluster.stop(name)
    status = cluster.wait_over(name)
    assert (status["state"], status["appExitCode"]) == ("STOPPED", -210)
    assert [frame for frame in stream if frame["kind"] == "end"]


# -- crashes --------------------------------------------------------------------------------------


def test_killed_supervisor_costs_a_platform_retry(cluster: Cluster, name: str, tmp_path: Path) -> None:
    ran, pids = tmp_path / "ran", tmp_path / "pids"
    script = f"echo $PAI_CONTAINER_ID >> {ran}; (setsid sleep 600 & echo $! >> {pids}); echo $$ >> {pids}"
    hang = f"if [ $(wc -l < {ran}) = 1 ]; then sleep 600; fi"
    cluster.accept(job(name, script, hang))
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2, "the start")
    cluster.wait_state(name, "RUNNING")
    first = list(map(int, pids.read_text().split()))
    os.kill(supervisor_of(cluster, name), signal.SIGKILL)
    status = cluster.wait_over(name)
    assert (status["state"], status["retries"]) == ("SUCCEEDED", 1)
    assert status["retryDetails"] == {"user": 0, "platform": 1, "resource": 0}
    assert [pid for pid in first if alive(pid)] == []
    uids = ran.read_text().split()
    assert len(uids) == len(set(uids)) == 2
    assert cluster.detail(name, 0)["jobStatus"]["appExitCode"] == -101
    assert "TaskLost" in [event["reason"] for event in cluster.events(name)]


def test_jobs_start_after_the_zygote_died(cluster: Cluster, name: str) -> None:
    assert cluster.process is not None
    server = cluster.process.pid

    def zygotes() -> list[int]:
        """Supervisors are forked from it and have its command line; the zygote is a child of the server."""
        found = cluster.processes()
        parents = process_tree.parents()
        return [pid for pid, line in found.items() if " zygote " in line and parents.get(pid) == server]

    os.kill(eventually(zygotes, "the zygote")[0], signal.SIGKILL)
    for number in range(3):
        assert cluster.run(job(f"{name}-{number}", "echo on"))["state"] == "SUCCEEDED"


@pytest.mark.slow
def test_hundred_concurrent_jobs_finish_without_a_sweep(cluster: Cluster, name: str) -> None:
    names = [f"{name}-{number}" for number in range(100)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda one: cluster.accept(job(one, f"echo {one}")), names))
        states = list(pool.map(lambda one: cluster.wait_over(one)["state"], names))
        logs = list(pool.map(cluster.log_of, names))
    assert states == ["SUCCEEDED"] * 100
    assert logs == [one.encode() + b"\n" for one in names]


def test_failure_after_a_long_log_does_not_block_others(cluster: Cluster, name: str) -> None:
    """Ten megabytes are searched for known causes, on the thread of the event loop."""
    line = "error: Traceback import cuda out of memory segmentation"
    before = cluster.main_thread_cpu_s()
    cluster.accept(job(name, f"(yes '{line}' || true) | head -c 12000000", "exit 1"))
    eventually(lambda: cluster.status(name)["state"] == "FAILED", "the end")
    assert cluster.status(name)["appExitCode"] == 255, "another end would not be looked for in the log"
    spent = cluster.main_thread_cpu_s() - before
    log, began = f"{line}\n".encode() * 200_000, time.thread_time()
    for _ in range(40):  # as many as there are known causes
        log.lower()
    # Matching every line against each of them takes fifty times as long.
    assert spent < 10 * (time.thread_time() - began)


def test_retry_event_has_the_original_exit_code(cluster: Cluster, name: str) -> None:
    assert cluster.run(job(name, "exit 7", jobRetryCount=1))["state"] == "FAILED"
    messages = [event["message"] for event in cluster.events(name) if event["reason"] == "Retrying"]
    assert messages and all("ended with exit code 7:" in message for message in messages)


def test_counted_retries_back_off_so_that_a_service_is_not_a_loop(cluster: Cluster, name: str) -> None:
    cluster.accept(job(name, "exit 1", jobRetryCount=100))
    messages = eventually(
        lambda: [found for found in _retries(cluster, name) if "retry 3 of 100" in found], "the third retry"
    )
    assert messages == ["Attempt 3 ended with exit code 1: retry 3 of 100; it starts in 2 s."]
    first, second = (
        next(message for message in _retries(cluster, name) if f"retry {n} of" in message) for n in (1, 2)
    )
    assert first == "Attempt 1 ended with exit code 1: retry 1 of 100."
    assert second == "Attempt 2 ended with exit code 1: retry 2 of 100; it starts in 1 s."
    ends = [cluster.detail(name, attempt)["jobStatus"]["appCompletedTime"] for attempt in (1, 2)]
    assert ends[1] - ends[0] >= 1000
    cluster.stop(name)
    assert cluster.wait_over(name)["state"] == "STOPPED"


def _retries(cluster: Cluster, name: str) -> list[str]:
    return [event["message"] for event in cluster.events(name) if event["reason"] == "Retrying"]
