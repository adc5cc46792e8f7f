"""Raw UTF-8 in request lines, as Hadoop's Java client sends it: accepted however it arrives."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import pytest

from support.team_cluster import TeamCluster

NAME = "日本-é"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class RawPeer:
    """Connection to the server that sends bytes as they are."""

    def __init__(self, cluster: TeamCluster):
        self._socket = socket.create_connection(cluster.address, 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._socket.sendall(piece)

    def answer(self) -> Answer:
        status = self._file.readline()
        assert status, "the server closed the connection"
        headers = {}
        while line := self._file.readline().strip():
            name, _, value = line.partition(b":")
            headers[name.decode().lower()] = value.strip().decode()
        return Answer(int(status.split()[1]), headers, self._file.read(int(headers["content-length"])))

    def is_closed(self) -> bool:
        with contextlib.suppress(ConnectionResetError):
            return self._file.read() == b""
        return True

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def peer(team: TeamCluster) -> Iterator[RawPeer]:
    made = RawPeer(team)
    yield made
    made.close()


@pytest.fixture
def head(team: TeamCluster) -> str:
    """Headers of every request."""
    return f"Host: here\r\nAuthorization: Bearer {team.token}\r\n"


def request(line: str, head: str, body: bytes = b"") -> bytes:
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{line} HTTP/1.1\r\n{head}{length}\r\n".encode() + body


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (f"/{NAME}", "NoApiError"),
        (f"/api/v2/jobs/alice~{NAME}", "NoJobError"),
        (f"/rest-server/api/v2/users/{NAME}?x={NAME}", "NoUserError"),
        (f"/api/v1/user/{NAME}/jobs/{NAME}/config", "NoJobError"),
        (f"/webhdfs/v1/user/alice/{NAME}?op=GETFILESTATUS", "FileNotFoundException"),
    ],
)
def test_raw_target_equals_the_percent_encoded_one(
    peer: RawPeer, head: str, target: str, expected: str
) -> None:
    answers = []
    for written in (target, quote(target, safe="/?&=~")):
        peer.send(request(f"GET {written}", head))
        answers.append(peer.answer())
    assert answers[0] == answers[1]
    assert expected in answers[0].body.decode()


def test_raw_query_filters_jobs(peer: RawPeer, head: str) -> None:
    peer.send(request(f"GET /api/v2/jobs?keyword={NAME}", head))
    assert peer.answer()[::2] == (200, b"[]")


def test_file_with_a_raw_name_is_written_listed_and_read(peer: RawPeer, head: str) -> None:
    path = f"/webhdfs/v1/user/alice/country={NAME}"
    peer.send(request(f"PUT {path}/{NAME}?op=CREATE", head))
    location = peer.answer().headers["location"]
    assert location.isascii()
    where = urlsplit(location)
    body = "contents: é\r\n\r\n".encode()
    peer.send(request(f"PUT {where.path}?{where.query}", "Host: here\r\n", body))
    created = peer.answer()
    assert created.status == 201
    assert created.headers["location"].isascii()
    peer.send(request(f"GET {path}?op=LISTSTATUS", head))
    listed = json.loads(peer.answer().body)["FileStatuses"]["FileStatus"]
    assert [entry["pathSuffix"] for entry in listed] == [NAME]
    peer.send(request(f"PUT {path}/{NAME}?op=RENAME&destination=/user/alice/{NAME}", head))
    assert json.loads(peer.answer().body) == {"boolean": True}
    peer.send(request(f"GET /webhdfs/v1/user/alice/{NAME}?op=OPEN&data=true", head))
    assert peer.answer().body == body


def conversation() -> tuple[bytes, list[str]]:
    """Pipelined requests with raw targets behind bodies of both kinds, and what each answer contains."""
    head = "Host: x\r\n"
    tricky = "é\r\n\r\nGET /é HTTP/1.1\r\n\r\n0\r\n\r\n".encode()
    chunked = b"%x\r\n%s\r\n" % (len(tricky), tricky) + b"0\r\nX-Trailer: \xc3\xa9\r\n\r\n"
    sent = b"".join(
        [
            b"\r\n",
            request("GET /é1", head),
            request("POST /api/é2", head, tricky),
            request("GET /é3", head),
            request("POST /api/é4", head + "Transfer-Encoding: chunked\r\n") + chunked,
            b"\r\n",
            request("GET /api/é5?é", head),
            request("GET /6", head),
        ]
    )
    return sent, ["API /é1 ", "API /api/é2 ", "API /é3 ", "API /api/é4 ", "API /api/é5 ", "API /6 "]


def test_pipelined_requests_are_answered_in_order_however_they_arrive(team: TeamCluster) -> None:
    sent, expected = conversation()
    for cut in range(len(sent)):
        with contextlib.closing(RawPeer(team)) as peer:
            peer.send(*filter(None, (sent[:cut], sent[cut:])))
            for text in expected:
                assert text in peer.answer().body.decode(), (cut, text)


def test_request_that_arrives_byte_by_byte(peer: RawPeer) -> None:
    sent, expected = conversation()
    peer.send(*(sent[i : i + 1] for i in range(len(sent))))
    for text in expected:
        assert text in peer.answer().body.decode()


@pytest.mark.parametrize(
    "sent",
    [
        "GÉT / HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        "GET / HTTP/1.1é\r\nHost: x\r\n\r\n".encode(),
        "GET /é\0 HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        "GET /é é HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        "GET /é\rX HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        "GET http://é/ HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        "GET /é HTTP/1.1\r\né: x\r\n\r\n".encode(),
        "GET /é HTTP/1.1\r\nHost: x\r\n é\0\r\n\r\n".encode(),
        b"POST /\xc3\xa9 HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /\xc3\xa9 HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /\xc3\xa9 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\xc3\r\n",
    ],
)
def test_invalid_request_is_still_rejected(peer: RawPeer, sent: bytes) -> None:
    peer.send(sent + b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert peer.answer().status == 400
    assert peer.is_closed()


def test_name_that_is_not_utf8_is_an_error_message(peer: RawPeer, head: str) -> None:
    sent = request("GET /webhdfs/v1/user/alice/@?op=GETFILESTATUS", head).replace(b"@", b"\xff\xfe")
    peer.send(sent)
    answer = peer.answer()
    assert answer.status == 400
    assert b"it is not UTF-8" in answer.body


def test_raw_name_counts_against_the_limit_of_a_head(peer: RawPeer) -> None:
    line = "GET /" + "é" * (300 << 10)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        peer.send(line.encode())
    assert peer.answer().status == 431
