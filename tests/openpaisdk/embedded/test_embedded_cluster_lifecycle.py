"""Lifecycle of the embedded cluster: start, reuse, stop, crash, upgrade.

Commands start it in the tests of the start and wherever it starts again; `CliUser.start_cluster` in others.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from openpaisdk import __version__
from openpaisdk.embedded import start
from openpaisdk.embedded.handshake import start_time
from support.cli_user import LIMIT, until


def starts(user) -> int:
    return (user.cluster_home / "server.log").read_text().count("ready at ")


def test_first_command_starts_and_registers_cluster(new_user) -> None:
    done = new_user.sh("pai sub --follow -- echo first | cat")
    assert done.out == "first\n", done
    entries = yaml.safe_load((new_user.home / ".openpai/clusters.yaml").read_text())
    assert [e["cluster_alias"] for e in entries] == ["local"]
    assert "token" not in entries[0]
    assert new_user.pai("sub", "-f", "echo", "second").out == "second\n"
    assert starts(new_user) == 1


def test_first_use_in_a_program_registers_cluster(new_user) -> None:
    new_user.start_cluster()
    program = (
        "from openpaisdk import Cluster, ClusterList; Cluster().jobs(); print(ClusterList().load().aliases)"
    )
    done = new_user.run([sys.executable, "-c", program])
    assert done.out == "['local']\n", done


def test_server_listens_on_loopback_and_needs_token(new_user) -> None:
    new_user.pai("start-cluster")
    found = new_user.handshake()
    assert found["url"].startswith("http://127.0.0.1:")
    for name in ("server.json", "server.log"):
        assert (new_user.cluster_home / name).stat().st_mode & 0o077 == 0
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{found['url']}/api/v2/jobs")
    assert caught.value.code == 401


def test_concurrent_first_commands_start_one_cluster(new_user) -> None:
    processes = [new_user.begin("list-jobs", "-o", "json") for _ in range(4)]
    for process in processes:
        out, err = process.communicate(timeout=90)
        assert (process.returncode, json.loads(out)) == (0, []), err
    assert starts(new_user) == 1
    entries = yaml.safe_load((new_user.home / ".openpai/clusters.yaml").read_text())
    assert len(entries) == 1


@pytest.mark.slow
def test_two_homes_have_separate_clusters(new_user, other_user) -> None:
    new_user.start_cluster()
    a = new_user.pai("sub", "--wait", "-o", "json", "true")
    b = other_user.pai("list-jobs", "-o", "json")
    assert json.loads(a.out)["state"] == "SUCCEEDED" and json.loads(b.out) == []
    mine, theirs = new_user.handshake(), other_user.handshake()
    assert mine["url"] != theirs["url"]
    request = urllib.request.Request(
        f"{theirs['url']}/api/v2/jobs", headers={"Authorization": f"Bearer {mine['token']}"}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == 401


@pytest.mark.slow
def test_jobs_survive_stop_and_are_adopted(new_user) -> None:
    new_user.start_cluster()
    job = new_user.pai("sub", "echo begun; sleep 2; echo done").out.strip()
    until(lambda: new_user.state(job) == "RUNNING")
    assert "Running jobs continue" in new_user.pai("stop-cluster").err
    assert "is not running" in new_user.pai("cluster-status").out
    assert not (new_user.cluster_home / "server.json").exists()
    done = new_user.pai("logs", "-f", job)
    assert (done.status, done.out) == (0, "begun\ndone\n"), done
    assert new_user.pai("stop-cluster").status == 0
    assert "is not running" in new_user.pai("stop-cluster").err


def test_stop_cluster_now_stops_jobs(new_user) -> None:
    new_user.start_cluster()
    new_user.pai("sub", "echo $$ > pid; exec sleep 300")
    until(lambda: list(new_user.cluster_home.glob("tasks/*/*/work/pid")))
    pid_file = next(iter(new_user.cluster_home.glob("tasks/*/*/work/pid")))
    until(lambda: pid_file.read_text().strip())
    pid = int(pid_file.read_text())
    assert start_time(pid) is not None
    done = new_user.pai("stop-cluster", "--now")
    assert done.status == 0, done
    assert start_time(pid) is None
    assert "is not running" in new_user.pai("cluster-status").out


@pytest.mark.slow
def test_stop_cluster_now_stops_jobs_of_stopped_cluster(new_user) -> None:
    new_user.start_cluster()
    job = new_user.pai("sub", "sleep", "300").out.strip()
    until(lambda: new_user.state(job) == "RUNNING")
    new_user.pai("stop-cluster")
    assert new_user.pai("stop-cluster", "--now").status == 0
    assert new_user.state(job) == "STOPPED"


@pytest.mark.slow
def test_commands_succeed_during_restarts(new_user) -> None:
    new_user.start_cluster()
    stopper = new_user.begin("stop-cluster")
    commands = [new_user.begin("list-jobs", "-o", "json") for _ in range(3)]
    for process in (stopper, *commands):
        out, err = process.communicate(timeout=90)
        assert process.returncode == 0, (out, err)


def test_killed_cluster_is_restarted_without_loss(new_user) -> None:
    new_user.start_cluster()
    job = new_user.pai("sub", "sleep 1; echo survived").out.strip()
    os.kill(new_user.handshake()["pid"], signal.SIGKILL)
    done = new_user.pai("logs", "-f", job)
    assert (done.status, done.out) == (0, "survived\n"), done
    assert starts(new_user) == 2


@pytest.mark.parametrize("end", [pytest.param("killed", marks=pytest.mark.slow), "stopped"])
def test_next_server_has_the_address_that_running_tasks_know(new_user, end: str) -> None:
    report = 'echo result > "$PAI_OUTPUT_DIR/r"; until [ -e end ]; do sleep 0.05; done'
    new_user.start_cluster()
    job = new_user.pai("sub", "--no-sources", report).out.strip()
    before = new_user.handshake()
    until(lambda: list(new_user.cluster_home.glob("tasks/*/*/work/.pai/output/r")))
    if end == "killed":
        os.kill(before["pid"], signal.SIGKILL)
    else:
        new_user.pai("stop-cluster")
    (work,) = new_user.cluster_home.glob("tasks/*/*/work")
    (work / "end").touch()
    assert new_user.pai("wait", job).status == 0
    after = new_user.handshake()
    assert after["url"] == before["url"] and after["pid"] != before["pid"]
    assert new_user.pai("job-outputs", job, "peek", "r").out == "result\n"


@pytest.mark.slow
def test_port_of_the_last_server_that_is_taken_is_not_missed(new_user) -> None:
    new_user.start_cluster()
    port = int(new_user.handshake()["url"].rpartition(":")[2])
    new_user.pai("stop-cluster")
    with socket.create_server(("127.0.0.1", port)):
        assert new_user.pai("start-cluster").status == 0
        assert new_user.handshake()["url"] != f"http://127.0.0.1:{port}"


@pytest.mark.slow
@pytest.mark.parametrize("stale", [{"pid": 1}, {"start_time": 1}, {"boot_id": "another"}])
def test_stale_handshake_never_leaks_token(new_user, stale: dict[str, object]) -> None:
    new_user.start_cluster()
    os.kill(new_user.handshake()["pid"], signal.SIGKILL)
    visits = []
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def listen() -> None:
            try:
                while True:
                    visits.append(stranger.accept())
            except OSError:
                pass

        threading.Thread(target=listen, daemon=True).start()
        new_user.change_handshake(url=f"http://127.0.0.1:{stranger.getsockname()[1]}", **stale)
        done = new_user.pai("list-jobs", "-o", "json")
        assert (done.status, json.loads(done.out)) == (0, []), done
        stranger.shutdown(socket.SHUT_RDWR)
    assert visits == []


@pytest.mark.slow
def test_incomplete_handshake_is_ignored(new_user) -> None:
    new_user.start_cluster()
    os.kill(new_user.handshake()["pid"], signal.SIGKILL)
    (new_user.cluster_home / "server.json").write_text('{"url": "http')
    assert new_user.pai("list-jobs").status == 0


@pytest.mark.slow
def test_port_in_use_is_one_line_error(new_user) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = new_user.pai("start-cluster", "--port", str(port))
    assert done.status == 1 and str(port) in done.err and "Traceback" not in done.err, done
    assert new_user.pai("start-cluster").status == 0


def test_second_start_reports_running_cluster(new_user) -> None:
    assert "is now running" in new_user.pai("start-cluster").out
    assert "is already running" in new_user.pai("start-cluster").out


@pytest.mark.slow
def test_newer_command_line_upgrades_cluster_and_jobs_continue(new_user) -> None:
    new_user.start_cluster()
    job = new_user.pai("sub", "echo before; sleep 2; echo after").out.strip()
    until(lambda: new_user.state(job) == "RUNNING")
    before = new_user.handshake()["pid"]
    new_user.change_handshake(version="0.0.1")
    done = new_user.pai("logs", "-f", job)
    assert done.out == "before\nafter\n" and "Upgrading the embedded cluster from 0.0.1" in done.err, done
    assert new_user.handshake()["pid"] != before and new_user.handshake()["version"] == __version__
    assert start_time(before) is None
    copies = list((new_user.cluster_home / "backups").glob("*-0.0.1/cluster.db"))
    assert len(copies) == 1 and copies[0].stat().st_size > 0


@pytest.mark.slow
def test_older_command_line_keeps_newer_cluster(new_user) -> None:
    new_user.start_cluster()
    before = new_user.handshake()["pid"]
    new_user.change_handshake(version="99.0")
    assert new_user.pai("sub", "-f", "echo", "fine").out == "fine\n"
    assert new_user.handshake()["pid"] == before


@pytest.mark.slow
def test_follow_survives_restarts_without_gaps(new_user) -> None:
    code = "import time\nfor i in range(300): print(f'line {i}', flush=True); time.sleep(0.01)"
    new_user.write(count__py=code)
    new_user.start_cluster()
    follower = new_user.begin("sub", "--follow", "python", "count.py")
    assert follower.stdout.readline() == "line 0\n"
    os.kill(new_user.handshake()["pid"], signal.SIGKILL)
    for i in range(1, 60):
        assert follower.stdout.readline() == f"line {i}\n"
    new_user.pai("stop-cluster")
    new_user.pai("start-cluster")
    out, err = follower.stdout.read(), follower.stderr.read()
    assert out == "".join(f"line {i}\n" for i in range(60, 300)), err
    assert follower.wait(60) == 0, err


@pytest.mark.slow
def test_follower_waits_for_stopped_cluster(new_user) -> None:
    new_user.start_cluster()
    follower = new_user.begin("sub", "--follow", "sleep 3; echo done")
    until(lambda: "RUNNING" in new_user.pai("list-jobs").out)
    new_user.pai("stop-cluster")
    while "Connection to the cluster lost" not in (line := follower.stderr.readline()):
        assert line, "it left"
    assert "is not running" in new_user.pai("cluster-status").out
    new_user.pai("start-cluster")
    out, err = follower.stdout.read(), follower.stderr.read()
    assert out == "done\n" and "Reconnected to the cluster" in err


ELSEWHERE = """
import sys
from openpaisdk.embedded import home
home.LOCAL_DISKS = ({disk!r},)
home.network_type = lambda path, mounts="": "" if path.startswith({disk!r}) else "nfs4"
from openpaisdk.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def test_state_is_on_local_disk_if_home_is_on_network_fs(new_user, tmp_path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    first = new_user.run([sys.executable, "-c", ELSEWHERE.format(disk=str(disk)), "sub", "-f", "echo", "hi"])
    assert first.out == "hi\n", first
    assert list(disk.glob("openpai-*/*/cluster.db")) and not list(new_user.home.rglob("cluster.db"))
    # the pointer is enough: an unchanged pai finds the same cluster
    assert len(json.loads(new_user.pai("list-jobs", "-o", "json").out)) == 1


PRETENDING = """
import sys
sys.platform = {platform!r}
from openpaisdk.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(("platform", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_unsupported_platform_suggests_add_cluster(new_user, platform: str, name: str) -> None:
    done = new_user.run([sys.executable, "-c", PRETENDING.format(platform=platform), "list-jobs"])
    assert done.status == 1 and f"not on {name}" in done.err and "pai add-cluster" in done.err, done


@pytest.mark.slow
def test_start_failure_is_one_line_error(new_user) -> None:
    new_user.start_cluster()
    new_user.pai("stop-cluster")
    (new_user.cluster_home / "cluster.db").write_bytes(b"this is no database" * 1000)
    for left in new_user.cluster_home.glob("cluster.db-*"):
        left.unlink()
    done = new_user.pai("list-jobs")
    assert done.status == 1 and "could not start" in done.err and "Traceback" not in done.err, done
    (new_user.cluster_home / "cluster.db").unlink()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account")
def test_home_of_another_user_is_rejected(new_user) -> None:
    new_user.start_cluster()
    new_user.pai("stop-cluster")
    os.chown(new_user.cluster_home, 12345, 12345)
    done = new_user.pai("list-jobs")
    os.chown(new_user.cluster_home, 0, 0)
    assert done.status == 1 and "belongs to another user" in done.err, done


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account")
def test_unprivileged_user_can_run_cluster(tmp_path) -> None:
    folder = tmp_path / "nobody"
    folder.mkdir()
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)
    os.chown(folder, 65534, 65534)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "HOME": str(folder), "PATH": path}
    how = {"env": env, "cwd": folder, "user": 65534, "group": 65534, "extra_groups": []}
    try:
        subprocess.run(["pai", "--version"], capture_output=True, check=True, **how)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the interpreter cannot be run by other users here")

    def pai(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["pai", *words], capture_output=True, text=True, timeout=90, **how)

    done = pai("sub", "--follow", "id", "-u")
    assert done.stdout == "65534\n", done
    assert pai("stop-cluster", "--now").returncode == 0


def servers_of(user) -> list[str]:
    """The server processes of this user, including one that is still starting."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().decode(errors="replace")
            if "paicluster" in words and str(user.home) in words:
                found.append(words)
    return found


def test_interrupted_start_leaves_no_server(new_user) -> None:
    begun = new_user.begin("sub", "true")
    until(lambda: servers_of(new_user))
    begun.send_signal(signal.SIGINT)
    assert begun.wait(LIMIT) == 130
    until(lambda: not servers_of(new_user))


def test_killed_start_is_continued_by_the_next_command(new_user) -> None:
    """The server of the killed command has not locked the home yet when the next command looks."""
    begun = new_user.begin("list-jobs", "-o", "json")
    until(lambda: servers_of(new_user))
    begun.kill()
    begun.wait(LIMIT)
    done = new_user.pai("list-jobs", "-o", "json")
    assert (done.status, done.out.strip()) == (0, "[]"), done
    # Where the next command has started one, too, the slower one of both finds the home locked and ends.
    # Before that the cluster must not be stopped: the home would be free again, and it would start.
    until(lambda: len(servers_of(new_user)) == 1)
    assert starts(new_user) == 1


def test_interrupt_while_the_process_is_created_leaves_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the start of the server's process and the return of Popen."""
    processes = []
    popen = subprocess.Popen

    def interrupted(*arguments, **options):
        processes.append(popen(["sleep", "600"]))
        os.kill(os.getpid(), signal.SIGINT)
        return processes[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start._spawn(str(tmp_path), 0)
    assert processes[0].wait(LIMIT) == -signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
