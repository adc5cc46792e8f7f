"""Jobs on nodes without a shared file system: everything goes over HTTP."""

from __future__ import annotations

import hashlib
import io
import os
import re
import signal
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paicluster.engines.slurm.engine import SlurmEngine
from paicluster.engines.slurm.options import SlurmOptions
from support import certificates
from support.cli_user import BIN
from support.ports import free_ports
from support.server_fixture import Cluster, SecureCluster, job, role
from support.slurm_cluster import RealSlurm, eventually, open_folder, running_slurm
from support.unix_users import CrewCluster, add_people, unix_accounts

pytestmark = [pytest.mark.slow, pytest.mark.service]

ALICE, BOB = (f"pai-{name}-{os.getpid()}" for name in ("una", "udo"))
_FILE = """
listen: {{external-url: "http://127.0.0.1:{port}"}}
engine:
  type: slurm
  folder: slurm
  shared: false
  node-folder: {base}/local
  # The nodes' folders are in memory here, and count as memory of the job.
  overhead-mb: 96
  partition: main
  file-lag: 0.5
  interval: 0.5
  steady-interval: 1
"""


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """The server's folder, hidden on every node by another one."""
    with open_folder("apart-") as folder:
        yield folder


@pytest.fixture(scope="module")
def apart(base: Path) -> Iterator[RealSlurm]:
    with running_slurm(view=('mount -t tmpfs none "$1"; mkdir -m 1777 "$1/local"', str(base))) as made:
        yield made


def make(base: Path, name: str, slurm: RealSlurm) -> Cluster:
    home = base / name
    home.mkdir()
    port = free_ports(1)[0]
    (home / "cluster.yaml").write_text(_FILE.format(port=port, base=base))
    # The same port after a restart: tasks have its address.
    return Cluster(home, ("--embedded", "--port", str(port)), variables={"SLURM_CONF": str(slurm.conf)})


@pytest.fixture(scope="module")
def cluster(base: Path, apart: RealSlurm) -> Iterator[Cluster]:
    running = make(base, "home", apart)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def own(base: Path, apart: RealSlurm) -> Iterator[Cluster]:
    """A server that the test may kill."""
    running = make(base, f"own-{time.monotonic_ns()}", apart)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture(autouse=True)
def restored(apart: RealSlurm) -> Iterator[None]:
    yield
    apart.ask("scancel", "-u", "root")


def tasks_of(cluster: Cluster, name: str, role: str = "main") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.detail(name)["taskRoles"][role]["taskStatuses"]
    return found


def on_two_nodes(name: str, *commands: str, **more: Any) -> dict[str, Any]:
    spread = {"openpaisdk": {"slurm": ["--nodes=2", "--ntasks-per-node=1"]}}
    return job(name, *commands, instances=2, extras=spread, **more)


def succeeded(cluster: Cluster, what: dict[str, Any]) -> str:
    status = cluster.run(what)
    said = cluster.log_of(what["name"]).decode()
    context = (status, said, cluster.events(what["name"]))
    assert (status["state"], status["retries"]) == ("SUCCEEDED", 0), context
    return said


def wait_clean(apart: RealSlurm, base: Path) -> None:
    """A job's state is known before its folder on the node is gone."""
    eventually(lambda: left_on_nodes(apart, base) == "", "the end of what jobs left on nodes")


def left_on_nodes(apart: RealSlurm, base: Path) -> str:
    """Content of the nodes' own folders."""
    return apart.ask("srun", "-N3", "--quiet", "--chdir=/", "ls", str(base / "local"))


def test_job_runs_without_shared_file_system(cluster: Cluster, base: Path, apart: RealSlurm) -> None:
    said = succeeded(cluster, job("hello", f"echo $SLURMD_NODENAME sees $(ls {base}); pwd; echo no >&2"))
    (task,) = tasks_of(cluster, "hello")
    node, work, wrong = said.splitlines()
    assert node == f"{task['containerNodeName']} sees local"
    assert work.startswith(f"{base}/local/pai-")
    assert wrong == "no"
    assert cluster.log_of("hello", stream="stderr") == b"no\n"
    assert cluster.log_of("hello", stream="stdout").decode() == f"{node}\n{work}\n"
    wait_clean(apart, base)


def test_exit_code_is_reported(cluster: Cluster) -> None:
    assert cluster.run(job("fails", "echo so; exit 7"))["state"] == "FAILED"
    assert tasks_of(cluster, "fails")[0]["originUserExitCode"] == 7
    assert cluster.log_of("fails") == b"so\n"


def test_memory_overhead_is_within_the_request(cluster: Cluster) -> None:
    look = "cat /proc/$PPID/smaps_rollup /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/smaps_rollup | grep ^Pss:"
    said = succeeded(cluster, job("small", look))
    assert sum(int(line.split()[1]) for line in said.splitlines()) < 24 << 10, said


def test_times_of_a_log_are_transferred(cluster: Cluster) -> None:
    succeeded(cluster, job("timed", "echo one", "sleep 4", "echo two"))
    found = cluster.get(cluster.path("timed", "/log-times")).json()
    (first, first_ms), (second, second_ms) = found["times"]
    assert (first, second) == (0, 4) and 1000 <= second_ms - first_ms < 60_000


def test_sources_outputs_and_metrics_are_transferred(cluster: Cluster) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        big = tarfile.TarInfo("big.bin")
        big.size = 3_000_000
        tar.addfile(big, io.BytesIO(b"x" * big.size))
    name = hashlib.sha256(data.getvalue()).hexdigest()
    assert cluster.ask("PUT", f"/api/v2/sources/{name}", data.getvalue()).status < 300
    commands = (
        "wc -c < big.bin",
        'echo \'{"step": 1, "loss": 0.5}\' >> $PAI_METRICS_FILE',
        "cp big.bin $PAI_OUTPUT_DIR/kept.bin",
    )
    what = job("travels", *commands)
    what["extras"] = {"openpaisdk": {"sources": {"sha256": name, "size": len(data.getvalue())}}}
    assert succeeded(cluster, what).split() == ["3000000"]
    assert b"0.5" in cluster.get(cluster.path("travels", "/metrics")).body
    home = cluster.home / "storage"
    assert [path.stat().st_size for path in home.rglob("kept.bin")] == [3_000_000]


def test_log_is_followed_while_the_task_writes_it(cluster: Cluster, tmp_path: Path) -> None:
    """The task writes a line only after the previous one was read."""
    lines = tmp_path / "lines"
    os.mkfifo(lines)
    stream = cluster.follow(cluster.accept(job("echo", f"while read line; do echo $line; done < {lines}")))
    frames = iter(stream)
    # Opened for reading too: opening a pipe then does not block.
    with os.fdopen(os.open(lines, os.O_RDWR), "wb", buffering=0) as to_the_task:
        for number in range(6):
            to_the_task.write(b"%d\n" % number)
            assert next(frame for frame in frames if frame["kind"] == "log")["data"] == b"%d\n" % number
    assert list(frames)[-1]["state"] == "SUCCEEDED"
    stream.close()


def test_large_output_arrives_completely(cluster: Cluster) -> None:
    said = succeeded(cluster, job("much", "seq 1 1000000"))
    assert said == "".join(f"{n}\n" for n in range(1, 1000001))


def test_tasks_on_two_nodes_know_each_other(cluster: Cluster, base: Path, apart: RealSlurm) -> None:
    two = on_two_nodes("two", "x")
    two["taskRoles"]["main"] = role(
        'echo "$SLURMD_NODENAME $PAI_TASK_INDEX of $WORLD_SIZE"',
        'echo "$PAI_HOST_IP_main_1:$PAI_PORT_LIST_main_1_http"',
        "seq 1 20000",
        instances=2,
        ports={"http": 1},
    )
    two["taskRoles"]["main"]["completion"] = {"minSucceededInstances": 2}
    succeeded(cluster, two)
    first, second = tasks_of(cluster, "two")
    assert first["containerNodeName"] != second["containerNodeName"]
    rest = "".join(f"{n}\n" for n in range(1, 20001))
    for index, task in enumerate((first, second)):
        said = cluster.log_of("two", role="main", index=index).decode()
        where = f"127.0.0.1:{second['containerPorts']['http']}"
        assert said == f"{task['containerNodeName']} {index} of 2\n{where}\n{rest}"
    wait_clean(apart, base)


def test_stopped_job_gets_its_grace_period(cluster: Cluster, apart: RealSlurm) -> None:
    """Longer than Slurm's KillWait."""
    goodbye = "trap 'sleep 5; echo bye; exit 1' TERM; echo up; sleep 60 & wait"
    name = cluster.accept(job("stopped", goodbye))
    eventually(lambda: b"up" in cluster.log_of(name), "its first words")
    cluster.stop(name)
    assert cluster.wait_over(name)["state"] == "STOPPED"
    assert cluster.log_of(name) == b"up\nbye\n"
    eventually(lambda: not apart.jobs(), "the end of the allocation")


def test_stop_ends_all_tasks_of_a_gang(cluster: Cluster, apart: RealSlurm) -> None:
    name = cluster.accept(on_two_nodes("gang", "echo up; exec sleep 60"))
    for index in range(2):
        eventually(lambda index=index: b"up" in cluster.log_of(name, role="main", index=index), "its words")
    cluster.stop(name)
    assert cluster.wait_over(name)["state"] == "STOPPED"
    eventually(lambda: not apart.jobs(), "the end of the allocation")


def test_job_stopped_while_pending_never_starts(cluster: Cluster, apart: RealSlurm, tmp_path: Path) -> None:
    blocker = apart.ask("sbatch", "--parsable", "-N3", "--exclusive", "-o/dev/null", "--wrap=sleep 100")
    name = cluster.accept(job("unwanted", f"touch {tmp_path}/ran"))
    eventually(lambda: len(apart.jobs()) == 2, "its place in the queue")
    cluster.stop(name)
    assert cluster.wait_over(name)["state"] == "STOPPED"
    apart.ask("scancel", blocker.strip())
    eventually(lambda: not apart.jobs(), "the end of all")
    assert not (tmp_path / "ran").exists()


def test_exec_runs_in_a_task(cluster: Cluster, base: Path, apart: RealSlurm, tmp_path: Path) -> None:
    go = tmp_path / "go"
    name = cluster.accept(on_two_nodes("beside", f"echo up; until [ -e {go} ]; do sleep 0.05; done"))
    eventually(lambda: b"up" in cluster.log_of(name, role="main", index=1), "its first words")
    engine = SlurmEngine(SlurmOptions(cluster.home / "slurm", shared=False))
    look = ["sh", "-c", "echo $SLURMD_NODENAME $PAI_TASK_INDEX $PAI_HOST_IP_main_0; pwd"]
    words = engine.exec_command(tasks_of(cluster, name)[1]["containerId"], look)
    said = apart.ask(*words).split()
    assert said[:3] == [tasks_of(cluster, name)[1]["containerNodeName"], "1", "127.0.0.1"]
    assert said[3].startswith(f"{base}/local/pai-")
    go.touch()
    assert cluster.wait_over(name)["state"] == "SUCCEEDED"


def test_job_cancelled_in_slurm_is_stopped(cluster: Cluster, apart: RealSlurm) -> None:
    name = cluster.accept(job("cancelled", "echo up; exec sleep 60"))
    eventually(lambda: b"up" in cluster.log_of(name), "its first words")
    apart.ask("scancel", *apart.jobs())
    over = cluster.wait_over(name)
    assert (over["state"], over["retries"]) == ("STOPPED", 0)


def test_next_job_removes_stale_folders_of_a_killed_one(
    cluster: Cluster, apart: RealSlurm, base: Path, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    # The task, the supervisor and the uploader.
    says = f"mkdir {pids}/$$ {pids}/$PPID {pids}/$(cut -d' ' -f4 /proc/$PPID/stat); echo up; exec sleep 600"
    name = cluster.accept(job("killed", f"pwd | grep -o 'pai-[^/]*'; {says}"))
    eventually(lambda: b"up" in cluster.log_of(name), "its first words")
    stale = cluster.log_of(name).decode().split()[0]
    node = tasks_of(cluster, name)[0]["containerNodeName"]

    def seen_by(number: int) -> list[str]:
        there = {"openpaisdk": {"slurm": [f"--nodelist={node}"]}}
        return succeeded(cluster, job(f"after-{number}", f"ls {base}/local", extras=there)).split()

    assert stale in seen_by(1) and stale in seen_by(2)  # kept while it runs
    # Stopped first: none may react to the end of another one.
    for end in (signal.SIGSTOP, signal.SIGKILL):
        for path in pids.iterdir():
            os.kill(int(path.name), end)
    cluster.stop(name)
    assert cluster.wait_over(name)["state"] == "STOPPED"
    eventually(lambda: left_on_nodes(apart, base).split() == [stale], "only its folder")
    assert stale in seen_by(3)
    wait_clean(apart, base)


def test_node_failure_is_retried_without_counting(own: Cluster, apart: RealSlurm, tmp_path: Path) -> None:
    go = tmp_path / "go"
    name = own.accept(job("pinned", "echo up", f"until [ -e {go} ]; do sleep 0.05; done"))
    eventually(lambda: b"up" in own.log_of(name), "its first words")
    node = tasks_of(own, name)[0]["containerNodeName"]
    apart.kill_node(node)
    try:
        eventually(lambda: own.status(name)["retries"] == 1, "another attempt")
        go.touch()
        assert own.wait_over(name)["state"] == "SUCCEEDED"
    finally:
        apart.start_node(node)
        apart.wait_idle()


def test_repeatedly_killed_server_has_every_byte_once(own: Cluster, tmp_path: Path) -> None:
    """Both while the task writes and when it ends."""
    go, ended = tmp_path / "go", tmp_path / "ended"
    write = (
        f"n=0; while [ ! -e {go} ]; do n=$((n+1)); echo line $n; echo wrong $n >&2; "
        f"[ $((n % 50)) = 0 ] && sleep 0.05; done; echo last $n; touch {ended}; exit 5"
    )
    name = own.accept(job("survivor", write))
    for _ in range(4):
        before = len(own.log_of(name))
        eventually(lambda before=before: len(own.log_of(name)) > before, "more of the log")
        own.kill()
        time.sleep(1.0)
        own.start()
    own.kill()
    go.touch()
    eventually(ended.exists, "the end of the program")
    own.start()
    status = own.wait_over(name)
    assert (status["state"], status["retries"]) == ("FAILED", 0)
    assert tasks_of(own, name)[0]["originUserExitCode"] == 5
    out = own.log_of(name, stream="stdout").decode().splitlines()
    count = len(out) - 1
    assert out == [*(f"line {n}" for n in range(1, count + 1)), f"last {count}"]
    wrong = own.log_of(name, stream="stderr").decode().splitlines()
    assert wrong == [f"wrong {n}" for n in range(1, count + 1)]
    assert sorted(own.log_of(name).decode().splitlines()) == sorted(out + wrong)


def test_task_that_starts_without_a_server_waits_for_it(own: Cluster, apart: RealSlurm) -> None:
    blocker = apart.ask("sbatch", "--parsable", "-N3", "--exclusive", "-o/dev/null", "--wrap=sleep 100")
    name = own.accept(job("early", "echo here"))
    eventually(lambda: len(apart.jobs()) == 2, "its place in the queue")
    own.kill()
    apart.ask("scancel", blocker.strip())
    eventually(lambda: "R" in apart.ask("squeue", "-h", "-o", "%t").split(), "its start")
    own.start()
    assert own.wait_over(name)["state"] == "SUCCEEDED"
    assert own.log_of(name) == b"here\n"


def test_node_without_connection_to_the_server_is_reported(base: Path, apart: RealSlurm) -> None:
    running = make(base, "mute", apart)
    file = running.home / "cluster.yaml"
    file.write_text(file.read_text() + "  python: /no/such/python3\n")
    try:
        running.start()
        name = running.accept(job("mute", "true"))
        wanted = "Its node downloaded nothing from the server"
        eventually(lambda: any(wanted in one["message"] for one in running.events(name)), "the event")
        running.stop(name)
        running.wait_over(name)
    finally:
        running.close()


def test_nodes_trust_the_certificate_in_the_batch_script(
    base: Path, apart: RealSlurm, tmp_path: Path
) -> None:
    plain = make(base, "secure", apart)
    own = certificates.certificate(tmp_path, "localhost", by_an_authority=True)
    text = (plain.home / "cluster.yaml").read_text()
    text = text.replace('"http://127.0.0.1:', '"https://localhost:')
    text = text.replace("listen: {", f"listen: {{tls: {{certificate: {own}/cert.pem, key: {own}/key.pem}}, ")
    (plain.home / "cluster.yaml").write_text(text)
    secure = SecureCluster(plain.home, plain.options, plain.variables, ca_file=own / "cert.pem")
    try:
        secure.start()
        what = on_two_nodes(
            "secure",
            "echo kept > $PAI_OUTPUT_DIR/result",
            "hdfs dfs -test -d /user && echo there",
            # The SDK trusts the same certificate, and needs no settings.
            f'export HOME="$PWD" PATH="{BIN}:$PATH"',
            "pai copy pai://here/0/user/$PAI_USER_NAME/for_tasks -; pai list-jobs | grep -c secure",
        )
        path = f"/webhdfs/v1/user/{secure.user}/for_tasks?op=CREATE&data=true"
        assert secure.ask("PUT", path, b"from the storage\n").status == 201
        assert succeeded(secure, what).splitlines() == ["there", "from the storage", "1"]
        kept = sorted((plain.home / "storage").rglob("result"))
        assert [path.read_text() for path in kept] == ["kept\n", "kept\n"]
    finally:
        secure.close()


# -- authorization --------------------------------------------------------------------------------------


def _ticket(home: Path, uid: str) -> str:
    script = (home / "slurm" / "gangs" / uid[:2] / uid / "batch.sh").read_text()
    found = re.search(r"ticket[^A-Za-z0-9]+([\w-]{43})", script)
    assert found is not None
    return found[1]


def test_ticket_is_valid_only_for_its_own_attempts(cluster: Cluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"echo up; until [ -e {go} ]; do sleep 0.05; done"
    uids = []
    for name in ("mine", "yours"):
        cluster.accept(job(name, wait))
        eventually(lambda name=name: b"up" in cluster.log_of(name), "its first words")
        uids.append(tasks_of(cluster, name)[0]["containerId"])
    mine, yours = uids
    ticket = _ticket(cluster.home, mine)

    def put(path: str, body: bytes = b"x", token: str | None = ticket) -> int:
        return cluster.ask("PUT", f"/api/v2/attempts/{path}", body, token=token).status

    log = "logs/all?at=3&after=3"
    for token in (None, "nonsense", cluster.token, _ticket(cluster.home, yours)):
        assert put(f"{mine}/{log}", token=token) == 401
    for what in (log, "claim", "end?all=0&stdout=0&stderr=0", "diagnostics"):
        assert put(f"{yours}/{what}", b"{}") == 401
    # The bundle can be downloaded until the tasks have started.
    assert cluster.get(f"/api/v2/attempts/{mine}/bundle?job=1", token=ticket).status == 409
    assert put(f"{mine}/claim", b'{"nonce": "another"}') == 409
    for stream in ("spec.json", "..", "claim", "%2e%2e%2fclaim"):
        assert put(f"{mine}/logs/{stream}?at=0&after=0") in (400, 404)
    assert put(f"{mine}/{log}", b"x" * ((1 << 20) + 1)) == 413
    assert put(f"{mine}/logs/all?at={1 << 60}&after=0") == 400
    # It is not a user's token.
    assert cluster.get("/api/v2/jobs", token=ticket).status == 401
    go.touch()
    for name in ("mine", "yours"):
        assert cluster.wait_over(name)["state"] == "SUCCEEDED"
        assert cluster.log_of(name) == b"up\n"
    assert put(f"{mine}/{log}") == 409


def test_ticket_is_in_no_log_and_on_no_command_line(cluster: Cluster, tmp_path: Path) -> None:
    # A process may end before it is looked at.
    lines = "{ cat /proc/[0-9]*/cmdline 2>/dev/null || true; } | tr '\\0' '\\n'"
    look = f"{lines}; echo ==; env; tr '\\0' '\\n' < /proc/$PPID/environ"
    name = "curious"
    said = succeeded(cluster, job(name, look))
    ticket = _ticket(cluster.home, tasks_of(cluster, name)[0]["containerId"])
    command_lines, _, variables = said.partition("==\n")
    assert "slurmstepd" in command_lines and "pairuntime.pyz" in command_lines  # of this job, too
    assert "PAI_SLURM_BOOT" in variables  # of a process of the same account
    assert ticket not in said
    assert ticket.encode() not in cluster.log.read_bytes()


@pytest.fixture
def crew(base: Path, apart: RealSlurm) -> Iterator[CrewCluster]:
    with unix_accounts(ALICE, BOB):
        home = base / "crew"
        add_people(home, ALICE, BOB)
        port = free_ports(1)[0]
        (home / "cluster.yaml").write_text(_FILE.format(port=port, base=base))
        made = CrewCluster(home, ("--port", str(port)), {"SLURM_CONF": str(apart.conf)})
        try:
            yield made.start()
        finally:
            made.close()
            for name in (ALICE, BOB):
                apart.ask("scancel", "-u", name)


def test_tasks_run_under_their_users_accounts_on_the_nodes(crew: CrewCluster, tmp_path: Path) -> None:
    crew.as_user(ALICE)
    said = succeeded(crew, job("who", "id -un; echo $USER; stat -c '%U %a' .. ; pwd"))
    assert said.split()[:4] == [ALICE, ALICE, ALICE, "700"]
    two = on_two_nodes("both", "id -un")
    two["taskRoles"]["main"]["completion"] = {"minSucceededInstances": 2}
    assert succeeded(crew, two) == f"{ALICE}\n"
    # The user cannot reach the server's copies on its machine either.
    assert (crew.home / "slurm").stat().st_mode & 0o077 == 0
    assert not (crew.home / "audit.log").read_text().count("/api/v2/attempts/")
