"""What goes to or comes from an HDFS is compared with the checksum it keeps, whatever the other end is.

The HDFS is the WebHDFS of a cluster here; `test_webhdfs_against_hdfs` has the real one.
"""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterator

import pytest

from openpaisdk.client import Endpoint
from openpaisdk.errors import Conflict, ConnectionFailed
from openpaisdk.storage.backends.base import PART_BYTES, Backend
from openpaisdk.storage.backends.connection_pool import ConnectionPool
from openpaisdk.storage.backends.hdfs_checksum import file_md5, incremental_checksum
from openpaisdk.storage.backends.webhdfs import WebHdfs
from openpaisdk.storage.catalog import StorageOpener
from openpaisdk.storage.location import Location
from openpaisdk.storage.transfer.copy import CopyOperation, from_stream, to_stream
from openpaisdk.storage.transfer.stream_upload import StreamUpload
from support.storage_fixture import Desk

CONTENT = b"right" * 600_000
"""Long enough not to travel packed."""


class _Both(StorageOpener):
    """`hdfs:/path` is the HDFS, everything else a file of the cluster, over HTTP."""

    def __init__(self, desk: Desk):
        super().__init__()
        endpoint = Endpoint(desk.url, desk.user, desk.token)
        self.hdfs: Backend = WebHdfs(ConnectionPool("hdfs", endpoint), url="hdfs://h")
        self.own: Backend = desk.storage(over_http=True).backend

    def open(self, place: Location) -> tuple[Backend, str]:
        if place.text.startswith("hdfs:"):
            return self.hdfs, place.text.removeprefix("hdfs:")
        return self.own, place.text


@pytest.fixture
def both(desk: Desk) -> Iterator[_Both]:
    both = _Both(desk)
    yield both
    both.hdfs.close()
    both.own.close()


def _place(text: str) -> Location:
    return Location("pai", text, text)


def _written(both: _Both, path: str) -> bytes:
    out: list[bytes] = []
    to_stream(both, _place(path), lambda data: out.append(bytes(data)))
    return b"".join(out)


@pytest.fixture
def damaging_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    read = WebHdfs.read
    monkeypatch.setattr(WebHdfs, "read", lambda self, *a: (bytes(data).upper() for data in read(self, *a)))


@pytest.fixture
def damaging_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    put = WebHdfs.put

    def wrong(self: WebHdfs, path: str, size: int, chunks: Callable[[], object], mode: int) -> None:
        read = lambda: (bytes(data).upper() for data in chunks())  # type: ignore[attr-defined]  # noqa: E731
        put(self, path, size, read, mode)

    monkeypatch.setattr(WebHdfs, "put", wrong)


def test_a_checksum_is_the_same_made_of_a_file_and_of_ranges_in_any_order(desk: Desk) -> None:
    size = 3 * PART_BYTES + 777
    content = os.urandom(size)
    several = f"MD5-of-{(1 << 20) // 512}MD5-of-512CRC32C"
    made = incremental_checksum(several)
    assert made is not None
    ranges = [0, PART_BYTES, 2 * PART_BYTES, 3 * PART_BYTES]
    random.Random(7).shuffle(ranges)
    for at in ranges:
        data = content[at : at + PART_BYTES]
        # As a wire cuts them; and once it is sent again after it was lost in the middle.
        lost = made.observe(at, iter([data[:1000]]))
        next(lost)
        for _ in made.observe(at, iter([data[:1000], data[1000:5000], data[5000:]])):
            pass
        made.confirm(at)
    with desk.write("f", content).open("rb") as f:
        assert made.md5(several, size) == file_md5(f.fileno(), size, several)


def test_what_did_not_all_go_by_is_not_compared() -> None:
    made = incremental_checksum("MD5-of-0MD5-of-512CRC32C")
    assert made is not None
    for _ in made.observe(PART_BYTES, iter([b"the end"])):
        pass
    made.confirm(PART_BYTES)
    assert made.md5("MD5-of-0MD5-of-512CRC32C", PART_BYTES + 7) is None


def test_of_what_goes_on_in_the_middle_nothing_piles_up() -> None:
    made = incremental_checksum("MD5-of-0MD5-of-512CRC32C")
    assert made is not None
    for number in range(1, 200):
        for _ in made.observe(number * PART_BYTES, iter([b"some"])):
            pass
        made.confirm(number * PART_BYTES)
    assert len(made._early) < 100 and not made._observed


def test_a_stream_to_an_hdfs_is_compared(desk: Desk, both: _Both, damaging_writes: None) -> None:
    path = f"{desk.path}/f"
    with pytest.raises(ConnectionFailed, match="damaged"):
        from_stream(both, io.BytesIO(CONTENT), _place(f"hdfs:{path}"))
    assert both.own.list_folder(desk.path) == []


def test_a_stream_from_an_hdfs_is_compared(desk: Desk, both: _Both, damaging_reads: None) -> None:
    path = f"{desk.path}/f"
    from_stream(both, io.BytesIO(CONTENT), _place(f"hdfs:{path}"))
    with pytest.raises(ConnectionFailed, match="damaged"):
        _written(both, f"hdfs:{path}")
    assert _written(both, path) == CONTENT


def test_from_an_hdfs_to_a_cluster_over_http_is_compared(
    desk: Desk, both: _Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = f"hdfs:{desk.path}/f", f"{desk.path}/g"
    from_stream(both, io.BytesIO(CONTENT), _place(source))
    with monkeypatch.context() as wire:
        read = WebHdfs.read
        wire.setattr(WebHdfs, "read", lambda self, *a: (bytes(data).upper() for data in read(self, *a)))
        with pytest.raises(ConnectionFailed, match="damaged"):
            CopyOperation.plan(both, _place(source), _place(target)).run()
    assert both.own.status(target) is None
    CopyOperation.plan(both, _place(source), _place(target)).run()
    assert _written(both, target) == CONTENT


def test_from_a_cluster_over_http_to_an_hdfs_is_compared(
    desk: Desk, both: _Both, damaging_writes: None
) -> None:
    source = f"{desk.path}/f"
    from_stream(both, io.BytesIO(CONTENT), _place(source))
    with pytest.raises(ConnectionFailed, match="damaged"):
        CopyOperation.plan(both, _place(source), _place(f"hdfs:{desk.path}/g")).run()
    assert [entry.name for entry in both.own.list_folder(desk.path)] == ["f"]


def test_fsspec_compares_what_it_puts_and_gets(
    desk: Desk, both: _Both, damaging_writes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    fs = fsspec.filesystem("pai", skip_instance_cache=True)
    monkeypatch.setattr(fs, "_resolve", lambda path: (both.hdfs, f"{desk.path}/{path.rpartition('/')[2]}"))
    local = desk.write("f", CONTENT)
    with pytest.raises(OSError, match="damaged"):
        fs.put_file(str(local), "pai://team/0/f")
    with pytest.raises(OSError, match="damaged"):
        fs.pipe_file("pai://team/0/f", CONTENT)
    assert both.own.list_folder(desk.path) == []
    from_stream(both, io.BytesIO(CONTENT), _place(f"{desk.path}/g"))
    read = WebHdfs.read
    monkeypatch.setattr(WebHdfs, "read", lambda self, *a: (bytes(data).upper() for data in read(self, *a)))
    with pytest.raises(OSError, match="damaged"):
        fs.get_file("pai://team/0/g", str(desk.here / "back"))
    assert [each.name for each in desk.here.iterdir()] == ["f"]


@pytest.mark.parametrize("size", [3, len(CONTENT)])
def test_a_file_from_before_1970_goes_to_an_hdfs_once(desk: Desk, both: _Both, size: int) -> None:
    os.utime(desk.write("d/old", CONTENT[:size]), ns=(-1_500_000_000, -1_500_000_000))
    desk.ok("copy", "d", f"{desk.there}/d")
    one, all_of_it = f"{desk.path}/d/old", f"{desk.path}/d"
    for source in (one, all_of_it):
        target = f"hdfs:{desk.path}/to{len(source)}"
        assert (
            CopyOperation.plan(both, _place(source), _place(target), sync=source is all_of_it).run().files
            == 1
        )
        again = CopyOperation.plan(both, _place(source), _place(target), sync=source is all_of_it)
        assert again.transfer_plan.new.count == 0
    assert _written(both, target.removeprefix("hdfs:") + "/old") == CONTENT[:size]


def test_of_two_who_make_the_same_file_of_an_hdfs_the_second_is_refused(desk: Desk, both: _Both) -> None:
    path = f"{desk.path}/f"
    first, second = (StreamUpload(both.hdfs, path, overwrite=False) for _ in range(2))
    first.add(b"first")
    second.add(b"second")
    first.finish()
    with pytest.raises(Conflict):
        second.finish()
    with pytest.raises(Conflict, match="already exists"):
        StreamUpload(both.hdfs, path, overwrite=False)
    assert [entry.name for entry in both.hdfs.list_folder(desk.path)] == ["f"]
    assert _written(both, path) == b"first"


def test_nobody_is_asked_for_a_checksum_that_cannot_be_compared(
    desk: Desk, both: _Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(WebHdfs, "checksum_type", lambda self: "COMPOSITE-CRC32C")
    monkeypatch.setattr(WebHdfs, "checksum", lambda self, path: asked.append(path))
    from_stream(both, io.BytesIO(CONTENT), _place(f"hdfs:{desk.path}/f"))
    assert asked == []
    assert _written(both, f"{desk.path}/f") == CONTENT
