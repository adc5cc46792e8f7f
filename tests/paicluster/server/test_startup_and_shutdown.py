"""`paicluster serve`: how it starts, why it refuses, and how it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.external_services import missing
from support.server_fixture import DEADLINE_S, Cluster, eventually, job
from support.small_disk import mounted

MakeCluster = Callable[..., Cluster]


def refusal(cluster: Cluster, *options: str) -> str:
    """What a server says that does not start: it ends by itself, not with 0, and with no traceback."""
    log = cluster.log
    before = log.stat().st_size if log.exists() else 0
    process = cluster.spawn(*options)
    try:
        assert process.wait(20) not in (0, None)
    finally:
        process.kill()
        process.wait()
    said = log.read_bytes()[before:].decode()
    assert "Traceback" not in said, said
    assert 1 <= len(said.strip().splitlines()) <= 2, said
    return said


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "ro") as disk:
        yield disk


# -- starting -------------------------------------------------------------------------------------


def test_the_handshake_is_private_and_says_who_serves(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start()
    file = cluster.home / "server.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert cluster.home.stat().st_mode & 0o077 == 0
    said = json.loads(file.read_text())
    assert cluster.process is not None
    assert said["pid"] == cluster.process.pid
    assert set(said) >= {"url", "pid", "boot_id", "start_time", "version", "user", "token"}
    assert (cluster.home / "cluster.db").stat().st_mode & 0o077 == 0
    for key in (cluster.home / "keys").iterdir():
        assert key.stat().st_mode & 0o777 == 0o600
    cluster.terminate()
    assert not file.exists()


def test_the_embedded_token_stays_the_same(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start()
    token = cluster.token
    cluster.kill()
    cluster.start()
    assert cluster.token == token


def test_the_admins_password_is_shown_once(new_cluster: MakeCluster) -> None:
    cluster = new_cluster(options=()).start()
    shown = re.search(r"password (\S+) ", cluster.log.read_text())
    assert shown is not None
    login = {"username": "admin", "password": shown[1]}
    reply = cluster.ask("POST", "/api/v2/authn/basic/login", login, token=None)
    assert reply.status == 200
    assert reply.json()["admin"] is True
    cluster.terminate()
    cluster.log.unlink()
    cluster.start()
    assert "password" not in cluster.log.read_text()
    assert shown[1] not in cluster.log.read_text()
    reply = cluster.ask("POST", "/api/v2/authn/basic/login", login, token=None)
    assert reply.status == 200
    cluster.token = reply.json()["token"]


def test_the_admins_password_comes_from_the_environment(new_cluster: MakeCluster) -> None:
    chosen = "chosen by the administrator"
    cluster = new_cluster(options=(), variables={"PAICLUSTER_ADMIN_PASSWORD": chosen}).start()
    assert chosen not in cluster.log.read_text()
    for password, status in ((chosen, 200), ("another one", 400)):
        login = {"username": "admin", "password": password}
        assert cluster.ask("POST", "/api/v2/authn/basic/login", login, token=None).status == status
    # It is for the first start alone.
    cluster.terminate()
    cluster.variables = {"PAICLUSTER_ADMIN_PASSWORD": "another one"}
    cluster.start()
    login = {"username": "admin", "password": chosen}
    reply = cluster.ask("POST", "/api/v2/authn/basic/login", login, token=None)
    assert reply.status == 200
    cluster.token = reply.json()["token"]


def test_a_password_that_is_too_short_is_refused(new_cluster: MakeCluster) -> None:
    cluster = new_cluster(options=(), variables={"PAICLUSTER_ADMIN_PASSWORD": "short"})
    assert "password" in refusal(cluster)


# -- refusing -------------------------------------------------------------------------------------


def test_a_second_server_on_one_home_refuses(new_cluster: MakeCluster) -> None:
    first = new_cluster().start()
    # Both write to one log: the first says its last word a moment after it can be reached.
    eventually(lambda: "ready at" in first.log.read_text(), "its word that it is ready")
    second = Cluster(first.home)
    assert "Another server is running" in refusal(second)
    assert first.get("/healthz").status == 200
    assert json.loads((first.home / "server.json").read_text())["pid"] == first.process.pid  # type: ignore[union-attr]
    assert first.run(job("still-here", "true"))["state"] == "SUCCEEDED"


def test_many_servers_started_at_once_on_one_home_are_one(new_cluster: MakeCluster) -> None:
    cluster = new_cluster()
    rivals = [Cluster(cluster.home) for _ in range(4)]
    started = [rival.spawn() for rival in rivals]
    eventually(lambda: sum(process.poll() is not None for process in started) == 3, "three refusals")
    [winner] = [rival for rival in rivals if rival.process is not None and rival.process.poll() is None]
    cluster.process = winner.process
    cluster.wait_ready()
    assert cluster.run(job("one", "true"))["state"] == "SUCCEEDED"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.invalid"])
def test_other_machines_are_not_served_without_tls(new_cluster: MakeCluster, host: str) -> None:
    said = refusal(new_cluster(), "--host", host)
    assert "TLS" in said
    assert "--allow-plain-http" in said


def test_other_machines_are_served_when_told_so(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start("--host", "0.0.0.0", "--allow-plain-http")
    assert cluster.get("/healthz").status == 200


def test_a_port_that_is_taken(new_cluster: MakeCluster) -> None:
    first = new_cluster().start()
    said = refusal(new_cluster("other"), "--port", str(first.address[1]))
    assert f":{first.address[1]}" in said


@pytest.mark.parametrize(
    "options",
    [
        ("--port", "99999"),
        ("--port", "-1"),
        ("--cpus", "-3"),
        ("--grace", "-1"),
        ("--grace", "nan"),
        ("--tls-cert", "/nowhere"),
        ("--tls-cert", "/nowhere", "--tls-key", "/nowhere"),
        ("--host", "999.1.1.1", "--allow-plain-http"),
        ("--host", "", "--allow-plain-http"),
    ],
)
def test_settings_that_make_no_sense(new_cluster: MakeCluster, options: tuple[str, ...]) -> None:
    refusal(new_cluster(), *options)


def test_a_certificate_that_is_none(new_cluster: MakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text("not a certificate")
    assert str(file) in refusal(new_cluster(), "--tls-cert", str(file), "--tls-key", str(file))


def test_a_home_without_a_name_is_not_the_folder_one_is_in(new_cluster: MakeCluster) -> None:
    assert "Say where the cluster is" in refusal(new_cluster(), "--home", "")


@pytest.mark.parametrize("name", ["tab\there", "two\nlines", "bell\x07", "\udcff"])
def test_a_home_whose_name_no_line_could_carry(new_cluster: MakeCluster, name: str) -> None:
    cluster = new_cluster("other")
    assert "is not plain text" in refusal(cluster, "--home", str(cluster.home.with_name(name)))


def test_a_home_with_a_name_that_is_too_long_for_its_database(new_cluster: MakeCluster) -> None:
    cluster = new_cluster("/".join(["long" * 25] * 6))
    cluster.home.mkdir(parents=True)
    assert "no path of more than 500 bytes" in refusal(cluster)


def test_a_home_that_is_a_file(new_cluster: MakeCluster, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    assert "home" in refusal(new_cluster())


def test_a_home_on_a_read_only_disk(read_only: Path) -> None:
    for home in (read_only, read_only / "home"):
        cluster = Cluster(home)
        log = read_only.parent / "log"
        with log.open("wb") as out:
            command = [*cluster.program, "serve", "--home", str(home), "--port", "0", "--embedded"]
            ended = subprocess.run(command, stdout=out, stderr=out, check=False, timeout=20)
        said = log.read_text()
        assert ended.returncode not in (0, None)
        assert "Read-only file system" in said
        assert len(said.strip().splitlines()) <= 2, said


def test_a_database_that_is_none(new_cluster: MakeCluster) -> None:
    cluster = new_cluster()
    cluster.home.mkdir()
    (cluster.home / "cluster.db").write_bytes(b"these are not the bytes of a database" * 100)
    assert "is not a database" in refusal(cluster)


def test_a_database_that_is_damaged(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start()
    for number in range(20):
        cluster.accept(job(f"job-{number}", "true"))
    for number in range(20):
        cluster.wait_over(f"job-{number}")
    cluster.terminate()
    file = cluster.home / "cluster.db"
    data = bytearray(file.read_bytes())
    data[4096 : len(data)] = os.urandom(len(data) - 4096)
    file.write_bytes(data)
    assert "damaged" in refusal(cluster)


def test_a_database_that_lost_all_it_held(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start()
    cluster.terminate()
    file = cluster.home / "cluster.db"
    file.write_bytes(b"")
    assert "is empty, though the cluster was used before" in refusal(cluster)
    assert file.read_bytes() == b""
    # Whoever wants to begin anew takes it away.
    file.unlink()
    cluster.start()


def test_keys_that_are_gone_are_not_made_anew_in_silence(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start()
    cluster.terminate()
    keys = cluster.home / "keys"
    before = {key.name: key.read_bytes() for key in keys.iterdir()}
    keys.rename(cluster.home / "elsewhere")
    said = refusal(cluster)
    assert f"There is no folder {keys}, though the cluster was used before" in said
    assert "backup" in said
    command = [*cluster.program, "user", "list", "--home", str(cluster.home)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert asked.returncode == 1
    assert "its keys are lost" in asked.stderr
    assert not keys.exists()
    # Whoever has them no more says so by an empty folder, and is told what that means.
    keys.mkdir()
    cluster.start()
    cluster.terminate()
    assert "every token is void" in cluster.log.read_text()
    assert "secrets of jobs cannot be opened" in cluster.log.read_text()
    assert {key.name for key in keys.iterdir()} == set(before)
    assert not set(before.values()) & {key.read_bytes() for key in keys.iterdir()}


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 33])
def test_a_damaged_key_is_told(new_cluster: MakeCluster, damage: bytes) -> None:
    cluster = new_cluster().start()
    cluster.terminate()
    key = cluster.home / "keys" / "sealing"
    key.write_bytes(damage)
    assert f"The key {key} is damaged" in refusal(cluster)
    assert key.read_bytes() == damage


def test_commands_do_not_make_keys_under_a_running_server(cluster: Cluster) -> None:
    (cluster.home / "keys").rename(cluster.home / "elsewhere")
    command = [*cluster.program, "user", "list", "--home", str(cluster.home)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert asked.returncode == 1
    assert f"The key {cluster.home / 'keys' / 'tokens'} cannot be read" in asked.stderr
    assert not (cluster.home / "keys").exists()


def test_root_leaves_nothing_in_a_home_of_somebody_else(new_cluster: MakeCluster) -> None:
    if os.geteuid() != 0:
        missing("root, who alone can begin to use what belongs to another,")
    cluster = new_cluster()
    cluster.home.mkdir()
    for again in (False, True):
        os.chown(cluster.home, 65534, 65534)
        before = sorted(cluster.home.iterdir())
        said = refusal(cluster)
        assert f"The home {cluster.home} belongs to nobody" in said
        assert "sudo -u nobody paicluster" in said
        command = [*cluster.program, "user", "list", "--home", str(cluster.home)]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "belongs to nobody" in asked.stderr
        assert sorted(cluster.home.iterdir()) == before
        os.chown(cluster.home, 0, 0)
        if not again:
            cluster.start()
            cluster.terminate()


def test_root_may_ask_a_server_of_somebody_else(cluster: Cluster) -> None:
    if os.geteuid() != 0:
        missing("root, who has other accounts,")
    os.chown(cluster.home, 65534, 65534)
    command = [*cluster.program, "user", "list", "--home", str(cluster.home)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked
    assert cluster.user in asked.stdout


def test_a_database_of_a_newer_version(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start()
    cluster.terminate()
    database = sqlite3.connect(cluster.home / "cluster.db")
    database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.commit()
    database.close()
    assert "newer" in refusal(cluster)


# -- leaving --------------------------------------------------------------------------------------


@pytest.fixture
def at_a_terminal() -> Iterator[None]:
    """What is started now hears when its terminal closes, also where these tests themselves do not."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("at_a_terminal")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_leaves_at_once_while_jobs_run_and_people_follow(
    new_cluster: MakeCluster, signum: signal.Signals
) -> None:
    cluster = new_cluster().start()
    cluster.accept(job("goes-on", "echo ready", "sleep 600"))
    streams = [cluster.follow("goes-on") for _ in range(5)]
    for stream in streams:
        next(frame for frame in stream if frame["kind"] == "log")
    where = cluster.get(cluster.path("goes-on", "/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"))
    connection = cluster.connect()
    connection.request("GET", where.json()["locations"][0]["uri"] + "&follow=true")
    connection.getresponse()
    assert cluster.process is not None
    cluster.process.send_signal(signum)
    # The job, and with it those who follow it, would stay for much longer.
    assert cluster.process.wait(DEADLINE_S) == 0
    log = cluster.log.read_text()
    assert "Traceback" not in log
    assert "never retrieved" not in log
    cluster.start()
    assert cluster.wait_state("goes-on", "RUNNING")["retries"] == 0
    assert cluster.log_of("goes-on") == b"ready\n"


def test_a_server_whose_streams_were_closed_serves_and_leaves_well(new_cluster: MakeCluster) -> None:
    closed = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-m", "paicluster")
    cluster = new_cluster(program=closed).start()
    assert cluster.run(job("seen", "echo x"))["state"] == "SUCCEEDED"
    assert cluster.log_of("seen") == b"x\n"
    assert cluster.process is not None
    for number in (0, 1, 2):
        assert Path(f"/proc/{cluster.process.pid}/fd/{number}").readlink() == Path(os.devnull)
    assert cluster.terminate() == 0


def test_under_nohup_it_stays_when_its_terminal_closes(new_cluster: MakeCluster) -> None:
    cluster = new_cluster(program=("nohup", sys.executable, "-m", "paicluster")).start()
    assert cluster.process is not None
    cluster.process.send_signal(signal.SIGHUP)
    assert cluster.run(job("goes-on", "true"))["state"] == "SUCCEEDED"


@pytest.mark.usefixtures("at_a_terminal")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("after_s", [0.0, 0.3, 0.6])
def test_it_leaves_well_while_it_is_still_starting(
    new_cluster: MakeCluster, signum: signal.Signals, after_s: float
) -> None:
    cluster = new_cluster()
    process = cluster.spawn()
    cluster.wait_listening_to_signals()
    # Anywhere on the way: among the imports, with the database open, with the first tasks looked for.
    time.sleep(after_s)
    process.send_signal(signum)
    assert process.wait(20) == 0
    assert "Traceback" not in cluster.log.read_text()
    assert not (cluster.home / "server.json").exists()
    assert not cluster.processes()


@pytest.mark.slow
def test_an_embedded_cluster_leaves_when_nobody_needs_it(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start("--idle-exit", "1")
    assert cluster.run(job("short", "sleep 1.5"))["state"] == "SUCCEEDED", "a job keeps it here"
    assert cluster.process is not None
    assert cluster.process.wait(20) == 0
    assert not (cluster.home / "server.json").exists()
