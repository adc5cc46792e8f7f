"""`paicluster serve`: startup, startup errors, shutdown."""

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


@pytest.fixture(scope="module")
def used_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a cluster that ran once."""
    cluster = Cluster(tmp_path_factory.mktemp("used") / "home").start()
    assert cluster.terminate() == 0
    return cluster.home


@pytest.fixture
def used_cluster(used_home: Path, new_cluster: MakeCluster) -> Cluster:
    """A stopped cluster that ran before; the test may damage it."""
    cluster = new_cluster()
    # The home contains a named pipe, which shutil does not copy.
    subprocess.run(["cp", "-a", str(used_home), str(cluster.home)], check=True)
    return cluster


def startup_error(cluster: Cluster, *options: str) -> str:
    """The error of a server that does not start: it exits non-zero, without a traceback."""
    log = cluster.log
    before = log.stat().st_size if log.exists() else 0
    process = cluster.fork(*options)
    try:
        assert process.wait(DEADLINE_S) not in (0, None)
    finally:
        process.kill()
        process.wait()
    message = log.read_bytes()[before:].decode()
    assert "Traceback" not in message, message
    assert 1 <= len(message.strip().splitlines()) <= 2, message
    return message


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "ro") as disk:
        yield disk


# -- startup --------------------------------------------------------------------------------------


def test_handshake_file_is_private_and_identifies_the_server(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start()
    file = cluster.home / "server.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert cluster.home.stat().st_mode & 0o077 == 0
    handshake = json.loads(file.read_text())
    assert cluster.process is not None
    assert handshake["pid"] == cluster.process.pid
    assert set(handshake) >= {"url", "pid", "boot_id", "start_time", "version", "user", "token"}
    assert (cluster.home / "cluster.db").stat().st_mode & 0o077 == 0
    for key in (cluster.home / "keys").iterdir():
        assert key.stat().st_mode & 0o777 == 0o600
    cluster.terminate()
    assert not file.exists()


def test_embedded_token_survives_a_restart(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start()
    token = cluster.token
    cluster.kill()
    cluster.start()
    assert cluster.token == token


def test_generated_admin_password_is_shown_once(new_cluster: MakeCluster) -> None:
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


def test_admin_password_comes_from_the_environment(new_cluster: MakeCluster) -> None:
    chosen = "chosen by the administrator"
    cluster = new_cluster(options=(), variables={"PAICLUSTER_ADMIN_PASSWORD": chosen}).start()
    assert chosen not in cluster.log.read_text()
    for password, status in ((chosen, 200), ("another one", 400)):
        login = {"username": "admin", "password": password}
        assert cluster.ask("POST", "/api/v2/authn/basic/login", login, token=None).status == status
    # It applies to the first start only.
    cluster.terminate()
    cluster.variables = {"PAICLUSTER_ADMIN_PASSWORD": "another one"}
    cluster.start()
    login = {"username": "admin", "password": chosen}
    reply = cluster.ask("POST", "/api/v2/authn/basic/login", login, token=None)
    assert reply.status == 200
    cluster.token = reply.json()["token"]


def test_short_admin_password_is_rejected(new_cluster: MakeCluster) -> None:
    cluster = new_cluster(options=(), variables={"PAICLUSTER_ADMIN_PASSWORD": "short"})
    assert "password" in startup_error(cluster)


# -- errors ---------------------------------------------------------------------------------------


def test_garbage_is_collected_after_the_start_but_not_in_what_the_start_created(
    new_cluster: MakeCluster,
) -> None:
    program = (
        "import atexit, gc, sys; from paicluster.cli import main\n"
        "say = lambda: print('collects', gc.isenabled(), gc.get_freeze_count() > 10_000, flush=True)\n"
        "atexit.register(say); sys.exit(main())"
    )
    cluster = new_cluster(program=(sys.executable, "-c", program)).start()
    assert cluster.terminate() == 0
    assert "collects True True\n" in cluster.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"\n\xff\xfe\x00", b"", b"[[[", b"{}", b"9" * 5000], ids=range(5))
def test_damaged_files_of_the_home_stop_no_start(new_cluster: MakeCluster, damage: bytes) -> None:
    """All but the database and the keys, which nothing can replace."""
    cluster = new_cluster().start()
    assert cluster.run(job("before", "true"))["state"] == "SUCCEEDED"
    assert cluster.terminate() == 0
    damaged = []
    for path in cluster.home.rglob("*"):
        parts = path.relative_to(cluster.home).parts
        is_kept = parts[0] in ("keys", "tasks", "storage") or parts[0].startswith("cluster.db")
        if path.is_file() and not path.is_symlink() and not is_kept:
            path.write_bytes(damage)
            damaged.append("/".join(parts))
    assert {"run/prelaunch", "process", "server.port"} & set(damaged), damaged
    cluster.start()
    assert cluster.run(job("after", "true"))["state"] == "SUCCEEDED"
    assert cluster.detail("before")["jobStatus"]["state"] == "SUCCEEDED"


def test_second_server_on_one_home_does_not_start(new_cluster: MakeCluster) -> None:
    first = new_cluster().start()
    # Both write to one log: the first logs "ready" a moment after it can be reached.
    eventually(lambda: "ready at" in first.log.read_text(), "the line that it is ready")
    second = Cluster(first.home)
    assert "Another server is running" in startup_error(second)
    assert first.get("/healthz").status == 200
    assert json.loads((first.home / "server.json").read_text())["pid"] == first.process.pid  # type: ignore[union-attr]
    assert first.run(job("still-here", "true"))["state"] == "SUCCEEDED"


@pytest.mark.slow
def test_only_one_of_many_concurrent_servers_starts(new_cluster: MakeCluster) -> None:
    cluster = new_cluster()
    rivals = [Cluster(cluster.home) for _ in range(4)]
    started = [rival.spawn() for rival in rivals]
    eventually(
        lambda: sum(process.poll() is not None for process in started) == 3, "three servers that do not start"
    )
    [winner] = [rival for rival in rivals if rival.process is not None and rival.process.poll() is None]
    cluster.process = winner.process
    cluster.wait_ready()
    assert cluster.run(job("one", "true"))["state"] == "SUCCEEDED"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.invalid"])
def test_non_loopback_host_requires_tls(new_cluster: MakeCluster, host: str) -> None:
    message = startup_error(new_cluster(), "--host", host)
    assert "TLS" in message
    assert "--allow-plain-http" in message


def test_allow_plain_http_serves_other_machines(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start("--host", "0.0.0.0", "--allow-plain-http")
    assert cluster.get("/healthz").status == 200


def test_port_in_use_is_reported(new_cluster: MakeCluster) -> None:
    first = new_cluster().start()
    message = startup_error(new_cluster("other"), "--port", str(first.address[1]))
    assert f":{first.address[1]}" in message


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
def test_invalid_options_are_rejected(new_cluster: MakeCluster, options: tuple[str, ...]) -> None:
    startup_error(new_cluster(), *options)


def test_invalid_certificate_is_reported(new_cluster: MakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text("not a certificate")
    assert str(file) in startup_error(new_cluster(), "--tls-cert", str(file), "--tls-key", str(file))


def test_empty_home_option_is_rejected(new_cluster: MakeCluster) -> None:
    assert "The cluster is not specified" in startup_error(new_cluster(), "--home", "")


@pytest.mark.parametrize("name", ["tab\there", "two\nlines", "bell\x07", "\udcff"])
def test_home_path_with_control_characters_is_rejected(new_cluster: MakeCluster, name: str) -> None:
    cluster = new_cluster("other")
    assert "is not plain text" in startup_error(cluster, "--home", str(cluster.home.with_name(name)))


def test_home_path_too_long_for_sqlite_is_rejected(new_cluster: MakeCluster) -> None:
    cluster = new_cluster("/".join(["long" * 25] * 6))
    cluster.home.mkdir(parents=True)
    assert "SQLite accepts paths of at most 500 bytes" in startup_error(cluster)


def test_home_that_is_a_file_is_rejected(new_cluster: MakeCluster, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    assert "home" in startup_error(new_cluster())


def test_home_on_read_only_disk_is_reported(read_only: Path) -> None:
    for home in (read_only, read_only / "home"):
        cluster = Cluster(home)
        log = read_only.parent / "log"
        with log.open("wb") as out:
            command = [*cluster.program, "serve", "--home", str(home), "--port", "0", "--embedded"]
            ended = subprocess.run(command, stdout=out, stderr=out, check=False, timeout=DEADLINE_S)
        message = log.read_text()
        assert ended.returncode not in (0, None)
        assert "Read-only file system" in message
        assert len(message.strip().splitlines()) <= 2, message


def test_virtual_clusters_are_checked_before_the_database_is_created(new_cluster: MakeCluster) -> None:
    """A server that is upgraded with wrong settings must not migrate the database first."""
    cluster = new_cluster()
    cluster.home.mkdir()
    (cluster.home / "cluster.yaml").write_text("virtual-clusters: {lab: {cpus: 100000}}\n")
    assert "The virtual clusters together exceed the cluster's resources" in startup_error(cluster)
    assert not (cluster.home / "cluster.db").exists()


def test_file_that_is_no_database_is_reported(new_cluster: MakeCluster) -> None:
    cluster = new_cluster()
    cluster.home.mkdir()
    (cluster.home / "cluster.db").write_bytes(b"these are not the bytes of a database" * 100)
    assert "is not a database" in startup_error(cluster)


def test_damaged_database_is_reported(new_cluster: MakeCluster) -> None:
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
    assert "damaged" in startup_error(cluster)


def test_empty_database_of_a_used_cluster_is_reported(used_cluster: Cluster) -> None:
    cluster = used_cluster
    file = cluster.home / "cluster.db"
    file.write_bytes(b"")
    assert "is empty, though the cluster was used before" in startup_error(cluster)
    assert file.read_bytes() == b""
    # Removing the file starts a new database.
    file.unlink()
    cluster.start()


def test_missing_keys_are_not_replaced_silently(used_cluster: Cluster) -> None:
    cluster = used_cluster
    keys = cluster.home / "keys"
    before = {key.name: key.read_bytes() for key in keys.iterdir()}
    keys.rename(cluster.home / "elsewhere")
    message = startup_error(cluster)
    assert f"The folder {keys} is missing, though the cluster was used before" in message
    assert "backup" in message
    command = [*cluster.program, "user", "list", "--home", str(cluster.home)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "its keys are lost" in result.stderr
    assert not keys.exists()
    # An empty folder accepts new keys; the log says what is lost.
    keys.mkdir()
    cluster.start()
    cluster.terminate()
    assert "every token is invalid" in cluster.log.read_text()
    assert "secrets of jobs cannot be decrypted" in cluster.log.read_text()
    assert {key.name for key in keys.iterdir()} == set(before)
    assert not set(before.values()) & {key.read_bytes() for key in keys.iterdir()}


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 33])
def test_damaged_key_is_reported(used_cluster: Cluster, damage: bytes) -> None:
    cluster = used_cluster
    key = cluster.home / "keys" / "sealing"
    key.write_bytes(damage)
    assert f"The key {key} is damaged" in startup_error(cluster)
    assert key.read_bytes() == damage


def test_admin_commands_create_no_keys_under_a_running_server(cluster: Cluster) -> None:
    (cluster.home / "keys").rename(cluster.home / "elsewhere")
    command = [*cluster.program, "user", "list", "--home", str(cluster.home)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert f"The key {cluster.home / 'keys' / 'tokens'} cannot be read" in result.stderr
    assert not (cluster.home / "keys").exists()


def test_root_creates_nothing_in_another_users_home(new_cluster: MakeCluster) -> None:
    if os.geteuid() != 0:
        missing("root, to start a server in another user's home,")
    cluster = new_cluster()
    cluster.home.mkdir()
    for again in (False, True):
        os.chown(cluster.home, 65534, 65534)
        before = sorted(cluster.home.iterdir())
        message = startup_error(cluster)
        assert f"The home {cluster.home} belongs to nobody" in message
        assert "sudo -u nobody paicluster" in message
        command = [*cluster.program, "user", "list", "--home", str(cluster.home)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "belongs to nobody" in result.stderr
        assert sorted(cluster.home.iterdir()) == before
        os.chown(cluster.home, 0, 0)
        if not again:
            cluster.start()
            cluster.terminate()


def test_root_can_administer_another_users_server(cluster: Cluster) -> None:
    if os.geteuid() != 0:
        missing("root, to use other accounts,")
    os.chown(cluster.home, 65534, 65534)
    command = [*cluster.program, "user", "list", "--home", str(cluster.home)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result
    assert cluster.user in result.stdout


def test_database_of_a_newer_version_is_rejected(used_cluster: Cluster) -> None:
    cluster = used_cluster
    database = sqlite3.connect(cluster.home / "cluster.db")
    database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.commit()
    database.close()
    assert "newer" in startup_error(cluster)


# -- shutdown -------------------------------------------------------------------------------------


@pytest.fixture
def default_sighup() -> Iterator[None]:
    """Restore the default SIGHUP for child processes, even if the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("default_sighup")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_shutdown_is_immediate_with_running_jobs_and_followers(
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
    # The job and its followers would stay much longer.
    assert cluster.process.wait(DEADLINE_S) == 0
    log = cluster.log.read_text()
    assert "Traceback" not in log
    assert "never retrieved" not in log
    cluster.start()
    assert cluster.wait_state("goes-on", "RUNNING")["retries"] == 0
    assert cluster.log_of("goes-on") == b"ready\n"


def test_server_with_closed_stdio_serves_and_shuts_down(new_cluster: MakeCluster) -> None:
    closed = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-m", "paicluster")
    cluster = new_cluster(program=closed).start()
    assert cluster.run(job("seen", "echo x"))["state"] == "SUCCEEDED"
    assert cluster.log_of("seen") == b"x\n"
    assert cluster.process is not None
    for number in (0, 1, 2):
        assert Path(f"/proc/{cluster.process.pid}/fd/{number}").readlink() == Path(os.devnull)
    assert cluster.terminate() == 0


def test_under_nohup_sighup_is_ignored(new_cluster: MakeCluster) -> None:
    cluster = new_cluster(program=("nohup", sys.executable, "-m", "paicluster")).start()
    assert cluster.process is not None
    cluster.process.send_signal(signal.SIGHUP)
    assert cluster.run(job("goes-on", "true"))["state"] == "SUCCEEDED"


@pytest.mark.usefixtures("default_sighup")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("after_s", [0.0, 0.3, 0.6])
def test_signal_during_startup_shuts_down_cleanly(
    new_cluster: MakeCluster, signum: signal.Signals, after_s: float
) -> None:
    cluster = new_cluster()
    process = cluster.spawn()
    cluster.wait_for_signal_handlers()
    # At different stages: during imports, with the database open, during adoption of tasks.
    time.sleep(after_s)
    process.send_signal(signum)
    assert process.wait(DEADLINE_S) == 0
    assert "Traceback" not in cluster.log.read_text()
    assert not (cluster.home / "server.json").exists()
    assert not cluster.processes()


@pytest.mark.slow
def test_idle_embedded_cluster_exits(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start("--idle-exit", "1")
    assert cluster.run(job("short", "sleep 1.5"))["state"] == "SUCCEEDED", "a running job prevents the exit"
    assert cluster.process is not None
    assert cluster.process.wait(DEADLINE_S) == 0
    assert not (cluster.home / "server.json").exists()
