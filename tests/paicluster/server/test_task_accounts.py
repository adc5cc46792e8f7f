"""With several users each job runs under its user's Unix account, isolated from the others."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import json
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from openpaisdk.client import ClusterClient
from openpaisdk.client.port_forward import PortForward
from openpaisdk.client.task_choice import TaskChoice
from support.external_services import missing
from support.server_fixture import DEADLINE_S, eventually, job
from support.session_client import first_outputs
from support.task_service import BANNER, EchoServer, exchange
from support.unix_users import CrewCluster, add_people, open_folder, processes_with_argument, unix_accounts
from support.web_socket import WebSocket

ALICE, BOB, CAROL = (f"pai-{name}-{os.getpid()}" for name in ("alice", "bob", "carol"))
OPTIONS = ("--cpus", "8", "--memory-mb", "8192")


@pytest.fixture(scope="module")
def accounts() -> Iterator[dict[str, pwd.struct_passwd]]:
    with unix_accounts(ALICE, BOB) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(accounts: dict[str, pwd.struct_passwd]) -> Iterator[CrewCluster]:
    with open_folder() as folder:
        add_people(folder / "home", ALICE, BOB, CAROL)
        # As an older version left it, which relied on the home being private.
        (folder / "home" / "sources").mkdir(mode=0o755)
        (folder / "home" / "cluster.yaml").write_text("# CANARY-of-the-settings\n")
        for path in (folder / "home").iterdir():
            path.chmod(0o755 if path.is_dir() else 0o644)
        made = CrewCluster(
            folder / "home", OPTIONS, {"PAICLUSTER_ADMIN_PASSWORD": "CANARY-of-the-admin", "UMASK": "000"}
        )
        try:
            yield made.start_command()
        finally:
            made.close()


def output_of(cluster: CrewCluster, name: str, *script: str, **more: object) -> str:
    status = cluster.run(job(name, *script, **more))  # type: ignore[arg-type]
    log = cluster.log_of(name).decode()
    assert status["state"] == "SUCCEEDED", (status, log, cluster.events(name))
    return log


# Open files of the shell. Not listed in a pipeline, whose ends the shell would have open too.
_OPEN_FILES = "for fd in /proc/$$/fd/*; do readlink $fd || true; done"


def test_task_runs_under_its_users_account(
    cluster: CrewCluster, accounts: dict[str, pwd.struct_passwd]
) -> None:
    cluster.as_user(ALICE)
    log = output_of(
        cluster,
        "account",
        'echo "$(id -un) $(id -gn) $(id -Gn)"',
        'echo "$USER $LOGNAME $HOME $SHELL"',
        "echo file > here && stat -c '%U %a' here . && pwd && echo $PAI_WORK_DIR",
        "umask",
        "echo to stdout > /dev/stdout",
        "cat $PAI_RUNTIME_DIR/pairuntime.pyz > /dev/null && echo and the runtime",
        _OPEN_FILES,
    )
    lines = log.splitlines()
    assert lines[0] == f"{ALICE} {ALICE} {ALICE}"
    assert lines[1] == f"{ALICE} {ALICE} {accounts[ALICE].pw_dir} /bin/bash"
    assert lines[2:4] == [f"{ALICE} 644", f"{ALICE} 700"]
    assert lines[4] == lines[5] == str(cluster.folder_of("account") / "work")
    assert lines[6:9] == ["0022", "to stdout", "and the runtime"]
    opened = lines[9:]
    assert opened[0] == "/dev/null" and [one[:5] for one in opened[1:3]] == ["pipe:", "pipe:"]
    # Opened by bash itself: the script.
    assert opened[3:] == [str(cluster.folder_of("account") / "task.sh")]


def test_session_runs_under_the_users_account(cluster: CrewCluster) -> None:
    cluster.as_user(ALICE)
    name = cluster.accept(job("session", "echo up; sleep 600"))
    cluster.wait_state(name, "RUNNING")
    eventually(lambda: b"up" in cluster.log_of(name), "the task")
    for terminal in (False, True):
        session = WebSocket(cluster, cluster.path(name, f"/exec?terminal={str(terminal).lower()}"))
        script = "id -un; id -gn; id -Gn; umask; echo to stdout >/dev/stdout; echo to stderr >/dev/stderr"
        if terminal:
            script += "; echo to the terminal >$(tty)"
        size = {"term": "xterm", "rows": 24, "columns": 80} if terminal else None
        session.send(
            "start", command=["sh", "-c", f"{script}; touch by-exec; stat -c %U by-exec"], terminal=size
        )
        assert session.finish() == {"type": "exit", "status": 0}, session.written
        lines = session.written[1].decode().replace("\r", "").splitlines()
        assert lines[:5] == [ALICE, ALICE, ALICE, "0022", "to stdout"]
        assert lines[-1] == ALICE
        said = session.written[1] if terminal else session.written[2]
        assert b"to stderr" in said
    cluster.stop(name)


@pytest.mark.parametrize("terminal", [False, True])
def test_host_of_a_session_has_the_users_account_and_ends_what_it_started(
    cluster: CrewCluster, terminal: bool
) -> None:
    """It reads what client and command send: as root it would be worth an attack."""
    cluster.as_user(ALICE)
    name = cluster.accept(job(f"host-{terminal}", "echo up; sleep 600"))
    cluster.wait_state(name, "RUNNING")
    eventually(lambda: b"up" in cluster.log_of(name), "the task")
    session = WebSocket(cluster, cluster.path(name, f"/exec?terminal={str(terminal).lower()}"))
    size = {"term": "xterm", "rows": 24, "columns": 80} if terminal else None
    session.send(
        "start", command=["sh", "-c", "trap '' HUP TERM; sleep 601 & echo $! ready; sleep 602"], terminal=size
    )
    session.read_until(b"ready")
    folder = str(cluster.folder_of(name))
    (users,) = processes_with_argument(folder).values()
    assert users == {ALICE}
    child = int(session.written[1].split()[0])
    session.send("resize", rows=30, columns=90)
    session.sock.close()
    eventually(lambda: not processes_with_argument(folder), "the end of the host")
    assert not Path(f"/proc/{child}").exists()
    cluster.stop(name)


_UNUSED_BY_A_SERVER = ("site-packages", "test", "idlelib", "tkinter", "lib2to3", "config-*")


def closed_python(folder: Path) -> tuple[str, str]:
    """A Python that only root may read, as one below /root, and the path of its packages."""
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    version = "python{}.{}".format(*sys.version_info)
    (closed / "bin").mkdir()
    shutil.copy(Path(sys.base_prefix, "bin", version), closed / "bin" / version)
    shutil.copytree(
        Path(os.__file__).parent,
        closed / "lib" / version,
        ignore=shutil.ignore_patterns(*_UNUSED_BY_A_SERVER),
    )
    packages = [path for path in sys.path if path.endswith(("-packages", "/src"))]
    return str(closed / "bin" / version), os.pathsep.join(packages)


@pytest.mark.slow
def test_ports_and_apps_are_served_by_a_server_whose_python_is_closed_to_others(
    accounts: dict[str, pwd.struct_passwd],
) -> None:
    """What serves a connection becomes the account of the task, and can load nothing from then on."""
    server = EchoServer(BANNER)
    with open_folder() as folder:
        add_people(folder / "home", ALICE, BOB)
        python, packages = closed_python(folder)
        made = CrewCluster(
            folder / "home", OPTIONS, {"PYTHONPATH": packages}, program=(python, "-m", "paicluster")
        )
        try:
            made.start_command()
            made.as_user(ALICE)
            name = made.accept(job("closed", "echo up; sleep 600"))
            eventually(lambda: b"up" in made.log_of(name), "the task")
            client = ClusterClient("crew", made.endpoint())
            assert first_outputs(client, name, 1) == {(b"ready\nhello", 3): 1}
            with PortForward(client, TaskChoice(name), server.port) as opened:
                assert exchange(opened.local_port, b"hello ") == BANNER + b"hello bye"
            reply = made.ask("POST", made.path(name, f"/apps?port={server.port}"))
            assert reply.status == 200, reply.text
            # Through the app's own address, too: what listens there answers, but is no web server.
            status, text = page_of_app(reply.json()["url"])
            assert (status, "does not speak HTTP" in text) == (502, True), text
        finally:
            made.close()
            server.close()


def page_of_app(url: str) -> tuple[int, str]:
    """Status and text of the page at `/` of an app, which a link opens."""
    link = urlsplit(url)
    connection = http.client.HTTPConnection(link.hostname or "", link.port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        connection.request("GET", f"{link.path}?{link.query}")
        opened = connection.getresponse()
        opened.read()
        cookie = str(opened.headers["set-cookie"]).partition(";")[0]
        connection.request("GET", "/", headers={"Cookie": cookie})
        page = connection.getresponse()
        return page.status, page.read().decode()


def test_all_tasks_of_a_gang_run_under_the_users_account(
    cluster: CrewCluster, accounts: dict[str, pwd.struct_passwd]
) -> None:
    cluster.as_user(ALICE)
    name = cluster.accept(job("gang", 'echo "$USER $HOME $(id -un)"; touch mine', instances=3))
    assert cluster.wait_over(name)["state"] == "SUCCEEDED", cluster.events(name)
    home = accounts[ALICE].pw_dir
    for index in range(3):
        assert cluster.log_of(name, role="main", index=index).decode() == f"{ALICE} {home} {ALICE}\n"


def test_sources_are_readable_only_by_their_job(cluster: CrewCluster) -> None:
    cluster.as_user(ALICE)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        about = tarfile.TarInfo("train.sh")
        data = b"echo CANARY-source\n"
        about.size, about.mode = len(data), 0o755
        archive.addfile(about, io.BytesIO(data))
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    put = cluster.ask("PUT", f"/api/v2/sources/{digest}", packed.getvalue())
    assert put.status in (200, 201), put.text
    extras = {"openpaisdk": {"sources": {"sha256": digest, "size": len(packed.getvalue())}}}
    log = output_of(
        cluster,
        "sources",
        "./train.sh",
        "stat -c %U train.sh",
        _OPEN_FILES,
        f"cat {cluster.home}/sources/{digest}.tar > copy 2> /dev/null && echo reached it || true",
        extras=extras,
    )
    script = cluster.folder_of("sources") / "task.sh"
    first, owner, *opened = log.splitlines()
    assert (first, owner) == ("CANARY-source", ALICE)
    assert opened[3:] == [str(script)]


_SPY = r"""
seen() { echo "SEEN $*"; }
for path in HOME HOME/tasks HOME/keys HOME/run HOME/sources FOLDER FOLDER/work; do
  ls "$path" > /dev/null 2>&1 && seen "list $path"
done
for path in HOME/cluster.db HOME/cluster.db-wal HOME/cluster.db-shm HOME/server.json HOME/server.lock \
    HOME/keys/tokens HOME/keys/sealing HOME/keys/tickets HOME/run/events HOME/cluster.yaml \
    FOLDER/spec.json FOLDER/task.sh FOLDER/env FOLDER/claim FOLDER/stdout.0 FOLDER/all.0 FOLDER/stderr.0 \
    FOLDER/work/private OWN/spec.json OWN/claim OWN/stdout.0; do
  cat "$path" > /dev/null 2>&1 < "$path" && seen "read $path"
  (: >> "$path") 2> /dev/null && seen "write $path"
done
for path in HOME/x HOME/tasks/x HOME/run/x HOME/keys/x FOLDER/stop FOLDER/exit.json FOLDER/work/x \
    OWN/exit.json OWN/exit.staging OWN/stop; do
  (echo '{}' > "$path") 2> /dev/null && seen "make $path"
done
for path in FOLDER/claim FOLDER/spec.json FOLDER/work OWN/claim OWN/spec.json OWN/task.sh; do
  mv "$path" "$path.moved" 2> /dev/null && seen "move $path"
  chmod 777 "$path" 2> /dev/null && [ "$path" != OWN/task.sh ] && seen "open $path"
  rm -rf "$path" 2> /dev/null && seen "remove $path"
done
for process in /proc/[0-9]*; do
  pid=${process#/proc/}
  grep -az 'CAN[A]RY' $process/environ 2> /dev/null && seen "environment $pid"
  grep -az 'CAN[A]RY' $process/cmdline 2> /dev/null && seen "command line $pid"
  if [ "$(stat -c %u $process 2> /dev/null)" != "$(id -u)" ]; then
    ls $process/fd > /dev/null 2>&1 && seen "files $pid"
  fi
done
for pid in PIDS; do
  kill -0 $pid 2> /dev/null && seen "signal $pid"
  kill -KILL $pid 2> /dev/null && seen "kill $pid"
done
grep -rla 'CAN[A]RY' HOME HOME/tasks FOLDER FOLDER/work 2> /dev/null | while read -r file; do
  seen "found in $file"
done
echo looked
"""


def _processes_with(variable: bytes, uid: int) -> list[int]:
    """The processes of that user that have ``variable`` in their environment.

    By the user alone they could be more: a task has helpers while it starts, and another worker of the same
    test run may have got the number of a deleted account.
    """
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        # Any process of the machine may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            folder = Path(f"/proc/{pid}")
            if folder.stat().st_uid == uid and variable in (folder / "environ").read_bytes():
                pids.append(int(pid))
    return pids


@pytest.mark.slow
def test_job_cannot_read_other_users_secrets(
    cluster: CrewCluster, accounts: dict[str, pwd.struct_passwd]
) -> None:
    cluster.as_user(ALICE)
    held = job(
        "holds",
        "export HELD='<% $secrets.key %>'",
        "echo CANARY-in-the-log; echo CANARY-error >&2; echo CANARY-in-a-file > private; echo ready",
        "exec sleep 600",
        secrets={"key": "CANARY-of-alice"},
    )
    cluster.accept(held)
    eventually(lambda: b"ready" in cluster.log_of("holds"), "alice's job")
    folder = cluster.folder_of("holds")
    owner = json.loads((folder / "claim").read_text())
    # In its environment from its `exec` on, just after the last line of the log.
    [task] = eventually(
        lambda: _processes_with(b"CANARY-of-alice", accounts[ALICE].pw_uid), "the process that has the secret"
    )
    assert (folder / "task.sh").stat().st_uid == accounts[ALICE].pw_uid
    assert (folder / "task.sh").stat().st_mode & 0o777 == 0o600
    assert b"CANARY-of-alice" in (folder / "task.sh").read_bytes()
    assert cluster.process is not None
    script = (
        _SPY.replace("PIDS", f"{task} {owner['pid']} {cluster.process.pid}")
        .replace("FOLDER", shlex.quote(str(folder)))
        .replace("OWN", '"${PAI_WORK_DIR%/work}"')
        .replace("HOME", shlex.quote(str(cluster.home)))
    )
    cluster.as_user(BOB)
    log = output_of(cluster, "spy", "set +o errexit", script)
    assert log == "looked\n"
    cluster.as_user(ALICE)
    assert cluster.wait_state("holds", "RUNNING")["retries"] == 0
    # The same script in another job of alice finds alice's files, so it works; and none of the cluster's.
    log = output_of(cluster, "same", "set +o errexit", script)
    for what in (f"read {folder}/task.sh", f"read {folder}/work/private", f"kill {task}"):
        assert f"SEEN {what}\n" in log
    found = "\n".join(line for line in log.splitlines() if line.startswith("SEEN"))
    for what in ("cluster.db", "keys", "server.json", "spec.json", "claim", "exit.json", "stdout.0", "all.0"):
        assert what not in found
    assert f"kill {owner['pid']}" not in found
    assert cluster.wait_over("holds")["state"] == "FAILED"


def _launch_error(cluster: CrewCluster, name: str) -> str:
    return next((e["message"] for e in cluster.events(name) if e["reason"] == "FailedLaunch"), "")


def test_job_waits_until_its_users_account_exists(
    cluster: CrewCluster,
) -> None:
    cluster.as_user(CAROL)
    cluster.accept(job("no-account", "true"))
    message = eventually(lambda: _launch_error(cluster, "no-account"), "the event about the missing account")
    assert f"useradd {CAROL}" in message and "accounts" in message
    # A job that cannot be launched waits, with no attempt counted and no resources allocated.
    cluster.accept(job("no-account-array", "true", instances=3, extras={"gangAllocation": False}))
    assert eventually(lambda: _launch_error(cluster, "no-account-array"), "the same event for an array")
    for name in ("no-account", "no-account-array"):
        status = cluster.wait_state(name, "WAITING", "RUNNING", "FAILED")
        assert (status["state"], status["retries"], status["appExitCode"]) == ("WAITING", 0, None)
    cluster.accept(job("no-account-stopped", "true"))
    assert eventually(
        lambda: _launch_error(cluster, "no-account-stopped"), "the same event for the job to stop"
    )
    cluster.stop("no-account-stopped")
    assert f"useradd {CAROL}" in cluster.wait_over("no-account-stopped")["appExitDiagnostics"]
    with unix_accounts(CAROL):
        for name in ("no-account", "no-account-array"):
            assert cluster.wait_over(name)["state"] == "SUCCEEDED"
        assert cluster.wait_over("no-account")["retries"] == 0


def test_cluster_yaml_maps_users_to_accounts(accounts: dict[str, pwd.struct_passwd]) -> None:
    with open_folder() as folder:
        home = folder / "home"
        add_people(home, "erin", "frank", "daemon")
        (home / "cluster.yaml").write_text(
            f"accounts: {{erin: {ALICE}, frank: '54321:54322'}}\n"
            "engine: {type: process, cpus: 4, memory-mb: 4096, limits: off}\n"
        )
        made = CrewCluster(home, ())
        try:
            made.start().as_user("erin")
            assert output_of(made, "mapped", "id -un", "echo $USER") == f"{ALICE}\n{ALICE}\n"
            made.as_user("frank")
            output = output_of(
                made, "numbers", "id -u; id -g; id -G", "echo $USER; [ $HOME = $PAI_WORK_DIR ]"
            )
            assert output == "54321\n54322\n54322\nfrank\n"
            # There is an account of that name, but it is a system account.
            made.as_user("daemon")
            made.accept(job("as-daemon", "true"))
            message = eventually(lambda: _launch_error(made, "as-daemon"), "the launch error")
            assert "is a system account" in message
        finally:
            made.close()


_UNPRIVILEGED_SERVER = """
import os, sys
from paicluster.cli import main
# Imported while the files are still readable.
import paicluster.server.serve
main(["user", "list", "--home", sys.argv[1]])
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
sys.exit(main(["serve", "--home", sys.argv[2], "--port", "0"]))
"""


def test_unprivileged_server_with_several_users_does_not_start(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        missing("root, to switch to another account,")
    with open_folder() as folder:
        home = folder / "home"
        add_people(home, "alice", "bob")
        for path in (home, *home.rglob("*")):
            os.chown(path, 54321, 54321)
        command = [sys.executable, "-c", _UNPRIVILEGED_SERVER, str(tmp_path), str(home)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "3 users" in result.stderr and "root" in result.stderr and "allow-shared-account" in result.stderr
    assert "Traceback" not in result.stderr


_SECOND_USER = """
import os
from paicluster.engines.interface import LaunchFailed
from paicluster.engines.common.unix_accounts import Accounts
os.setuid(54321)
users = 1
accounts = Accounts({}, lambda: users)
print(accounts.of("alice"))
users = 2
try:
    accounts.of("alice")
except LaunchFailed as error:
    print(error)
"""


def test_unprivileged_server_launches_no_job_with_a_second_user() -> None:
    if os.geteuid() != 0:
        missing("root, to switch to another account,")
    output = subprocess.run(
        [sys.executable, "-c", _SECOND_USER], capture_output=True, text=True, check=True, cwd="/"
    )
    first, second = output.stdout.splitlines()
    assert first == "None"
    assert "2 users" in second and "54321" in second


def test_home_unreachable_for_the_accounts_is_rejected(tmp_path: Path) -> None:
    add_people(tmp_path / "home", "alice", "bob")
    tmp_path.chmod(0o700)
    command = [sys.executable, "-m", "paicluster", "serve", "--home", str(tmp_path / "home"), "--port", "0"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "closed" in result.stderr and "chmod o+x" in result.stderr


def test_single_user_cluster_runs_jobs_as_the_server(accounts: dict[str, pwd.struct_passwd]) -> None:
    with open_folder() as folder:
        add_people(folder / "home")
        made = CrewCluster(folder / "home", OPTIONS)
        try:
            made.start().as_user("admin")
            assert output_of(made, "mine", "id -u") == "0\n"
            assert made.home.stat().st_mode & 0o777 == 0o700
        finally:
            made.close()
