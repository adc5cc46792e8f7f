"""Command lines for Slurm and parsing of its output; needs no Slurm."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paicluster.engines.common import untrusted_files
from paicluster.engines.interface import LaunchFailed, Loss, Mount, Phase, Placeholders, TaskLaunch
from paicluster.engines.slurm import (
    container_command,
    detect_config,
    gang_folder,
    observe,
    runtime_archive,
    sbatch_command,
)
from paicluster.engines.slurm.gang_registry import SubmittedGang
from paicluster.engines.slurm.job_states import SlurmJob, pending_notice, read_jobs
from paicluster.engines.slurm.options import SlurmOptions, SlurmQueue, options_of
from paicluster.engines.slurm.queue_poller import QueuePoller
from paicluster.engines.slurm.slurm_commands import CommandResult, read_nodes
from paiprotocol.errors import ConfigError
from pairuntime.reports import placement
from pairuntime.slurm import allocation
from pairuntime.supervisor import claim, exit_record
from support.small_disk import fill, mounted

T = TypeVar("T")

FOLDER = Path("/shared/gangs/aa/aa")
OPTIONS = SlurmOptions(Path("/shared"))


def launch(uid: str = "uid", **fields: Any) -> TaskLaunch:
    return TaskLaunch(uid=uid, node="", script="true", environment={}, **fields)


def words(*gang: TaskLaunch, options: SlurmOptions = OPTIONS, **more: Any) -> list[str]:
    return sbatch_command.sbatch(gang, options, FOLDER, **more)


# -- submission ---------------------------------------------------------------------------------------


def test_single_task_requests_cores_memory_and_gpus() -> None:
    said = words(launch(cpu=4, memory_mb=1000, gpu_count=2, job="train", owner="ann"))
    assert said[0] == "sbatch"
    for wanted in ("--ntasks=1", "--cpus-per-task=4", "--mem=1032M", "--gres=gpu:2", "--nodes=1"):
        assert wanted in said
    assert {"--comment=pai:uid", "--no-requeue", "--job-name=ann~train"} <= set(said)
    assert said[-1] == str(FOLDER / "batch.sh")


def test_equal_tasks_form_one_component() -> None:
    said = words(
        launch("a", cpu=2, memory_mb=100), launch("b", cpu=2, memory_mb=100), launch("c", gpu_count=1)
    )
    first, second = " ".join(said).split(" : ")
    assert "--ntasks=2" in first and "--mem-per-cpu=82M" in first and "gpus" not in first
    assert "--ntasks=1" in second and "--gpus-per-task=1" in second
    # Both carry the comment that identifies them.
    assert first.count("--comment=pai:a") == second.count("--comment=pai:a") == 1


def test_virtual_cluster_sets_partition_account_and_qos() -> None:
    said = options_of(
        {"partition": "main", "qos": "normal", "clusters": {"lab": {"partition": "gpu", "account": "ai"}}},
        Path("/home"),
        "slurm",
    )
    assert said.queue_of("default") == SlurmQueue("main", "", "normal")
    assert said.queue_of("lab") == SlurmQueue("gpu", "ai", "normal")
    sent = words(launch(vc="lab"), options=said)
    assert {"--partition=gpu", "--account=ai", "--qos=normal"} <= set(sent)
    assert said.folder == Path("/home/slurm")


def test_slurms_time_limit_exceeds_the_tasks() -> None:
    assert "--time=62" in words(launch(time_limit_s=3600))
    assert not any(word.startswith("--time") for word in words(launch()))


def test_gpu_type_is_used_in_gres_and_gpus_per_task() -> None:
    some = dataclasses.replace(OPTIONS, gres="gpu:a100")
    assert "--gres=gpu:a100:2" in words(launch(gpu_count=2), options=some)
    two = (launch("a", gpu_count=2), launch("b", gpu_count=2))
    assert "--gpus-per-task=a100:2" in words(*two, options=some)


def test_job_options_come_before_the_clusters_own() -> None:
    said = words(launch(options={"slurm": ("--constraint=a100", "--mem=0")}), account=(1000, 1001))
    assert said.index("--constraint=a100") < said.index("--comment=pai:uid")
    assert {"--uid=1000", "--gid=1001"} <= set(said)


@pytest.mark.parametrize(
    "word",
    [
        "--uid=0",
        "--ui=0",
        "--gid=1",
        "--array=1-9",
        "-a1",
        "--wrap=id",
        "--comment=x",
        "-o/x",
        "id",
        ":",
        "--",
    ],
)
def test_reserved_options_are_rejected(word: str) -> None:
    with pytest.raises(LaunchFailed) as refused:
        words(launch(options={"slurm": (word,)}))
    assert not refused.value.transient


@pytest.mark.parametrize("word", ["--partition=gpu", "--part=gpu", "--qos=high", "--constraint=v100"])
def test_options_set_by_the_virtual_cluster_are_rejected(word: str) -> None:
    lab = SlurmQueue("main", qos="normal", options=("--constraint=a100",))
    options = dataclasses.replace(OPTIONS, queues={"lab": lab})
    with pytest.raises(
        LaunchFailed, match=r"virtual cluster lab: --(partition=main|qos=normal|constraint=a100)"
    ):
        words(launch(vc="lab", options={"slurm": (word,)}), options=options)
    assert word in words(launch(options={"slurm": (word,)}), options=options)


@pytest.mark.parametrize("word", ["--mem=2G", "--gres=gpu:1", "--time=10"])
def test_full_option_name_is_no_abbreviation(word: str) -> None:
    lab = SlurmQueue(options=("--mem-bind=local", "--gres-flags=enforce-binding", "--time-min=5"))
    options = dataclasses.replace(OPTIONS, queues={"lab": lab})
    assert word in words(launch(vc="lab", options={"slurm": (word,)}), options=options)


@given(st.text(max_size=300), st.text(max_size=50))
def test_job_name_cannot_become_an_option(job: str, owner: str) -> None:
    names = [word for word in words(launch(job=job, owner=owner)) if word.startswith("--job-name=")]
    assert len(names) == 1 and " " not in names[0] and len(names[0]) < 250


# -- images -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "first", "mounted", "gpus", "image"),
    [
        (
            "podman",
            ["podman", "--log-level=error", "run"],
            "--volume=/data:/mnt:ro",
            "--device=nvidia.com/gpu=all",
            "tf:2",
        ),
        ("apptainer", ["apptainer", "exec"], "--bind=/data:/mnt:ro", "--nv", "docker://tf:2"),
        ("enroot", ["enroot", "start"], "--mount=/data:/mnt:ro", None, "tf:2"),
    ],
)
def test_image_is_run_by_the_configured_client(
    kind: str, first: list[str], mounted: str, gpus: str | None, image: str
) -> None:
    one = launch(image="tf:2", gpu_count=1, mounts=(Mount(Path("/data"), "/mnt", read_only=True),))
    options = dataclasses.replace(OPTIONS, container=kind)
    said = container_command.program(one, options, Path("/t/task.sh"), Path("/t/work"), [Path("/t")])
    assert said[: len(first)] == first and mounted in said and image in said
    assert gpus is None or gpus in said
    assert "/t/task.sh" in said[-2:]


def test_warnings_of_podman_are_no_part_of_a_log_unless_configured() -> None:
    """podman 5 warns at each of its calls on a node with cgroups v1."""
    one = launch(image="tf:2")
    for own, first in (
        ((), ["podman", "--log-level=error"]),
        (("sudo", "podman"), ["sudo", "podman", "--log-level=error"]),
        (("podman", "--log-level", "debug"), ["podman", "--log-level", "debug"]),
        (("podman", "--log-level=info"), ["podman", "--log-level=info"]),
    ):
        options = dataclasses.replace(OPTIONS, container="podman", container_command=own)
        calls = {
            "run": container_command.program(one, options, Path("/t/task.sh"), Path("/t/work"), []),
            "exec": container_command.exec_prefix(one, options, Path("/t/work")),
            "rm": container_command.cleanup(one, options),
        }
        for verb, words in calls.items():
            assert words[: len(first) + 1] == [*first, verb]


def test_enroot_gets_variable_names_and_working_folder() -> None:
    options = dataclasses.replace(OPTIONS, container="enroot")
    one = launch(image="tf.sqsh")
    said = container_command.program(
        one, options, Path("/t/task.sh"), Path("/t/work"), [Path("/t")], {"A": "secret"}
    )
    assert "--env=A" in said and "--env=SLURM_PROCID" in said and "secret" not in " ".join(said)
    assert said[-2:] == ["/t/task.sh", "/t/work"] and said[-3].startswith('cd "$1"')
    assert said.index("tf.sqsh") < said.index("sh")


def test_container_gets_slurms_gpus_and_the_nodes_client_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_GPUS", "2,5")
    one = launch(image="tf:2", gpu_count=2)
    options = dataclasses.replace(OPTIONS, container="podman")
    argv = container_command.program(one, options, tmp_path / "task.sh", tmp_path, [])
    spec = {"argv": argv, "env": {"PATH": "/nowhere"}, "cleanup": container_command.cleanup(one, options)}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    settled = allocation.apply_placement(
        str(tmp_path), {"node": "n1", "ip": "1.1.1.1", "ports": {}, "gpus": "0,1"}, {}
    )
    assert settled == json.loads((tmp_path / "spec.json").read_text())
    assert settled["argv"][0] == settled["cleanup"][0] == str(program)
    devices = [word for word in settled["argv"] if word.startswith("--device=")]
    assert devices == ["--device=nvidia.com/gpu=2", "--device=nvidia.com/gpu=5"]
    assert settled["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize("image", ["--privileged", "-v/:/host", "tf\n:2"])
def test_image_name_cannot_become_an_option(image: str) -> None:
    with pytest.raises(LaunchFailed, match="not a valid image name") as refused:
        words(launch(image=image))
    assert not refused.value.transient


def test_without_container_client_a_task_runs_on_the_host() -> None:
    said = container_command.program(launch(image="tf:2"), OPTIONS, Path("/t/task.sh"), Path("/t/work"), [])
    assert said[0] == "/bin/sh"


# -- output -------------------------------------------------------------------------------------------


def test_jobs_are_identified_by_comment_and_components_merged() -> None:
    found = read_jobs(
        [
            "w|7|RUNNING|None|n1|5|0:00|pai:one",
            "w|8+0|PENDING|Resources||5|0:00|pai:two",
            "w|8+1|PENDING|Priority||5|0:00|pai:two",
            "w|9|RUNNING|None|n2|5|0:00|somebody's | own words",
            "w|10|PENDING|(null)||5|0:00|(null)",
            "nonsense",
        ],
        "w",
    )
    assert found == {
        "one": [SlurmJob("7", "RUNNING", "None", "n1", 5)],
        "two": [SlurmJob("8", "PENDING", "Resources", "", 5)],
    }


def test_worst_component_state_counts() -> None:
    (job,) = read_jobs(["w|8+0|COMPLETED|None|n1|5|0:00|pai:a", "w|8+1|NODE_FAIL|None|n2|5|0:00|pai:a"], "w")[
        "a"
    ]
    assert job.is_over and job.loss is Loss.NODE
    (job,) = read_jobs(["w|8+0|COMPLETED|None|n1|5|0:00|pai:a", "w|8+1|RUNNING|None|n2|5|0:00|pai:a"], "w")[
        "a"
    ]
    assert not job.is_over


@pytest.mark.parametrize(
    ("state", "nodes", "used", "may_have_failed"),
    [
        ("CANCELLED", "n1", "0:00", True),
        ("CANCELLED", "n1", "1:00", True),
        ("CANCELLED", "n1", "1:01", False),
        ("CANCELLED", "n1", "1:00:05", False),
        ("CANCELLED", "n1", "2-00:00:00", False),
        # A cancelled job of the queue, and ends that have reasons of their own.
        ("CANCELLED", "", "0:00", False),
        ("NODE_FAIL", "n1", "0:00", False),
    ],
)
def test_job_that_its_node_may_have_cancelled(
    state: str, nodes: str, used: str, may_have_failed: bool
) -> None:
    (job,) = read_jobs([f"w|7|{state}|None|{nodes}|5|{used}|pai:a"], "w")["a"]
    assert job.may_have_failed_to_launch == may_have_failed


def test_pending_reasons_are_explained_with_slurms_name() -> None:
    known = pending_notice(SlurmJob("1", "PENDING", "Resources"))
    assert known is not None and known.message.endswith("(Resources)") and known.reason == "FailedScheduling"
    other = pending_notice(SlurmJob("1", "PENDING", "QOSMaxJobsPerUserLimit"))
    assert other is not None and "QOSMaxJobsPerUserLimit" in other.message
    assert pending_notice(SlurmJob("1", "PENDING", "None")) is None
    assert pending_notice(SlurmJob("1", "RUNNING", "None")) is None


@pytest.mark.parametrize(
    ("said", "down", "not_now"),
    [
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller",
            True,
            False,
        ),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", True, False),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            False,
            True,
        ),
        (
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: "
            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            False,
            True,
        ),
        # A connection that broke while it was submitted: Slurm may have the job.
        (
            "sbatch: error: slurm_msg_sendto: address:port=127.0.0.1:6817 msg_type=4003: Unexpected missing "
            "socket error\nsbatch: error: Batch job submission failed: Unexpected missing socket error",
            True,
            False,
        ),
        ("sbatch: error: Batch job submission failed: Communication shutdown failure", True, False),
        # What slurmctld itself cannot do for the moment.
        (
            "sbatch: error: Batch job submission failed: I/O error writing script/environment to file",
            False,
            True,
        ),
        ("sbatch: error: Batch job submission failed: Error generating job credential", False, True),
        ("sbatch: unrecognized option '--no-such'", False, False),
        ("sbatch: error: invalid partition specified: nope", False, False),
    ],
)
def test_unavailable_retryable_and_invalid_are_distinguished(said: str, down: bool, not_now: bool) -> None:
    answer = CommandResult(1, "", said)
    assert (answer.is_unavailable, answer.is_retryable) == (down, not_now)
    assert "error:" not in answer.error_text


@pytest.mark.parametrize(
    "answer",
    [
        CommandResult(-9, "", ""),
        CommandResult(1, "", ""),
        CommandResult(124, "", "late"),
        CommandResult(127, "", "no"),
    ],
)
def test_silent_failure_counts_as_unavailable(answer: CommandResult) -> None:
    """The queue is checked before a resubmission, and it never counts as a rejection."""
    assert answer.is_unavailable and not answer.is_retryable


def test_down_nodes_are_not_listed_but_keep_their_address() -> None:
    nodes, addresses = read_nodes(
        [
            "NodeName=n1 CPUTot=8 RealMemory=1000 Gres=gpu:a100:2(S:0),gpu:v:1 NodeAddr=10.0.0.1 State=IDLE "
            "Reason=back with State=DOWN and CPUTot=0 cleared [root@2026-11-01T10:00:00]",
            "NodeName=n2 CPUTot=8 RealMemory=1000 Gres=(null) NodeAddr=10.0.0.2 State=DOWN*+DRAIN",
        ]
    )
    assert [(node.name, node.cpu, len(node.gpus)) for node in nodes] == [("n1", 8, 3)]
    assert addresses == {"n1": "10.0.0.1", "n2": "10.0.0.2"}


# -- detected configuration ---------------------------------------------------------------------------


def test_partitions_become_virtual_clusters_in_a_valid_file(tmp_path: Path) -> None:
    from paicluster.config import cluster_file as cluster_file
    from paicluster.config import template

    partitions = detect_config.read_partitions(
        [
            "PartitionName=main Default=YES TotalCPUs=64 TotalNodes=4 State=UP",
            "PartitionName=gpu-a100 Default=NO TotalCPUs=128 TotalNodes=2 State=UP",
            "PartitionName=old Default=NO TotalCPUs=1 TotalNodes=1 State=DOWN",
        ]
    )
    written = tmp_path / "cluster.yaml"
    written.write_text(template.cluster_file(written, *detect_config.sections("big", partitions, gpus=True)))
    settings = cluster_file.settings_of(cluster_file.load(written)).check()
    assert dict(settings.engine_of) == {"gpu_a100": "slurm"}
    options = options_of(settings.engines[0].options, tmp_path, "slurm")
    assert options.queue_of("default").partition == "main"
    assert options.queue_of("gpu_a100").partition == "gpu-a100"


def test_odd_partition_names_become_unique_virtual_clusters() -> None:
    names = ["main", "on", "7", "a-b", "a.b", "default"]
    engine, clusters = detect_config.sections(
        "test", [detect_config.Partition(name, name == "main", 1, 2) for name in names], gpus=False
    )
    said = yaml.safe_load(engine)["engine"]
    assert sorted(one["partition"] for one in said["clusters"].values()) == sorted(names[1:])
    assert set(yaml.safe_load("x:" + clusters)["x"]) == set(said["clusters"]) and len(said["clusters"]) == 5
    assert "default" not in said["clusters"]


def test_unknown_container_client_is_rejected() -> None:
    with pytest.raises(ConfigError, match="podman"):
        options_of({"container": "cage"}, Path("/"), "slurm")


# -- placements ---------------------------------------------------------------------------------------


def test_no_port_is_assigned_twice_on_one_node() -> None:
    tasks: list[dict[str, object]] = [
        {"ports": {"http": 2}},
        {"ports": {"http": 1, "ssh": 1}},
        {"ports": {"http": 2}},
    ]
    offers: list[dict[str, object]] = [
        {"node": "n1", "ip": "1.1.1.1", "ports": [5, 6, 7, 8], "gpus": ""},
        {"node": "n1", "ip": "1.1.1.1", "ports": [5, 6, 7, 8], "gpus": ""},
        {"node": "n2", "ip": "2.2.2.2", "ports": [5, 6], "gpus": ""},
    ]
    dealt = [one["ports"] for one in placement.assign_ports(offers, tasks)]
    assert dealt == [{"http": [5, 6]}, {"http": [7], "ssh": [8]}, {"http": [5, 6]}]
    with pytest.raises(RuntimeError, match="free ports"):
        placement.assign_ports([offers[2]] * 2, [tasks[2]] * 2)


@pytest.mark.parametrize("peers", [1, 40])
def test_only_placeholders_are_substituted(peers: int) -> None:
    known = {f"%pai.{n}.ip%": f"10.0.0.{n}" for n in range(peers)}
    assert (
        placement.substitute("a %pai.0.ip% %pai.0.ip% 100% %pai.other%", known)
        == "a 10.0.0.0 10.0.0.0 100% %pai.other%"
    )


def test_fast_json_behaves_like_json() -> None:
    program = (
        "from pairuntime import fast_imports; fast_imports.install(); import json, signal, sys;"
        "value = json.loads(sys.argv[1]); print(json.dumps(value)); print(int(signal.SIGTERM))"
    )
    value = {"a": [1, -2.5, None, True, "ä\n\"'\\ \U0001f600"], "b": {"c": {}, "d": []}, "": "x" * 5000}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(_SOURCE)!r}); {program}",
            json.dumps(value),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    written, rest = done.stdout.splitlines()
    assert json.loads(written) == value
    assert rest == "15"


_SOURCE = Path(placement.__file__).parents[2]


# -- observation --------------------------------------------------------------------------------------


def attempt(
    root: Path,
    state: str | None,
    *,
    claimed: bool,
    ended: dict[str, object] | None = None,
    left: bool = False,
    is_full: bool = False,
) -> Any:
    """Observation of an attempt from its folder and the state in Slurm; ``is_full``: its disk is."""
    home = gang_folder.SlurmFolders(root)
    one = launch("uid", placeholders=Placeholders("%pai.0.ip%", {}, "%pai.0.gpus%"))
    (root / "tasks").mkdir(parents=True, exist_ok=True)
    gang_folder.prepare(home, [one], OPTIONS, root / "x" / "runtime.pyz", {}, [], None)
    gang = SubmittedGang("uid", home.gang("uid"), ("uid",), "7", live={"uid"})
    path = home.task("uid")
    if claimed:
        (path / claim.NAME).write_text(json.dumps({"pid": 1, "claimed_ms": 5}))
    if ended is not None:
        (path / exit_record.NAME).write_text(json.dumps({"started_ms": 5, "ended_ms": 9, **ended}))
    if left:
        gang_folder.write_flag(gang.folder, gang_folder.CANCELLED_AS_STALE, "1")
    if state is not None:
        gang.update(SlurmJob("7", state))
    if not is_full:
        return observe.observe_attempt(home, "uid", gang, 0)
    filler = fill(root)
    try:
        return observe.observe_attempt(home, "uid", gang, 0)
    finally:
        filler.unlink()


def test_loss_of_an_attempt_is_final_once_there_is_space_for_it(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=1m") as disk:
        assert attempt(disk, "NODE_FAIL", claimed=False, is_full=True).phase is Phase.QUEUED
    assert attempt(tmp_path / "other", "NODE_FAIL", claimed=False).phase is Phase.LOST


def test_pending_gang_is_observed_as_queued(tmp_path: Path) -> None:
    assert attempt(tmp_path, "PENDING", claimed=False).phase is Phase.QUEUED
    assert attempt(tmp_path, None, claimed=False).phase is Phase.QUEUED


@pytest.mark.parametrize(
    ("state", "loss", "timed_out", "over_memory"),
    [
        ("NODE_FAIL", Loss.NODE, False, False),
        ("PREEMPTED", Loss.PREEMPTED, False, False),
        ("CANCELLED", Loss.WITHDRAWN, False, False),
        ("TIMEOUT", Loss.UNKNOWN, True, False),
        ("OUT_OF_MEMORY", Loss.UNKNOWN, False, True),
        ("FAILED", Loss.UNKNOWN, False, False),
    ],
)
@pytest.mark.parametrize("claimed", [True, False])
def test_loss_reasons_are_distinguished(
    tmp_path: Path, state: str, loss: Loss, timed_out: bool, over_memory: bool, claimed: bool
) -> None:
    seen = attempt(tmp_path, state, claimed=claimed)
    if loss is Loss.UNKNOWN and not claimed:
        loss = Loss.NOT_STARTED
    assert (seen.phase, seen.loss, seen.timed_out, seen.out_of_memory) == (
        Phase.LOST,
        loss,
        timed_out,
        over_memory,
    )


def test_attempt_ended_by_slurm_has_exit_code_and_reason(tmp_path: Path) -> None:
    record = {"exit_code": 3, "ended_by_slurm": True}
    seen = attempt(tmp_path / "a", "PREEMPTED", claimed=True, ended=record)
    assert (seen.phase, seen.exit_code, seen.loss) == (Phase.ENDED, 3, Loss.PREEMPTED)
    assert attempt(tmp_path / "b", "TIMEOUT", claimed=True, ended=record).timed_out
    # Slurm's reason is late, and the task ended long ago.
    assert attempt(tmp_path / "c", "RUNNING", claimed=True, ended=record).loss is Loss.CANCELLED


def test_stale_job_cancelled_by_the_server_is_cancelled_not_withdrawn(tmp_path: Path) -> None:
    """It was requeued manually and cancelled by the server: another attempt is allowed."""
    record = {"exit_code": 143, "ended_by_slurm": True}
    assert attempt(tmp_path / "a", "CANCELLED", claimed=True, ended=record).loss is Loss.WITHDRAWN
    assert attempt(tmp_path / "b", "CANCELLED", claimed=True, ended=record, left=True).loss is Loss.CANCELLED
    assert attempt(tmp_path / "c", "CANCELLED", claimed=True, left=True).loss is Loss.CANCELLED


async def test_job_that_just_started_is_not_cancelled_as_stale() -> None:
    """squeue ran before the job started and shows it as pending: only the second result counts."""
    cancelled: list[str] = []

    class Commands:
        async def cancel(self, job_ids: list[str]) -> bool:
            cancelled.extend(job_ids)
            return True

    class StaleGangs:
        def is_stale(self, uid: str, owner: int) -> bool:
            return True

        def mark_stale(self, uid: str) -> None:
            assert uid == "uid" and not cancelled

    async def at_once(work: Callable[[], T]) -> T:
        return work()

    poller = QueuePoller(
        OPTIONS, cast("Any", Commands()), cast("Any", StaleGangs()), lambda *_: None, lambda _: None, at_once
    )
    pending = {"uid": [SlurmJob("7", "PENDING")]}
    await poller._cancel_stale(pending)
    await poller._cancel_stale({"uid": [SlurmJob("7", "RUNNING")]})
    await poller._cancel_stale(pending)
    assert not cancelled
    await poller._cancel_stale(pending)
    assert cancelled == ["7"]


def test_exit_record_takes_precedence_over_slurm(tmp_path: Path) -> None:
    seen = attempt(tmp_path, "NODE_FAIL", claimed=True, ended={"exit_code": 0})
    assert (seen.phase, seen.exit_code, seen.loss) == (Phase.ENDED, 0, None)


def test_task_is_not_lost_while_its_folder_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that stalls after the exit record was looked for: the record is written meanwhile."""
    home = gang_folder.SlurmFolders(tmp_path)
    path = home.task("uid")
    path.mkdir(parents=True)
    (path / claim.NAME).write_text(json.dumps({"pid": 5, "claimed_ms": 1}))
    gang = SubmittedGang("uid", home.gang("uid"), ("uid",), "7", live={"uid"})
    gang.update(SlurmJob("7", "COMPLETED"))
    assert gang.finished_at is not None
    read_placement = untrusted_files.read_placement

    def stall(folder: Path) -> object:
        (path / exit_record.NAME).write_text(json.dumps({"exit_code": 0}))
        gang.finished_at = -1e6  # so long ago by now
        return read_placement(folder)

    with monkeypatch.context() as patch:
        patch.setattr(untrusted_files, "read_placement", stall)
        assert observe.observe_attempt(home, "uid", gang, 3.0).phase is Phase.RUNNING
    seen = observe.observe_attempt(home, "uid", gang, 3.0)
    assert (seen.phase, seen.exit_code) == (Phase.ENDED, 0)


def test_second_allocation_of_a_gang_exits_at_once(tmp_path: Path) -> None:
    """slurmctld may lose the state of a started job and start it again."""
    home = gang_folder.SlurmFolders(tmp_path)
    home.events.mkdir(parents=True)
    installed = runtime_archive.install(tmp_path / "runtime")
    ran = tmp_path / "ran"
    one = launch("uid", placeholders=Placeholders("%pai.0.ip%", {}, "%pai.0.gpus%"))
    one = dataclasses.replace(
        one, script=f"echo $SLURM_JOB_ID >> {ran}", environment={"PATH": "/usr/bin:/bin"}
    )
    gang_folder.prepare(home, [one], OPTIONS, installed, {"events": str(home.events)}, [], None)
    codes = []
    for number in ("1", "1", "2"):
        environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": number, "SLURMD_NODENAME": "localhost"}
        done = subprocess.run(
            ["sh", str(home.gang("uid") / "batch.sh")], env=environment, check=False, timeout=90
        )
        codes.append(done.returncode)
    assert codes == [0, 3, 3]
    assert ran.read_text() == "1\n"
    assert (home.events / "uid.ended").exists()
    seen = observe.observe_attempt(home, "uid", None, 0)
    assert seen.exit_code == 0 and seen.placement is not None and seen.placement.node == "localhost"


def test_consecutive_tasks_of_a_node_get_one_node() -> None:
    tasks = [launch(f"t{index}", tasks_per_node=3) for index in range(6)]
    expected = ["--nodes=2", "--ntasks-per-node=3", "--distribution=block"]
    (component,) = sbatch_command.components(tasks)
    assert set(expected) <= set(words(*tasks))
    assert sbatch_command.srun_options(component, 3)[-3:] == expected
    # Those that do not fill their nodes are placed as Slurm likes.
    assert "--ntasks-per-node=3" not in words(*tasks[:4])
