"""Tasks by OpenSSH's own programs: commands, terminals, files."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from paicluster.ssh.connection import MAX_UNAUTHENTICATED
from support.engine_rig import mark, running_with
from support.server_fixture import DEADLINE_S, eventually, job, role
from support.ssh_client import SshClient, download_key, new_key, ssh_info
from support.team_cluster import NewTeam, TeamCluster
from support.terminal import Terminal


def test_command_runs_in_the_task(client: SshClient) -> None:
    done = client.ssh("echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    environment = client.out("pwd; echo $PAI_JOB_NAME $PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX")
    folder, rest = environment.splitlines()
    assert folder.endswith("/work") and rest == "alice~host_endpoint 0"


def test_variables_of_the_client_are_set_but_not_its_locale(client: SshClient) -> None:
    words = ("-o", "SetEnv=COLOUR=blue LANG=xx_XX.UTF-8 LC_ALL=xx_XX.UTF-8", "task", "env")
    lines = client.run("ssh", *words).stdout.decode().splitlines()
    assert "COLOUR=blue" in lines and not any("xx_XX" in line for line in lines)


def test_bytes_arrive_unchanged(client: SshClient) -> None:
    data = os.urandom(5_000_000) + bytes(range(256))
    done = client.ssh("tee copy", input=data)
    assert done.stdout == data
    assert client.ssh("cat copy").stdout == data


def test_scp_and_sftp_copy_files_and_folders(client: SshClient, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "ünï code").write_bytes(data)
    (tmp_path / "tree" / "empty").touch(mode=0o755)
    done = client.run("scp", "-r", "-p", str(tmp_path / "tree"), "task:up")
    assert done.returncode == 0, done
    assert client.out("cd up && find . | sort && stat -c %a empty") == ".\n./a\n./a/ünï code\n./empty\n755\n"
    assert client.run("scp", "-r", "task:up", str(tmp_path / "down")).returncode == 0
    assert (tmp_path / "down" / "a" / "ünï code").read_bytes() == data
    # The older protocol, for which OpenSSH runs a second scp in the task.
    assert client.run("scp", "-O", "task:up/a/*", str(tmp_path / "old")).returncode == 0
    assert (tmp_path / "old").read_bytes() == data
    batch = b"rename up/empty up/renamed\nsymlink renamed up/link\nls -l up\n"
    done = client.run("sftp", "-b", "-", "task", input=batch)
    assert done.returncode == 0 and b"renamed" in done.stdout and b"lrwxrwxrwx" in done.stdout, done
    done = client.run("scp", "task:missing", str(tmp_path))
    assert done.returncode == 1 and b"missing" in done.stderr and b"o such file" in done.stderr, done


def test_rsync_copies_a_folder(client: SshClient, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("text")
    words = [
        "rsync",
        "-a",
        "-e",
        f"ssh -F {client.folder / 'config'}",
        f"{tmp_path / 'tree'}/",
        "task:synced/",
    ]
    subprocess.run(words, check=True, timeout=DEADLINE_S)
    assert client.out("cat synced/file") == "text"


def test_terminal_has_a_size_and_is_resized(client: SshClient) -> None:
    command = ["ssh", "-tt", "-F", str(client.folder / "config"), "task"]
    terminal = Terminal(command, 101, 31, cwd=client.folder)
    terminal.type("stty size; tty; echo $((20+22))\n")
    terminal.wait_for("\n42\r\n")
    assert "31 101" in terminal.text and "/dev/pts/" in terminal.text
    terminal.resize(77, 22)
    terminal.type("until [ \"$(stty size)\" = '22 77' ]; do :; done; echo $((60+6))\n")
    terminal.wait_for("66\r\n")
    terminal.type("sh -c 'echo sleep''ing; exec sleep 600'\n")
    terminal.wait_for("sleeping")
    terminal.type("\x03echo $((50+5)); exit 4\n")
    terminal.wait_for("55\r\n")
    assert terminal.finish() == 4


def test_killed_client_leaves_nothing_behind(client: SshClient) -> None:
    word = mark()
    process = client.start("task", f": {word}; trap '' HUP INT TERM; echo ready; sleep 600; :")
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    assert running_with(word)
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    eventually(lambda: not running_with(word), "the end of the command")


def test_user_name_selects_the_task(cluster: TeamCluster, name: str, scratch: Path) -> None:
    cluster.accept(job(name, taskRoles={"ps": role("sleep 600"), "worker": role("sleep 600", instances=2)}))
    cluster.wait_state(name, "RUNNING")
    info = eventually(
        lambda: found if len((found := ssh_info(cluster, f"alice~{name}"))["containers"]) == 3 else None
    )
    assert [one["user"].partition("+")[2] for one in info["containers"]] == ["ps-0", "worker-0", "worker-1"]
    client = SshClient(scratch, info, download_key(cluster, info))
    line = "echo $PAI_CURRENT_TASK_ROLE_NAME $PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"
    seen = {}
    for user in ("root", "worker-1", f"alice~{name}+worker-0", f"alice~{name}"):
        done = client.run("ssh", "-l", user, "task", line)
        seen[user] = done.stdout.decode().strip()
    assert list(seen.values()) == ["ps 0", "worker 1", "worker 0", "ps 0"]
    for user, sentence in (
        ("worker-2", "has 2 tasks"),
        ("nobody", "is no task"),
        ("other-0", "no task role"),
    ):
        done = client.run("ssh", "-l", user, "task", line)
        assert done.returncode == 255 and sentence in done.stderr.decode(), done
    cluster.stop(name)


# -- authority ---------------------------------------------------------------------------------


def test_key_opens_its_own_job_only(
    cluster: TeamCluster, client: SshClient, name: str, scratch: Path
) -> None:
    cluster.accept(job(name, "sleep 600"))
    other = SshClient.of_job(cluster, f"alice~{name}", scratch)
    done = client.run("ssh", "-l", f"alice~{name}", "task", "true")
    assert done.returncode == 255 and b"Permission denied (publickey)" in done.stderr, done
    assert other.out("echo $PAI_JOB_NAME") == f"alice~{name}\n"
    cluster.stop(name)


def test_only_the_user_gets_the_key(cluster: TeamCluster, client: SshClient) -> None:
    for user in ("bob", "admin"):
        info = ssh_info(cluster, "alice~host_endpoint", token=cluster.tokens[user])
        assert info["keyPair"]["privateKeyDirectDownloadLink"] == ""
        assert info["containers"][0]["sshPort"] == str(client.port)


def test_finished_job_ends_connections_and_its_key_opens_nothing(
    cluster: TeamCluster, name: str, scratch: Path
) -> None:
    cluster.accept(job(name, "sleep 600"))
    client = SshClient.of_job(cluster, f"alice~{name}", scratch)
    idle = client.start("-N", "task")
    process = client.start("task", "echo ready; sleep 600")
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    cluster.stop(name)
    cluster.wait_over(name)
    assert process.wait(DEADLINE_S) != 0 and idle.wait(DEADLINE_S) == 255
    for user in ("root", f"alice~{name}"):
        done = client.run("ssh", "-l", user, "task", "true")
        assert done.returncode == 255 and b"Permission denied" in done.stderr, done
    assert cluster.get(cluster.path(name, "/ssh")).json()["code"] == "NoJobSshInfoError"


def test_disabled_user_has_no_ssh(cluster: TeamCluster, name: str, scratch: Path) -> None:
    user, password = f"user-{name}"[:40], "disabled-user-1"
    admin = cluster.tokens["admin"]
    made = cluster.ask("POST", "/api/v2/users", {"username": user, "password": password}, token=admin)
    assert made.status == 201, made.text
    login = {"username": user, "password": password}
    session = cluster.ask("POST", "/api/v2/authn/basic/login", login, token=None).json()["token"]
    task_token = cluster.token_of_job(name, session)
    path = f"/api/v2/jobs/{user}~{name}"
    info = ssh_info(cluster, f"{user}~{name}", token=task_token)
    client = SshClient(scratch, info, download_key(cluster, info))
    idle = client.start("-N", "task")
    process = client.start("task", "echo ready; sleep 600")
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"

    def disable(value: bool) -> None:
        reply = cluster.ask("PUT", f"/api/v2/users/{user}/disabled", {"disabled": value}, token=admin)
        assert reply.status == 201, reply.text

    disable(True)
    assert process.wait(DEADLINE_S) != 0 and idle.wait(DEADLINE_S) == 255
    done = client.ssh("true")
    assert done.returncode == 255 and b"Permission denied (publickey)" in done.stderr, done
    # Nor with a copy of the job's token, or a link that it got before.
    refused = cluster.get(f"{path}/ssh", token=task_token)
    assert (refused.status, refused.json()["code"]) == (403, "DisabledUserError")
    assert refused.json()["message"] == f"User {user} is disabled: the user's jobs have no SSH."
    link = urlsplit(info["keyPair"]["privateKeyDirectDownloadLink"])
    assert cluster.get(f"{link.path}?{link.query}", token=None).json()["code"] == "DisabledUserError"
    disable(False)
    assert client.out("echo again") == "again\n"
    assert cluster.ask("PUT", f"{path}/executionType", {"value": "STOP"}, token=session).status == 202


def test_new_job_of_the_same_name_has_another_key(cluster: TeamCluster, name: str, scratch: Path) -> None:
    keys = []
    for number in range(2):
        cluster.accept(job(name, "sleep 600"))
        client = SshClient.of_job(cluster, f"alice~{name}", scratch / str(number))
        keys.append((client.folder / "key").read_bytes())
        cluster.stop(name)
        cluster.wait_over(name)
        assert cluster.ask("DELETE", f"/api/v1/jobs/{name}").status < 300
    assert keys[0] != keys[1]


def test_key_of_a_stranger_is_refused(cluster: TeamCluster, client: SshClient, scratch: Path) -> None:
    stranger = SshClient(
        scratch, ssh_info(cluster, "alice~host_endpoint"), new_key(scratch.parent / "stranger")
    )
    for user in (
        "root",
        "alice~host_endpoint",
        "alice~host_endpoint+main-0",
        "alice~none",
        "~",
        "+",
        "alice~host_endpoint+",
    ):
        done = stranger.run("ssh", "-l", user, "task", "true")
        assert done.returncode == 255 and b"Permission denied (publickey)" in done.stderr, done
    done = client.run("ssh", "-o", "PubkeyAuthentication=no", "task", "true")
    assert done.returncode == 255 and b"Permission denied (publickey)" in done.stderr, done


def test_number_of_keys_is_limited(client: SshClient, tmp_path: Path) -> None:
    words = []
    for number in range(14):
        new_key(tmp_path / str(number))
        words += ["-i", str(tmp_path / str(number))]
    done = client.run("ssh", *words, "task", "true")
    assert done.returncode == 255 and b"Too many keys" in done.stderr, done


def test_silent_connections_make_room_for_a_client(client: SshClient) -> None:
    with contextlib.ExitStack() as opened:
        silent = [
            opened.enter_context(socket.create_connection(("127.0.0.1", client.port), 90))
            for _ in range(MAX_UNAUTHENTICATED + 16)
        ]
        assert client.out("echo here") == "here\n"
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := silent[0].recv(4096):
                received += part
        assert received.startswith(b"SSH-2.0") or not received, "the oldest is closed"


def test_agent_x11_and_remote_forwarding_are_refused(client: SshClient) -> None:
    done = client.run("ssh", "-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:9", "task", "true")
    assert done.returncode == 255 and b"forward" in done.stderr.lower(), done
    done = client.run("ssh", "-A", "task", "echo agent:$SSH_AUTH_SOCK")
    assert done.stdout == b"agent:\n"


def test_connection_is_in_the_audit_log_without_its_command(cluster: TeamCluster, client: SshClient) -> None:
    word = mark()
    assert client.ssh(f": {word}").returncode == 0
    log = cluster.home / "audit.log"
    # Other tests connect with other jobs.
    eventually(
        lambda: any(
            '"SSH"' in line and "alice" in line and "host" in line for line in log.read_text().splitlines()
        ),
        "an entry",
    )
    assert word not in log.read_text() and word not in cluster.log.read_text()


def test_port_and_host_key_stay_after_a_restart(new_team: NewTeam, name: str, scratch: Path) -> None:
    cluster = new_team()
    cluster.accept(job(name, "sleep 600"))
    client = SshClient.of_job(cluster, f"alice~{name}", scratch)
    assert client.out("echo one") == "one\n"
    cluster.terminate()
    cluster.start()
    # Nobody has asked for the address again.
    eventually(lambda: client.ssh("echo two").stdout == b"two\n", "the endpoint")


@pytest.mark.slow
def test_many_connections_at_once(client: SshClient) -> None:
    processes = [client.start("task", "cat") for _ in range(30)]
    for number, process in enumerate(processes):
        out, _ = process.communicate(str(number).encode(), timeout=DEADLINE_S)
        assert out.decode() == str(number)
