"""A docker daemon and a registry of the tests' own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from support.external_services import debian
from support.ports import free_port

_READY_S = 90.0


@contextlib.contextmanager
def dockerd(folder: Path) -> Iterator[str]:
    """Gives the address by which its clients reach it."""
    debian(["docker.io"], commands=["docker", "dockerd"], of_newer_releases=["docker-cli"])
    address = f"unix://{folder / 'docker.sock'}"
    program = shutil.which("dockerd", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    assert program is not None
    arguments = [program, "--data-root", str(folder / "d"), "--exec-root", str(folder / "e")]
    arguments += ["-p", str(folder / "pid"), "-H", address, "--bridge=none", "--iptables=false"]
    with _running(arguments, folder / "dockerd.log", folder):
        _await(lambda: (folder / "docker.sock").exists() and _answers(["docker", "-H", address, "info"]))
        try:
            yield address
        finally:
            # It keeps a network to itself; a folder that something is mounted in cannot be removed.
            subprocess.run(["umount", "--lazy", *map(str, (folder / "e").glob("netns/*"))], check=False)


@contextlib.contextmanager
def registry(folder: Path, users: dict[str, str] | None = None) -> Iterator[str]:
    """A registry of images on a port of its own; with users, only they may look at it."""
    debian(["docker-registry", "apache2-utils"], commands=["docker-registry", "htpasswd"])
    folder.mkdir(exist_ok=True)
    port = free_port()
    auth = ""
    if users:
        lines = [
            subprocess.run(
                ["htpasswd", "-Bbn", name, password], capture_output=True, text=True, check=True
            ).stdout.strip()
            for name, password in users.items()
        ]
        (folder / "htpasswd").write_text("\n".join(lines) + "\n")
        auth = f"auth: {{htpasswd: {{realm: test, path: {folder / 'htpasswd'}}}}}\n"
    (folder / "config.yml").write_text(
        "version: 0.1\n"
        f"storage: {{filesystem: {{rootdirectory: {folder / 'images'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n" + auth
    )
    arguments = ["docker-registry", "serve", str(folder / "config.yml")]
    with _running(arguments, folder / "registry.log", folder):
        _await(lambda: _http_answers(f"http://127.0.0.1:{port}/v2/"))
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def _running(arguments: list[str], log: Path, folder: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, start_new_session=True
        )
    try:
        yield
    except AssertionError:
        print(log.read_text()[-2000:])
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _READY_S
    while not true():
        assert time.monotonic() < deadline, "the daemon did not come up"
        time.sleep(0.05)


def _answers(arguments: list[str]) -> bool:
    return subprocess.run(arguments, capture_output=True, check=False).returncode == 0


def _http_answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True  # it wants a login, so it is there
    except OSError:
        return False
    return True
