"""Frames of a WebSocket: the examples of RFC 6455, any messages in any pieces, and broken frames."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairuntime.transport import websocket
from pairuntime.transport.websocket import BINARY, CLOSE, PING, TEXT, MessageReader, WebSocketError, frame


def read(data: bytes, *, masked: bool = False) -> list[tuple[int, bytes]]:
    return list(MessageReader(masked=masked).feed(data))


def test_handshake_of_the_standard() -> None:
    assert websocket.accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert len(websocket.new_key()) == 24 and websocket.new_key() != websocket.new_key()


def test_frames_of_the_standard() -> None:
    assert read(bytes.fromhex("810548656c6c6f")) == [(TEXT, b"Hello")]
    assert read(bytes.fromhex("818537fa213d7f9f4d5158"), masked=True) == [(TEXT, b"Hello")]
    # In two frames, with a ping between them.
    parts = bytes.fromhex("010348656c") + bytes.fromhex("8900") + bytes.fromhex("80026c6f")
    assert read(parts) == [(PING, b""), (TEXT, b"Hello")]
    assert frame(TEXT, b"Hello") == bytes.fromhex("810548656c6c6f")


@given(
    messages=st.lists(st.tuples(st.sampled_from((TEXT, BINARY)), st.binary(max_size=300))),
    size=st.integers(1, 50),
    masked=st.booleans(),
)
def test_messages_arrive_in_pieces_of_any_size(
    messages: list[tuple[int, bytes]], size: int, masked: bool
) -> None:
    data = b"".join(frame(opcode, payload, masked=masked) for opcode, payload in messages)
    reader = MessageReader(masked=masked)
    found = [one for at in range(0, len(data), size) for one in reader.feed(data[at : at + size])]
    assert found == messages


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 1 << 20])
def test_lengths_at_their_bounds(size: int) -> None:
    payload = bytes(size)
    assert read(frame(BINARY, payload)) == [(BINARY, payload)]
    assert read(frame(BINARY, payload, masked=True), masked=True) == [(BINARY, payload)]


_LONG = (1 << 20).to_bytes(8, "big") + bytes(1 << 20)


@pytest.mark.parametrize(
    ("data", "masked", "code"),
    [
        pytest.param(b"\x81\x01x", True, 1002, id="unmasked by a client"),
        pytest.param(b"\x81\x81keysx", False, 1002, id="masked by a server"),
        pytest.param(b"\xc1\x00", False, 1002, id="a reserved bit"),
        pytest.param(b"\x83\x00", False, 1002, id="an unknown opcode"),
        pytest.param(b"\x80\x00", False, 1002, id="a continuation of nothing"),
        pytest.param(b"\x01\x00\x01\x00", False, 1002, id="a message within a message"),
        pytest.param(b"\x09\x00", False, 1002, id="a ping in parts"),
        pytest.param(b"\x89\x7e\x00\x80" + bytes(128), False, 1002, id="a long ping"),
        pytest.param(b"\x82\x7f" + (1 << 40).to_bytes(8, "big"), False, 1009, id="announced, never sent"),
        pytest.param(b"\x02\x7f" + _LONG + b"\x00\x7e\x01\x00" + bytes(256), False, 1009, id="long in parts"),
    ],
)
def test_broken_frames_are_rejected(data: bytes, masked: bool, code: int) -> None:
    with pytest.raises(WebSocketError) as rejected:
        read(data, masked=masked)
    assert rejected.value.code == code


@given(data=st.binary(max_size=2000), masked=st.booleans())
def test_arbitrary_bytes_raise_nothing_else(data: bytes, masked: bool) -> None:
    try:
        read(data, masked=masked)
    except WebSocketError:
        pass


def test_close_frame_has_code_and_reason() -> None:
    assert read(websocket.close_frame(1002, "ö" * 100)) == [(CLOSE, b"\x03\xea" + ("ö" * 100).encode()[:123])]


def test_only_connections_that_nobody_can_read_go_without_a_mask() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as sock,
    ):
        key = websocket.key_for(sock)
        sent = websocket.frame(websocket.BINARY, b"content", masked=True, key=key)
        assert sent.endswith(b"content")
        reader = websocket.MessageReader(masked=True)
        assert list(reader.feed(sent)) == [(websocket.BINARY, b"content")]
    assert websocket.key_for(_Elsewhere()) == b""
    assert not websocket.frame(websocket.BINARY, b"content" * 9, masked=True).endswith(b"content" * 9)


class _Elsewhere:
    def getpeername(self) -> tuple[str, int]:
        return "192.0.2.1", 80
