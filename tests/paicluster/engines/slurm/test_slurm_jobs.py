"""Jobs from submission to end, on a real Slurm."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openpaisdk.jobs.job_options import JobOptions
from openpaisdk.jobs.pre_commands import PreCommands
from support.server_fixture import Cluster, job, role
from support.slurm_cluster import RealSlurm, eventually
from support.slurm_jobs import events, make, over_slurm, says
from support.small_disk import fill, mounted

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("slurm-jobs")]


@pytest.fixture(autouse=True)
def restored(slurm: RealSlurm) -> Iterator[None]:
    yield
    slurm.ask("scancel", "-u", "root")


def tasks_of(cluster: Cluster, name: str) -> dict[str, list[dict[str, Any]]]:
    roles = cluster.detail(name)["taskRoles"]
    return {role: found["taskStatuses"] for role, found in roles.items()}


def test_job_runs_and_its_log_is_readable(cluster: Cluster, slurm: RealSlurm) -> None:
    status = cluster.run(over_slurm("hello", "echo hello from $SLURMD_NODENAME, task $PAI_TASK_INDEX"))
    assert status["state"] == "SUCCEEDED"
    (task,) = tasks_of(cluster, "hello")["main"]
    assert task["containerNodeName"] in slurm.nodes
    assert cluster.log_of("hello").decode() == f"hello from {task['containerNodeName']}, task 0\n"
    assert task["containerIp"] == "127.0.0.1"


def test_other_virtual_cluster_uses_the_local_engine(cluster: Cluster, slurm: RealSlurm) -> None:
    assert cluster.run(job("beside", "echo here"))["state"] == "SUCCEEDED"
    (task,) = tasks_of(cluster, "beside")["main"]
    assert task["containerNodeName"] not in slurm.nodes


def test_failed_job_has_its_exit_code(cluster: Cluster) -> None:
    status = cluster.run(over_slurm("fails", "echo no >&2; exit 3"))
    assert status["state"] == "FAILED"
    assert cluster.log_of("fails") == b"no\n"


def test_selected_python(cluster: Cluster) -> None:
    # It starts what it is given.
    python = PreCommands(JobOptions("job", [], python="/usr/bin/env")).pre_commands()
    assert cluster.run(over_slurm("selected", *python, "python echo one; python3 echo two"))["state"] == (
        "SUCCEEDED"
    )
    assert cluster.log_of("selected") == b"one\ntwo\n"
    missing = PreCommands(JobOptions("job", [], python="/none/python")).pre_commands()
    status = cluster.run(over_slurm("not-there", *missing, "true"))
    assert (status["state"], status["appExitCode"]) == ("FAILED", 248)


def test_usage_of_tasks_on_two_nodes_is_measured(cluster: Cluster) -> None:
    """What `pai top JOB` and the plots show."""
    cluster.submit(over_slurm("measured", "while :; do :; done", instances=2, cpu=2))
    cluster.wait_state("measured", "RUNNING")

    def usage() -> dict[str, Any]:
        found: dict[str, Any] = cluster.get(cluster.path("measured", "/usage")).json()
        return found

    def is_measured() -> bool:
        found = usage()
        cores = [task["cpu"] for task in found["tasks"]]
        return len(cores) == 2 and min(cores) > 0.1 and bool(found["series"]["times"])

    eventually(is_measured, "usage of both tasks")
    placed = {task["containerNodeName"] for task in tasks_of(cluster, "measured")["main"]}
    assert {task["node"] for task in usage()["tasks"]} == placed
    cluster.stop("measured")
    cluster.wait_over("measured")


def test_two_roles_share_one_allocation(cluster: Cluster) -> None:
    two = over_slurm("two-roles", 'echo "$PAI_HOST_IP_worker_1:$PAI_PORT_LIST_worker_1_http"')
    two["taskRoles"] = {
        "chief": role(
            'echo "chief sees $PAI_HOST_IP_worker_1:$PAI_PORT_LIST_worker_1_http"',
            'echo "at $MASTER_ADDR:$MASTER_PORT"',
            cpu=1,
            ports={"http": 1},
        ),
        "worker": role(
            'echo "worker $PAI_TASK_INDEX has $PAI_CONTAINER_HOST_http_PORT_LIST of $WORLD_SIZE"',
            instances=2,
            cpu=2,
            memory_mb=50,
            ports={"http": 1},
            completion={"minSucceededInstances": 2},
        ),
    }
    two["taskRoles"]["chief"]["completion"] = {"minSucceededInstances": -1}
    assert cluster.run(two)["state"] == "SUCCEEDED"
    tasks = tasks_of(cluster, "two-roles")
    port = tasks["worker"][1]["containerPorts"]["http"]
    chief = tasks["chief"][0]["containerPorts"]["http"]
    said = cluster.log_of("two-roles", role="chief").decode()
    assert said == f"chief sees 127.0.0.1:{port}\nat 127.0.0.1:{chief}\n"
    assert f"worker 1 has {port} of 3" in cluster.log_of("two-roles", role="worker", index=1).decode()


def test_task_sees_only_its_gpus(cluster: Cluster, slurm: RealSlurm) -> None:
    look = f"for n in 0 1 2 3; do (: < {slurm.folder}/dev/gpu$n) 2>&1 | grep -c 'not permitted' || true; done"
    status = cluster.run(over_slurm("gpus", 'echo "devices $CUDA_VISIBLE_DEVICES"', look, gpu=2))
    assert status["state"] == "SUCCEEDED"
    said = cluster.log_of("gpus").decode().split("\n")
    assert said[0] == "devices 0,1"
    if slurm.cgroups:
        # Other devices are forbidden; its own merely does not exist.
        assert said[1:5].count("1") == 2


def test_out_of_memory_is_distinguished(cluster: Cluster, slurm: RealSlurm) -> None:
    if not slurm.cgroups:
        pytest.skip("Slurm cannot hold tasks to their memory here")
    greedy = 'python3 -c "b = bytearray(400 << 20); print(len(b))"'
    status = cluster.run(over_slurm("greedy", greedy, memory_mb=64))
    assert (status["state"], status["appExitCode"]) == ("FAILED", -1200)


def test_jobs_time_limit_ends_it(cluster: Cluster) -> None:
    long = over_slurm("timed", "sleep 60", extras={"openpaisdk": {"timeLimit": 1}})
    status = cluster.run(long)
    assert (status["state"], status["appExitCode"]) == ("FAILED", -1004)


def test_stopped_job_can_handle_sigterm(cluster: Cluster) -> None:
    name = cluster.accept(over_slurm("stopped", "trap 'echo bye; exit 1' TERM; echo up; sleep 60 & wait"))
    eventually(lambda: b"up" in cluster.log_of(name), "its first words")
    cluster.stop(name)
    assert cluster.wait_over(name)["state"] == "STOPPED"
    assert cluster.log_of(name) == b"up\nbye\n"


def test_stop_ends_all_tasks_of_a_gang(cluster: Cluster, slurm: RealSlurm) -> None:
    name = cluster.accept(over_slurm("gang", "echo up; exec sleep 60", instances=3))
    cluster.wait_state(name, "RUNNING")
    cluster.stop(name)
    assert cluster.wait_over(name)["state"] == "STOPPED"
    eventually(lambda: not slurm.jobs(), "the end of the allocation")


def test_pending_job_has_a_reason_and_can_be_stopped(cluster: Cluster, slurm: RealSlurm) -> None:
    blocker = slurm.ask(
        "sbatch", "--parsable", "-N3", "--exclusive", "-o/dev/null", "--wrap=sleep 100"
    ).strip()
    name = cluster.accept(over_slurm("waits", "true"))
    says(cluster, name, "(Resources)")
    assert cluster.status(name)["state"] == "WAITING"
    cluster.stop(name)
    assert cluster.wait_over(name)["state"] == "STOPPED"
    eventually(lambda: slurm.jobs() == [blocker], "its removal from Slurm's queue")


def test_unschedulable_job_stays_pending_with_a_reason(cluster: Cluster) -> None:
    name = cluster.accept(over_slurm("huge", "true", gpu=9))
    says(cluster, name, "configuration is not available")
    assert cluster.status(name)["state"] == "WAITING"
    cluster.stop(name)
    assert cluster.wait_over(name)["state"] == "STOPPED"


def test_sbatch_options_are_passed_on(cluster: Cluster, slurm: RealSlurm) -> None:
    options = [f"--nodelist={slurm.nodes[2]}", "--nice=7"]
    wanted = over_slurm("placed", "true", extras={"openpaisdk": {"slurm": options}})
    assert cluster.run(wanted)["state"] == "SUCCEEDED"
    assert tasks_of(cluster, "placed")["main"][0]["containerNodeName"] == slurm.nodes[2]
    wrong = over_slurm("wrong", "true", extras={"openpaisdk": {"slurm": ["--no-such-option=1"]}})
    status = cluster.run(wrong)
    assert (status["state"], status["appExitCode"]) == ("FAILED", -200)
    says(cluster, "wrong", "no-such-option")


def test_reserved_sbatch_options_are_rejected(cluster: Cluster) -> None:
    status = cluster.run(over_slurm("sly", "id", extras={"openpaisdk": {"slurm": ["--uid=0"]}}))
    assert status["state"] == "FAILED"
    says(cluster, "sly", "is reserved for the cluster")


def test_tasks_without_gang_are_separate_allocations(cluster: Cluster) -> None:
    array = over_slurm(
        "array",
        'echo "task $PAI_TASK_INDEX"',
        instances=3,
        extras={"gangAllocation": False, "openpaisdk": {"arrayLimit": 2}},
    )
    assert cluster.run(array)["state"] == "SUCCEEDED"
    assert [cluster.log_of("array", index=n) for n in range(3)] == [b"task %d\n" % n for n in range(3)]


def test_preempted_job_is_retried(cluster: Cluster, slurm: RealSlurm) -> None:
    """A job of a partition with a higher tier takes the nodes."""
    name = cluster.accept(over_slurm("guest", "echo up; exec sleep 5", vc="low"))
    cluster.wait_state(name, "RUNNING")
    eventually(lambda: b"up" in cluster.log_of(name), "its first words")
    slurm.ask("sbatch", "-p", "main", "-N3", "--exclusive", "-o/dev/null", "--wrap=sleep 3")
    eventually(lambda: cluster.status(name)["retries"] == 1, "another attempt")
    assert "give way" in events(cluster, name) or "-1003" in events(cluster, name)
    cluster.stop(name)
    cluster.wait_over(name)


def test_job_cancelled_in_slurm_is_stopped(cluster: Cluster, slurm: RealSlurm) -> None:
    name = cluster.accept(over_slurm("cancelled", "echo up; exec sleep 60"))
    cluster.wait_state(name, "RUNNING")
    slurm.ask("scancel", *slurm.jobs())
    over = cluster.wait_over(name)
    assert (over["state"], over["retries"]) == ("STOPPED", 0)


# -- failures -----------------------------------------------------------------------------------------


@pytest.fixture
def own(slurm: RealSlurm, tmp_path: Path) -> Iterator[Callable[[], Cluster]]:
    made: list[Cluster] = []

    def start() -> Cluster:
        made.append(make(tmp_path / f"own{len(made)}", slurm, impatient=True))
        return made[-1].start()

    yield start
    for one in made:
        one.close()


def test_killed_server_loses_nothing_and_runs_nothing_twice(
    own: Callable[[], Cluster], tmp_path: Path
) -> None:
    cluster = own()
    ran, go = tmp_path / "ran", tmp_path / "go"
    wait = f"until [ -e {go} ]; do sleep 0.05; done"
    for number in range(6):
        cluster.accept(over_slurm(f"j{number}", f"echo {number} >> {ran}", wait, instances=1 + number % 2))
    cluster.kill()
    cluster.start()
    cluster.wait_state("j0", "RUNNING")
    cluster.kill()
    go.touch()
    cluster.start()
    for number in range(6):
        assert cluster.wait_over(f"j{number}")["state"] == "SUCCEEDED"
    assert sorted(ran.read_text().split()) == sorted("011233455")


def test_slurmctld_down_delays_submissions_but_not_running_jobs(
    own: Callable[[], Cluster], slurm: RealSlurm, tmp_path: Path
) -> None:
    cluster = own()
    go = tmp_path / "go"
    cluster.accept(over_slurm("running", f"until [ -e {go} ]; do sleep 0.05; done"))
    cluster.wait_state("running", "RUNNING")
    # Stopped cleanly: slurmctld's unsaved state is not the subject of this test.
    slurm.kill_controller(signal.SIGTERM)
    try:
        cluster.accept(over_slurm("late", "echo at last"))
        go.touch()
        assert cluster.wait_over("running")["state"] == "SUCCEEDED"
        says(cluster, "late", "does not respond")
        assert cluster.status("late")["state"] == "WAITING"
    finally:
        slurm.start_controller()
    eventually(lambda: cluster.status("late")["state"] == "SUCCEEDED", "its turn")
    assert cluster.log_of("late") == b"at last\n"
    slurm.wait_idle()


def test_pending_reason_is_updated(own: Callable[[], Cluster], slurm: RealSlurm) -> None:
    """Reports that slurmctld is down, and Slurm's reason again when it is back."""
    cluster = own()
    held = over_slurm("held", "true", extras={"openpaisdk": {"slurm": ["--hold"]}})
    cluster.accept(held)

    def reasons() -> dict[str, str]:
        listed = cluster.get("/api/v2/jobs?state=WAITING&reasons=true").json()
        return {one["name"]: one["reason"] or "" for one in listed}

    def waits_for(name: str, words: str) -> None:
        eventually(lambda: words in reasons().get(name, ""), f"{words!r} as the reason of {name}")

    waits_for("held", "is held in Slurm")
    slurm.kill_controller(signal.SIGTERM)
    try:
        cluster.accept(over_slurm("late", "true"))
        for name in ("held", "late"):
            waits_for(name, "does not respond")
    finally:
        slurm.start_controller()
    waits_for("held", "is held in Slurm")
    cluster.stop("held")
    cluster.wait_over("held")
    eventually(lambda: cluster.status("late")["state"] == "SUCCEEDED", "its turn")
    slurm.wait_idle()


def test_node_failure_is_retried_without_counting(
    own: Callable[[], Cluster], slurm: RealSlurm, tmp_path: Path
) -> None:
    cluster = own()
    go = tmp_path / "go"
    pinned = over_slurm("pinned", "echo up", f"until [ -e {go} ]; do sleep 0.05; done")
    pinned["extras"] = {"openpaisdk": {"slurm": [f"--exclude={slurm.nodes[2]}"]}}
    name = cluster.accept(pinned)
    cluster.wait_state(name, "RUNNING")
    node = tasks_of(cluster, name)["main"][0]["containerNodeName"]
    slurm.kill_node(node)
    try:
        eventually(lambda: cluster.status(name)["retries"] == 1, "another attempt")
        go.touch()
        status = cluster.wait_over(name)
        assert status["state"] == "SUCCEEDED"
        assert status["retryDetails"]["user"] == 0
        assert "machine that ran the task failed" in events(cluster, name)
    finally:
        slurm.start_node(node)
        slurm.wait_idle()


def test_stop_of_a_job_whose_node_failed_leaves_nothing(
    own: Callable[[], Cluster], slurm: RealSlurm, tmp_path: Path
) -> None:
    """Of the killed node neither its tasks go on, nor what these started in sessions of their own."""
    cluster = own()
    pids = tmp_path / "pids"
    daemon = f"setsid sh -c 'echo $$ >> {pids}; exec sleep 600' &"
    name = cluster.accept(over_slurm("cut", daemon, f"echo $$ >> {pids}", "sleep 600"))
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2, "both processes")
    cluster.wait_state(name, "RUNNING")
    node = tasks_of(cluster, name)["main"][0]["containerNodeName"]
    started = pids.read_text().split()
    slurm.kill_node(node)
    try:
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "the end of both")
        cluster.stop(name)
        status = cluster.wait_over(name)
        assert (status["state"], status["appExitCode"]) == ("STOPPED", -210)
        eventually(lambda: "sleep" not in " ".join(cluster.processes().values()), "the end of all processes")
    finally:
        slurm.start_node(node)
        slurm.wait_idle()


def test_slurms_time_limit_is_distinguished(cluster: Cluster, slurm: RealSlurm) -> None:
    """Time limits are in minutes, so the test sets an earlier end as administrator."""
    name = cluster.accept(over_slurm("overdue", "echo up; exec sleep 200", vc="short"))
    cluster.wait_state(name, "RUNNING")
    slurm.ask("scontrol", "update", f"job={slurm.jobs()[0]}", "EndTime=now+1")
    eventually(lambda: cluster.status(name)["state"] == "FAILED", "its end")
    assert cluster.status(name)["appExitCode"] == -1004


def test_full_shared_folder_delays_starts_and_stops_and_loses_nothing(
    slurm: RealSlurm, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    with mounted(tmp_path / "shared") as disk:
        cluster = make(tmp_path, slurm, impatient=True).start()
        try:
            go = tmp_path / "go"
            cluster.accept(over_slurm("runs", f"until [ -e {go} ]; do sleep 0.05; done; exit 7"))
            cluster.wait_state("runs", "RUNNING")
            filler = fill(disk)
            for name in ("late", "stopped"):
                cluster.accept(over_slurm(name, "echo at last"))
                says(cluster, name, "could not be written: No space left on device")
            cluster.stop("stopped")
            eventually(lambda: "could not be asked to stop" in cluster.log.read_text(), "the stop")
            before = cluster.log.read_text().count("\n")
            go.touch()
            assert cluster.wait_over("runs")["retries"] == 0
            # The stop is tried again from time to time, and logged once.
            assert cluster.log.read_text().count("\n") < before + 20
            filler.unlink()
            assert cluster.wait_over("stopped")["state"] == "STOPPED"
            assert cluster.wait_over("late")["state"] == "SUCCEEDED"
            assert cluster.log_of("late") == b"at last\n"
        finally:
            cluster.close()
