"""Multipart bodies: whole files that change while they are sent, and chunks of another size."""

import pytest

from openpaisdk.paddlecloud.multipart import BOUNDARY, FileForm, SourceChanged, read_chunk
from paiprotocol.errors import ConnectionFailed


def test_form_has_the_announced_size_and_escapes_its_name(tmp_path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x" * 3_000_000)
    form = FileForm(str(file), 'a "quoted"\n name', 3_000_000)
    body = b"".join(form.chunks())
    assert len(body) == form.size
    boundary = form.content_type.partition("boundary=")[2].encode()
    head, _, rest = body.partition(b"\r\n\r\n")
    assert head.startswith(b"--" + boundary + b"\r\n")
    assert b'name="file"; filename="a \\"quoted\\"%0A name"' in head
    assert rest == b"x" * 3_000_000 + b"\r\n--" + boundary + b"--\r\n"


@pytest.mark.parametrize("size", [5, 20])
def test_form_of_a_file_of_another_size_never_ends(tmp_path, size: int) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x" * 10)
    form = FileForm(str(file), "f", size)
    sent = []
    with pytest.raises(SourceChanged, match="changed while it was copied"):
        for part in form.chunks():
            sent.append(part)
    assert not any(part.startswith(b"\r\n--") for part in sent), "the server takes an end for a whole file"


class Reply:
    """A response in pieces."""

    def __init__(self, *pieces: bytes):
        self.pieces = list(pieces)

    def read_some(self) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    def read(self) -> bytes:
        rest, self.pieces = b"".join(self.pieces), []
        return rest

    def read_into(self, buffer: memoryview) -> int:
        data = self.read()
        self.pieces = [data[len(buffer) :]]
        data = data[: len(buffer)]
        buffer[: len(data)] = data
        return len(data)


HEAD = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="chunk"; filename="x"\r\n\r\n'.encode()
TAIL = f"\r\n--{BOUNDARY}--\r\n".encode() + b'{"err":"","results":null}\n'


@pytest.mark.parametrize("cut", [1, 30, len(HEAD), len(HEAD) + 2, len(HEAD) + 5, len(HEAD) + 9])
def test_chunk_arrives_in_any_pieces(cut: int) -> None:
    whole = HEAD + b"01234" + TAIL
    buffer = memoryview(bytearray(5))
    assert read_chunk(Reply(whole[:cut], whole[cut:]), buffer) == 5
    assert bytes(buffer) == b"01234"


@pytest.mark.parametrize("content", [b"0123", b"012345", b""])
def test_chunk_of_another_size_is_an_error(content: bytes) -> None:
    with pytest.raises(ConnectionFailed, match="another size"):
        read_chunk(Reply(HEAD + content + TAIL), memoryview(bytearray(5)))


def test_reply_without_a_chunk_is_an_error() -> None:
    with pytest.raises(ConnectionFailed, match="sent no chunk"):
        read_chunk(Reply(b'{"err":"no such file or directory","results":null}'), memoryview(bytearray(5)))
