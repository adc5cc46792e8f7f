"""Pending queue: first come, first served; unschedulable jobs do not block others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.server_fixture import Cluster, eventually, job


def gate(path: Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.02; done"


def reason_of(cluster: Cluster, name: str) -> str:
    events: list[dict[str, Any]] = eventually(lambda: cluster.events(name), "an event")
    assert events[0]["reason"] == "FailedScheduling"
    return str(events[0]["message"])


def test_later_jobs_do_not_delay_a_blocked_one(own_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = own_cluster("--cpus", "2", "--memory-mb", "1000", "--gpus", "0")
    cluster.accept(job("first", gate(tmp_path / "open")))
    cluster.wait_state("first", "RUNNING")
    cluster.accept(job("large", "true", cpu=2))
    cluster.accept(job("small", "true"))
    cluster.accept(job("impossible", "true", cpu=3))
    cluster.accept(job("other", "true"))
    assert reason_of(cluster, "large") == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "A task asks for 2 cores; no node has more than 1 core free."
    )
    assert [cluster.status(name)["state"] for name in ("large", "small", "other")] == ["WAITING"] * 3
    (tmp_path / "open").touch()
    launched = []
    for name in ("first", "large", "small", "other"):
        status = cluster.wait_over(name)
        assert status["state"] == "SUCCEEDED"
        launched.append(status["launchedTime"])
    assert launched[:3] == sorted(launched[:3])
    assert launched[1] <= launched[3]
    assert cluster.status("impossible")["state"] == "WAITING"


def test_unschedulable_jobs_stay_pending_with_a_reason(
    own_cluster: Callable[..., Cluster],
) -> None:
    cluster = own_cluster("--cpus", "2", "--memory-mb", "1000", "--gpus", "1")
    cluster.accept(job("cores", "true", cpu=3))
    cluster.accept(job("memory", "true", memory_mb=2000))
    cluster.accept(job("gpus", "true", gpu=2))
    cluster.accept(job("gang", "true", instances=3))
    for number in range(3):
        assert cluster.run(job(f"fits-{number}", "true", cpu=2, gpu=1))["state"] == "SUCCEEDED"
    assert reason_of(cluster, "cores") == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "The job asks for 3 cores; the virtual cluster default has at most 2 cores."
    )
    assert reason_of(cluster, "memory") == (
        "0/1 nodes are available: 1 Insufficient memory. "
        "The job asks for 2000 MB of memory; the virtual cluster default has at most 1000 MB of memory."
    )
    assert reason_of(cluster, "gpus") == (
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. "
        "The job asks for 2 GPUs; the virtual cluster default has at most 1 GPU."
    )
    assert reason_of(cluster, "gang") == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "The job asks for 3 cores; the virtual cluster default has at most 2 cores."
    )
    for name in ("cores", "memory", "gpus", "gang"):
        status = cluster.status(name)
        assert (status["state"], status["subState"]) == ("WAITING", "AttemptCreationPending")
        assert len(cluster.events(name)) == 1
    cluster.kill()
    cluster.start("--cpus", "4")
    assert cluster.wait_over("cores")["state"] == "SUCCEEDED"
    assert cluster.wait_over("gang")["state"] == "SUCCEEDED"
    assert cluster.status("memory")["state"] == "WAITING"


def test_gpu_is_allocated_to_one_task_at_a_time(own_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = own_cluster("--cpus", "8", "--memory-mb", "1000", "--gpus", "4")
    show = "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES"
    cluster.accept(job("pair", show, gate(tmp_path / "open"), gpu=1, instances=2))
    cluster.accept(job("double", show, gate(tmp_path / "open"), gpu=2))
    cluster.accept(job("late", show, gpu=1))
    for name in ("pair", "double"):
        cluster.wait_state(name, "RUNNING")
    assert cluster.status("late")["state"] == "WAITING"
    (tmp_path / "open").touch()
    for name in ("pair", "double", "late"):
        assert cluster.wait_over(name)["state"] == "SUCCEEDED"
    lines = [cluster.log_of("pair", index=index) for index in (0, 1)] + [cluster.log_of("double")]
    gpus = []
    for line in lines:
        cuda, nvidia = line.split()
        assert cuda == nvidia
        gpus += cuda.split(b",")
    assert sorted(gpus) == [b"0", b"1", b"2", b"3"]


def test_pending_jobs_run_in_submission_order(own_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = own_cluster("--cpus", "1", "--memory-mb", "1000")
    order = tmp_path / "order"
    names = [f"turn-{number}" for number in range(30)]
    for name in names:
        cluster.accept(job(name, f"echo {name} >> {order}"))
    for name in names:
        assert cluster.wait_over(name)["state"] == "SUCCEEDED"
    assert order.read_text().split() == names


def test_pending_job_can_be_stopped_at_any_position(
    own_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = own_cluster("--cpus", "1", "--memory-mb", "1000")
    cluster.accept(job("holds", gate(tmp_path / "open")))
    names = [f"queued-{number}" for number in range(25)]
    for name in names:
        cluster.accept(job(name, "true"))
    for name in (names[-1], names[0], names[12]):
        cluster.stop(name)
        assert cluster.wait_over(name)["state"] == "STOPPED"
    (tmp_path / "open").touch()
    states = [cluster.wait_over(name)["state"] for name in names]
    assert states.count("SUCCEEDED") == 22


def test_no_pending_reason_while_other_tasks_of_the_array_run(
    own_cluster: Callable[..., Cluster],
) -> None:
    cluster = own_cluster("--cpus", "1", "--memory-mb", "1000", "--gpus", "0")
    cluster.accept(job("array", "true", instances=3, extras={"gangAllocation": False}))
    assert cluster.wait_over("array")["state"] == "SUCCEEDED"
    assert "FailedScheduling" not in [event["reason"] for event in cluster.events("array")]
