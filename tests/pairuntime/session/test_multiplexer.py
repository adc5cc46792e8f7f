"""The multiplexer, and what it does with a peer that is not one of ours: on a node it runs as the task."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import pytest

from pairuntime.session.multiplexer import Multiplexer
from pairuntime.transport.relay import RelayLoop
from support.server_fixture import eventually

MESSAGE, DATA, END, RESET, CREDIT = range(5)
WINDOW = 256 << 10


class End:
    """One end of a stream whose other end is the test itself, byte by byte."""

    def __init__(self) -> None:
        self.loop = RelayLoop()
        read_fd, self.to_end = os.pipe()
        self.from_end, write_fd = os.pipe()
        os.set_blocking(self.from_end, False)
        self.messages: list[dict[str, object]] = []
        self.multiplexer = Multiplexer(self.loop, read_fd, write_fd, self.messages.append)
        self._fds = (read_fd, write_fd, self.to_end, self.from_end)

    def add(self, number: int) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.multiplexer.add(number, theirs)
        return ours

    def feed(self, data: bytes) -> None:
        """Give it these bytes, in pieces that fit into a pipe."""
        for at in range(0, len(data), 1 << 15):
            os.write(self.to_end, data[at : at + (1 << 15)])
            self.loop.step(0)
        self.loop.step(0)

    def sent(self) -> list[tuple[int, int, bytes]]:
        """Frames that it has sent."""
        data = b""
        try:
            while part := os.read(self.from_end, 1 << 16):
                data += part
                self.loop.step(0)
        except BlockingIOError:
            pass
        found = []
        while data:
            number, kind, size = struct.unpack_from(">IBI", data)
            found.append((number, kind, data[9 : 9 + size]))
            assert data[9 + size : 10 + size] == b"\n"
            data = data[10 + size :]
        return found

    def close(self) -> None:
        self.loop.close()
        for fd in self._fds:
            os.close(fd)


@pytest.fixture(name="end")
def open_end() -> Iterator[End]:
    made = End()
    yield made
    made.close()


def frame(number: int, kind: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", number, kind, len(payload)) + payload + b"\n"


def test_each_direction_of_a_channel_ends_alone(end: End) -> None:
    connection = end.add(7)
    end.feed(frame(7, DATA, b"hello") + frame(7, END))
    assert connection.recv(100) == b"hello"
    assert connection.recv(100) == b""
    connection.send(b"answer")
    end.loop.step(0)
    connection.close()
    eventually(lambda: end.loop.step(0) or not end.multiplexer.has_channels, "the end of the channel")
    assert end.sent() == [(7, CREDIT, struct.pack(">I", 5)), (7, DATA, b"answer"), (7, END, b"")]


def test_frames_may_come_byte_by_byte(end: End) -> None:
    connection = end.add(1)
    for byte in frame(0, MESSAGE, b'{"open": 3}') + frame(1, DATA, b"ab"):
        end.feed(bytes((byte,)))
    assert end.messages == [{"open": 3}]
    assert connection.recv(10) == b"ab"


def test_no_more_is_sent_than_the_window(end: End) -> None:
    connection = end.add(1)
    sent = b""
    for _ in range(100):
        try:
            connection.send(bytes(1 << 16))
        except BlockingIOError:
            pass
        end.loop.step(0)
        sent += b"".join(data for _, kind, data in end.sent() if kind == DATA)
    assert len(sent) == WINDOW
    end.feed(frame(1, CREDIT, struct.pack(">I", 1000)))
    assert sum(len(data) for _, _, data in end.sent()) == 1000


def test_data_beyond_the_window_resets_the_channel_only(end: End) -> None:
    stuck, other = end.add(1), end.add(2)
    for _ in range(40):  # never read
        end.feed(frame(1, DATA, bytes(1 << 16)))
    assert (1, RESET, b"") in end.sent()
    end.feed(frame(2, DATA, b"x"))
    assert other.recv(1) == b"x"
    assert end.multiplexer.is_open
    stuck.close()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(99, DATA, b"x") + frame(99, END) + frame(99, RESET), id="unknown channel"),
        pytest.param(frame(0, MESSAGE, b"no json"), id="no json"),
        pytest.param(frame(0, MESSAGE, b"[1]"), id="no object"),
        pytest.param(frame(0, MESSAGE, b"\xff"), id="no text"),
        pytest.param(frame(0, MESSAGE, b"[" * 100_000), id="deep"),
        pytest.param(frame(1, CREDIT, b"x" * 9), id="no credit"),
        pytest.param(frame(1, 77), id="unknown kind"),
    ],
)
def test_wrong_frame_ends_at_most_its_channel(end: End, data: bytes) -> None:
    end.add(1)
    other = end.add(2)
    end.feed(data)
    assert end.multiplexer.is_open and end.messages == []
    end.feed(frame(2, DATA, b"x"))
    assert other.recv(1) == b"x"


def test_frame_that_is_too_large_ends_all(end: End) -> None:
    connection = end.add(1)
    end.feed(struct.pack(">IBI", 1, DATA, WINDOW + 1))
    assert not end.multiplexer.is_open
    assert connection.recv(1) == b""


def test_end_of_the_stream_closes_all_connections(end: End) -> None:
    connections = [end.add(number) for number in range(1, 4)]
    end.feed(b"")
    os.dup2(os.open(os.devnull, os.O_WRONLY), end.to_end)
    end.loop.step(1)
    assert not end.multiplexer.is_open and not end.multiplexer.has_channels
    assert [connection.recv(1) for connection in connections] == [b""] * 3
