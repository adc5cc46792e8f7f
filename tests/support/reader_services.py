"""What a page may need beside the reader's machine; its comment `needs:` names it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from support.cloud_servers import seaweedfs
from support.external_services import debian
from support.fuse import has_fuse
from support.reader import ForegroundCommand, Reader
from support.reader_machine import HOME
from support.team_cluster import PASSWORD, add_users
from support.third_party_clients import optuna

TEAM_URL = "http://127.0.0.1:9186"
_START_TIMEOUT_S = 90


@contextlib.contextmanager
def _team(reader: Reader) -> Iterator[None]:
    """A cluster of several users, which the reader has added as `team`."""
    home = reader.home / "servers/team"
    if not home.exists():
        add_users(home)
    options = "--port 9186 --allow-shared-account --cpus 64 --memory-mb 65536 --gpus 4"
    server = ForegroundCommand(reader, HOME, f"exec paicluster serve --home {HOME}/servers/team {options}")
    add = f"pai add-cluster -a team --pai-uri {TEAM_URL} --user alice --password -"
    try:
        _until_answered(reader, server)
        reader.sh(f"echo '{PASSWORD}' | {add}")
        yield
    finally:
        with contextlib.suppress(AssertionError):
            reader.sh("pai delete-cluster team")
        server.interrupt()


def _until_answered(reader: Reader, server: ForegroundCommand) -> None:
    ask = f"import urllib.request as r; r.urlopen('{TEAM_URL}/healthz')"
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        done = reader.popen([sys.executable, "-c", ask], stderr=subprocess.DEVNULL)
        if done.wait() == 0:
            return
        assert time.monotonic() < deadline, server.printed


@contextlib.contextmanager
def _s3(reader: Reader) -> Iterator[None]:
    folder = reader.folder / "s3"
    folder.mkdir()
    with seaweedfs(folder, enter=reader.enter) as server:
        reader.variables = server.env
        try:
            yield
        finally:
            reader.variables = {}


@contextlib.contextmanager
def _curl(_: Reader) -> Iterator[None]:
    debian(["curl"], commands=["curl"])
    yield


@contextlib.contextmanager
def _ssh(_: Reader) -> Iterator[None]:
    debian(["openssh-client"], commands=["ssh", "scp"])
    yield


@contextlib.contextmanager
def _fuse(_: Reader) -> Iterator[None]:
    if not has_fuse():
        pytest.skip("This machine has no /dev/fuse.")
    yield


@contextlib.contextmanager
def _optuna(reader: Reader) -> Iterator[None]:
    reader.variables = {"PYTHONPATH": str(optuna())}
    try:
        yield
    finally:
        reader.variables = {}


SERVICES: dict[str, Callable[[Reader], AbstractContextManager[None]]] = {
    "cluster team": _team,
    "S3": _s3,
    "curl": _curl,
    "ssh": _ssh,
    "FUSE": _fuse,
    "Optuna": _optuna,
}


@contextlib.contextmanager
def services(reader: Reader, needs: tuple[str, ...]) -> Iterator[None]:
    with contextlib.ExitStack() as running:
        for need in needs:
            if not need.endswith(".md"):
                running.enter_context(SERVICES[need](reader))
        yield
