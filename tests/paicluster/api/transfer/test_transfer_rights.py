"""Downloads end with the rights with which they began."""

from __future__ import annotations

import contextlib
import os
import socket
import time

import pytest

from support.server_fixture import DEADLINE_S, eventually
from support.team_cluster import TeamCluster

# Takes minutes to read, and no space.
SIZE = 1 << 36
BEGINNING = 1 << 20
PATH = "/user/bob/endless/file"
HDFS = "/webhdfs/v1/user/bob/endless"
# For clients whose connections are not at their end, sooner: a busy machine takes its time.
CUT_DEADLINE_S = 5 + DEADLINE_S


@pytest.fixture
def endless(team: TeamCluster) -> None:
    """A large file of bob."""
    created = team.ask(
        "PUT", f"{HDFS}/file?op=CREATE&data=true&overwrite=true", b"0", token=team.tokens["bob"]
    )
    assert created.status == 201, created.text
    os.truncate(team.home / "storage" / PATH.lstrip("/"), SIZE)


class Download:
    """A response of which the beginning was read."""

    def __init__(self, team: TeamCluster, path: str, token: str) -> None:
        self._peer = socket.create_connection(team.address, DEADLINE_S)
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
        self._peer.sendall(request.encode())
        first = self._peer.recv(1 << 16)
        assert first.startswith(b"HTTP/1.1 200"), first[:500]
        self.read(BEGINNING)

    def read(self, size: int) -> int:
        """Read so many bytes, or to the end; returns how many there were."""
        done = 0
        with contextlib.suppress(ConnectionResetError):
            while done < size and (data := self._peer.recv(min(1 << 20, size - done))):
                done += len(data)
        return done

    def is_cut(self) -> bool:
        """Whether it ends before its end."""
        began = time.monotonic()
        while time.monotonic() < began + CUT_DEADLINE_S:
            if self.read(BEGINNING) < BEGINNING:
                return True
        return False

    def close(self) -> None:
        self._peer.close()


@pytest.mark.parametrize(
    "path",
    [
        f"/api/v2/transfer/file?path={PATH}",
        f"{HDFS}/file?op=OPEN&data=true",
        f"{HDFS}?op=GETARCHIVE&data=true",
    ],
    ids=["range", "open", "archive"],
)
def test_download_ends_when_its_user_is_disabled(team: TeamCluster, endless: None, path: str) -> None:
    admin = team.tokens["admin"]
    with contextlib.closing(Download(team, path, team.tokens["bob"])) as download:
        try:
            assert (
                team.ask("PUT", "/api/v2/users/bob/disabled", {"disabled": True}, token=admin).status == 201
            )
            assert download.is_cut()
        finally:
            done = team.ask("PUT", "/api/v2/users/bob/disabled", {"disabled": False}, token=admin)
            assert done.status == 201, done.text


def test_download_ends_with_the_rights_of_an_administrator(team: TeamCluster, endless: None) -> None:
    path = f"{HDFS}/file?op=OPEN&data=true"
    with team.as_administrator("alice"):
        download = Download(team, path, team.tokens["alice"])
    with contextlib.closing(download):
        assert download.is_cut()


def test_download_goes_on_when_something_else_of_its_user_changes(team: TeamCluster, endless: None) -> None:
    path = f"{HDFS}/file?op=OPEN&data=true"
    with contextlib.closing(Download(team, path, team.tokens["bob"])) as download:
        body = {"email": "bob@example.org"}
        changed = team.ask("PUT", "/api/v2/users/bob/email", body, token=team.tokens["admin"])
        assert changed.status == 201, changed.text
        assert download.read(64 * BEGINNING) == 64 * BEGINNING


def test_stream_that_is_cut_is_one_line_in_the_log(team: TeamCluster, endless: None) -> None:
    before = team.log.stat().st_size
    with team.as_administrator("alice"):
        download = Download(team, f"{HDFS}?op=GETARCHIVE&data=true", team.tokens["alice"])
    with contextlib.closing(download):
        assert download.is_cut()
    why = "a response to GET was cut: The rights with which this transfer began have ended."

    def logged() -> str:
        return team.log.read_bytes()[before:].decode()

    eventually(lambda: why in logged(), "the line of the log")
    assert logged().count(why) == 1 and "Traceback" not in logged()
