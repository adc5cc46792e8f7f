"""`pai start-container`, `pai ssh-container` and `pai ssh-config`, with OpenSSH's own programs."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from pathlib import Path

import pytest

from support.cli_user import LIMIT, until
from support.ssh_client import install_openssh
from support.terminal import start_on_terminal

WHERE = ("python3", "-c", "from openpaisdk.runtime import where; print(where())")


@pytest.fixture(scope="module", autouse=True)
def openssh() -> None:
    install_openssh()


@pytest.fixture(name="job")
def running_job(user):
    """A job that runs until the test ends."""
    name = user.pai("sub", "--no-sources", "-j", "ssh_$", "--", "sleep", "600").out.strip()
    until(lambda: user.pai("exec", name, "--", "true").status == 0)
    yield name
    user.pai("stop-job", name)


def run_here(user, line: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a printed command as a user would copy it, with a command for the task."""
    return subprocess.run(
        [*shlex.split(line), *words],
        cwd=user.project,
        env=user.env(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def own_ssh_files(user) -> list[Path]:
    return sorted((user.home / ".ssh").glob("*")) if (user.home / ".ssh").exists() else []


def test_container_is_started_and_its_command_printed(user) -> None:
    done = user.pai(
        "start-container",
        "-j",
        "dev",
        "--timeout",
        "1h",
        "--cpu",
        "1",
        "--memoryMB",
        "128",
        "--vc",
        "default",
    )
    assert done.status == 0, done
    name, line = done.out.splitlines()
    assert name == "dev" and line.startswith("ssh -F none -i "), done
    key = user.project / shlex.split(line)[4]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert f"The private key is in {key.name}." in done.err
    asked = run_here(user, line, f"echo $PAI_JOB_NAME; {shlex.join(WHERE)}")
    assert asked.stdout.endswith("~dev\ninteractive\n"), asked
    assert user.pai("exec", "dev", "--", *WHERE).out == "interactive\n"
    assert "sleep 3600" in user.pai("job-status", "dev", "config").out
    assert own_ssh_files(user) == []
    user.pai("stop-job", "dev")


def test_preview_of_a_container_starts_nothing(user) -> None:
    done = user.pai("start-container", "--preview", "-j", "seen", "--image", "python:3.12", "--gpu", "2")
    assert done.status == 0 and "sleep 86400" in done.out and "python:3.12" in done.out, done
    assert "gpu: 2" in done.out
    assert user.pai("job-status", "seen").status != 0


def test_terminal_is_opened(user) -> None:
    terminal = start_on_terminal(user, "start-container", "-j", "term", "--timeout", "10m")
    terminal.wait_for("ssh -F none")
    terminal.type("echo in:$PAI_JOB_NAME; exit 3\n")
    terminal.wait_for("~term")
    assert terminal.finish() == 3
    assert own_ssh_files(user) == []
    user.pai("stop-job", "term")


def test_job_that_waits_is_named_with_the_command_for_later(user, monkeypatch, capsys) -> None:
    # More than the machine has: it waits for ever.
    for name, value in user.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(user.project)
    from openpaisdk.cli.interactive.start_container import start_container

    assert start_container(["-j", "later", "--gpu", "64"], start_timeout_s=0.5) == 0
    out, err = capsys.readouterr()
    assert out == "later\n"
    assert "Job later is still WAITING. " in err and "GPU" in err, "with the reason"
    assert "Connect later with: pai ssh-container -j later" in err
    done = user.pai("ssh-container", "-j", "later")
    assert done.status == 1 and "Job later is still WAITING: it has no container yet." in done.err, done
    assert "pai ssh-container -j later" in done.err and "Traceback" not in done.err
    user.pai("stop-job", "later")
    until(lambda: user.state("later") == "STOPPED")
    done = user.pai("ssh-config", "later")
    assert done.status == 1 and "has finished (STOPPED): its container is gone." in done.err, done


def test_running_job_is_connected(user, job: str) -> None:
    owner = user.handshake()["user"]
    done = user.pai(
        "ssh-container", "--job-name", job, "--user", str(owner), "--role", "main", "--index", "0"
    )
    assert done.status == 0, done
    (line,) = done.out.splitlines()
    assert run_here(user, line, "exit 5").returncode == 5
    # A second time, over the files of the first.
    again = user.pai("ssh-container", "-j", job)
    assert (again.status, again.out) == (0, done.out)
    wrong = user.pai("ssh-container", "-j", job, "--index", "7")
    assert wrong.status == 1 and "no running task" in wrong.err and "main-0" in wrong.err, wrong
    missing = user.pai("ssh-container", "-j", "nosuchjob")
    assert missing.status != 0 and "nosuchjob" in missing.err and "Traceback" not in missing.err, missing


def test_another_host_key_is_refused(user, job: str) -> None:
    (line,) = user.pai("ssh-container", "-j", job).out.splitlines()
    (known,) = user.project.glob("*.known_hosts")
    address, kind, key = known.read_text().split()
    known.write_text(f"{address} {kind} {key[:40]}{'A' * (len(key) - 40)}\n")
    done = run_here(user, line, "true")
    assert done.returncode == 255 and "Host key verification failed" in done.stderr, done


def test_folder_that_cannot_be_written_is_an_error(user, job: str) -> None:
    done = user.run(["sh", "-c", f"cd /proc && pai ssh-container -j {job}"])
    assert done.status == 1 and "The SSH key cannot be written" in done.err, done
    assert "Run the command in a folder that you may write to." in done.err


def test_config_serves_other_programs(user, job: str) -> None:
    folder = user.project / "a folder %h"
    folder.mkdir()
    done = user.run(
        ["sh", "-c", f"cd 'a folder %h' && pai ssh-config --user {user.handshake()['user']} {job}"]
    )
    assert done.status == 0 and done.out.startswith(f"Host {job} {job}-main-0\n"), done
    (user.project / "conf").write_text(done.out)
    for host in (job, f"{job}-main-0"):
        seen = run_here(user, "ssh -F conf", host, "echo $PAI_JOB_NAME")
        assert seen.stdout.endswith(f"~{job}\n"), seen
    (user.project / "data").write_bytes(os.urandom(100_000))
    assert run_here(user, "scp -q -F conf data", f"{job}:there").returncode == 0
    assert run_here(user, "scp -q -F conf", f"{job}:there", "back").returncode == 0
    assert (user.project / "back").read_bytes() == (user.project / "data").read_bytes()
    assert own_ssh_files(user) == []


def test_job_status_prints_what_the_api_gives(user, job: str) -> None:
    done = user.pai("job-status", job, "ssh")
    assert done.status == 0 and done.out.startswith("ssh -i ") and f"~{job}+main-0@127.0.0.1" in done.out, (
        done
    )
    assert "Download the key" in done.out and "/ssh-keys/" in done.out
