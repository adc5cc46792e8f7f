"""The tasks' client of WebHDFS, against servers and proxies that behave badly."""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pairuntime.task.webhdfs import Storage, WebHdfsError
from support.http_peer import Peer, Request, reply


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer(lambda request: reply(b""))
    yield peer
    peer.close()


def redirect(request: Request) -> bytes:
    return reply(b"", 307, "Location: http://127.0.0.1:9/elsewhere")


@pytest.mark.parametrize(
    "write",
    [
        lambda storage: storage.put_bytes(b"content", "/a"),
        lambda storage: storage.rename("/a", "/b", options="OVERWRITE"),
        lambda storage: storage.set_time("/a", 10**18),
    ],
    ids=["put", "replace", "set time"],
)
def test_redirected_write_is_no_success(peer: Peer, write: Callable[[Storage], object]) -> None:
    """As of an ingress that redirects everything: nothing was written."""
    peer.respond = redirect
    with pytest.raises(WebHdfsError, match="not WebHDFS"):
        write(Storage(peer.uri, token="t"))


def test_redirected_second_step_of_an_upload_is_no_success(peer: Peer) -> None:
    peer.respond = lambda request: reply(b"", 307, f"Location: {peer.uri}/second")
    with pytest.raises(WebHdfsError, match="not WebHDFS"):
        Storage(peer.uri).put_bytes(b"content", "/a")
    assert [request.path for request in peer.requests][-1] == "/second"


def test_redirects_in_a_loop_are_reported(peer: Peer) -> None:
    peer.respond = lambda request: reply(b"", 307, f"Location: {peer.uri}/again")
    with pytest.raises(WebHdfsError, match="The storage redirects in a loop"):
        Storage(peer.uri, token="t").download(f"{peer.uri}/file")


def test_token_is_not_sent_to_an_address_that_only_begins_the_same(peer: Peer) -> None:
    own = str(peer.port)[:-1]  # port 4321 begins as port 432
    Storage(f"http://127.0.0.1:{own}", token="secret").download(f"{peer.uri}/file")
    Storage(peer.uri, token="secret").download(f"{peer.uri}/file")
    assert [request.headers.get("authorization") for request in peer.requests] == [None, "Bearer secret"]


def breaking(peer: Peer, *answers: bytes | None) -> None:
    """The connection ends after each answer."""
    rest = iter(answers)

    def respond(request: Request) -> Iterator[bytes]:
        answer = next(rest)
        if answer is not None:
            yield answer
        raise ConnectionError

    peer.respond = respond


WHOLE = reply(b"content of a file")


def test_download_is_repeated_when_the_connection_breaks(peer: Peer, tmp_path: Path) -> None:
    """The server may be restarting: before it answers, and while it does."""
    breaking(peer, None, WHOLE[:-5], WHOLE)
    with (tmp_path / "file").open("wb") as file:
        file.write(b"before, ")
        assert Storage(peer.uri).get("/file", file) == len(b"content of a file")
    assert (tmp_path / "file").read_bytes() == b"before, content of a file"
    assert len(peer.requests) == 3


def test_download_into_a_pipe_is_not_repeated_after_its_first_bytes(peer: Peer) -> None:
    content = bytes(3 << 19)
    breaking(peer, None, reply(content)[:-5], reply(content))
    output = io.BytesIO()
    with pytest.raises(WebHdfsError, match="is incomplete"):
        Storage(peer.uri).get("/file", output, is_file=False)
    assert 0 < len(output.getvalue()) < len(content)
    assert len(peer.requests) == 2


def test_download_into_a_pipe_needs_no_position(peer: Peer) -> None:
    breaking(peer, None, WHOLE)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as output, os.fdopen(writing, "wb") as pipe:
        Storage(peer.uri).get("/file", pipe)
        pipe.close()
        assert output.read() == b"content of a file"


def test_download_that_cannot_be_written_is_not_repeated(peer: Peer) -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(28, "No space left on device")

    breaking(peer, WHOLE, WHOLE)
    with pytest.raises(OSError, match="No space left"):
        Storage(peer.uri).get("/file", Full())
    assert len(peer.requests) == 1
