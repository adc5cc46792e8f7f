"""Transfers from and to an HDFS are verified by its checksum, whatever the other end is.

The HDFS is the WebHDFS of a cluster here; `test_webhdfs_against_hdfs` has the real one.
"""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterator

import pytest

from openpaisdk.client import Endpoint
from openpaisdk.storage.backends.base import PART_BYTES, Backend
from openpaisdk.storage.backends.connection_pool import ConnectionPool
from openpaisdk.storage.backends.hdfs_checksum import file_md5, incremental_checksum
from openpaisdk.storage.backends.webhdfs import WebHdfs
from openpaisdk.storage.catalog import StorageOpener
from openpaisdk.storage.location import Location
from openpaisdk.storage.transfer.copy import CopyOperation, from_stream, to_stream
from openpaisdk.storage.transfer.stream_upload import StreamUpload
from paiprotocol.errors import Conflict, ConnectionFailed
from support.storage_fixture import StorageWorkspace

CONTENT = b"right" * 600_000
"""Too large for a pack."""


class _Both(StorageOpener):
    """`hdfs:/path` is the HDFS, everything else a file of the cluster, over HTTP."""

    def __init__(self, workspace: StorageWorkspace):
        super().__init__()
        endpoint = Endpoint(workspace.url, workspace.user, workspace.token)
        self.hdfs: Backend = WebHdfs(ConnectionPool("hdfs", endpoint), url="hdfs://h")
        self.own: Backend = workspace.storage(over_http=True).backend

    def open(self, place: Location) -> tuple[Backend, str]:
        if place.text.startswith("hdfs:"):
            return self.hdfs, place.text.removeprefix("hdfs:")
        return self.own, place.text


@pytest.fixture
def both(workspace: StorageWorkspace) -> Iterator[_Both]:
    both = _Both(workspace)
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


def test_checksum_of_a_file_equals_that_of_its_ranges_in_any_order(workspace: StorageWorkspace) -> None:
    size = 3 * PART_BYTES + 777
    content = os.urandom(size)
    several = f"MD5-of-{(1 << 20) // 512}MD5-of-512CRC32C"
    made = incremental_checksum(several)
    assert made is not None
    ranges = [0, PART_BYTES, 2 * PART_BYTES, 3 * PART_BYTES]
    random.Random(7).shuffle(ranges)
    for at in ranges:
        data = content[at : at + PART_BYTES]
        # In chunks as a connection delivers them; one range is sent again after a loss in the middle.
        lost = made.observe(at, iter([data[:1000]]))
        next(lost)
        for _ in made.observe(at, iter([data[:1000], data[1000:5000], data[5000:]])):
            pass
        made.confirm(at)
    with workspace.write("f", content).open("rb") as f:
        assert made.md5(several, size) == file_md5(f.fileno(), size, several)


def test_incomplete_stream_is_not_compared() -> None:
    made = incremental_checksum("MD5-of-0MD5-of-512CRC32C")
    assert made is not None
    for _ in made.observe(PART_BYTES, iter([b"the end"])):
        pass
    made.confirm(PART_BYTES)
    assert made.md5("MD5-of-0MD5-of-512CRC32C", PART_BYTES + 7) is None


def test_ranges_without_a_beginning_do_not_accumulate() -> None:
    made = incremental_checksum("MD5-of-0MD5-of-512CRC32C")
    assert made is not None
    for number in range(1, 200):
        for _ in made.observe(number * PART_BYTES, iter([b"some"])):
            pass
        made.confirm(number * PART_BYTES)
    assert len(made._early) < 100 and not made._observed


def test_stream_to_hdfs_is_verified(workspace: StorageWorkspace, both: _Both, damaging_writes: None) -> None:
    path = f"{workspace.path}/f"
    with pytest.raises(ConnectionFailed, match="damaged"):
        from_stream(both, io.BytesIO(CONTENT), _place(f"hdfs:{path}"))
    assert both.own.list_folder(workspace.path) == []


def test_stream_from_hdfs_is_verified(workspace: StorageWorkspace, both: _Both, damaging_reads: None) -> None:
    path = f"{workspace.path}/f"
    from_stream(both, io.BytesIO(CONTENT), _place(f"hdfs:{path}"))
    with pytest.raises(ConnectionFailed, match="damaged"):
        _written(both, f"hdfs:{path}")
    assert _written(both, path) == CONTENT


def test_copy_from_hdfs_to_a_cluster_is_verified(
    workspace: StorageWorkspace, both: _Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = f"hdfs:{workspace.path}/f", f"{workspace.path}/g"
    from_stream(both, io.BytesIO(CONTENT), _place(source))
    with monkeypatch.context() as patch:
        read = WebHdfs.read
        patch.setattr(WebHdfs, "read", lambda self, *a: (bytes(data).upper() for data in read(self, *a)))
        with pytest.raises(ConnectionFailed, match="damaged"):
            CopyOperation.plan(both, _place(source), _place(target)).run()
    assert both.own.status(target) is None
    CopyOperation.plan(both, _place(source), _place(target)).run()
    assert _written(both, target) == CONTENT


def test_copy_from_a_cluster_to_hdfs_is_verified(
    workspace: StorageWorkspace, both: _Both, damaging_writes: None
) -> None:
    source = f"{workspace.path}/f"
    from_stream(both, io.BytesIO(CONTENT), _place(source))
    with pytest.raises(ConnectionFailed, match="damaged"):
        CopyOperation.plan(both, _place(source), _place(f"hdfs:{workspace.path}/g")).run()
    assert [entry.name for entry in both.own.list_folder(workspace.path)] == ["f"]


def test_fsspec_verifies_put_and_get(
    workspace: StorageWorkspace, both: _Both, damaging_writes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    fs = fsspec.filesystem("pai", skip_instance_cache=True)
    for resolve in ("_resolve", "_resolve_for_writing"):
        monkeypatch.setattr(
            fs, resolve, lambda path: (both.hdfs, f"{workspace.path}/{path.rpartition('/')[2]}")
        )
    local = workspace.write("f", CONTENT)
    with pytest.raises(OSError, match="damaged"):
        fs.put_file(str(local), "pai://team/0/f")
    with pytest.raises(OSError, match="damaged"):
        fs.pipe_file("pai://team/0/f", CONTENT)
    assert both.own.list_folder(workspace.path) == []
    from_stream(both, io.BytesIO(CONTENT), _place(f"{workspace.path}/g"))
    read = WebHdfs.read
    monkeypatch.setattr(WebHdfs, "read", lambda self, *a: (bytes(data).upper() for data in read(self, *a)))
    with pytest.raises(OSError, match="damaged"):
        fs.get_file("pai://team/0/g", str(workspace.local / "back"))
    assert [each.name for each in workspace.local.iterdir()] == ["f"]


@pytest.mark.parametrize("size", [3, len(CONTENT)])
def test_file_from_before_1970_is_copied_to_hdfs_once(
    workspace: StorageWorkspace, both: _Both, size: int
) -> None:
    os.utime(workspace.write("d/old", CONTENT[:size]), ns=(-1_500_000_000, -1_500_000_000))
    workspace.ok("copy", "d", f"{workspace.remote}/d")
    one, all_of_it = f"{workspace.path}/d/old", f"{workspace.path}/d"
    for source in (one, all_of_it):
        target = f"hdfs:{workspace.path}/to{len(source)}"
        assert (
            CopyOperation.plan(both, _place(source), _place(target), sync=source is all_of_it).run().files
            == 1
        )
        again = CopyOperation.plan(both, _place(source), _place(target), sync=source is all_of_it)
        assert again.transfer_plan.new.count == 0
    assert _written(both, target.removeprefix("hdfs:") + "/old") == CONTENT[:size]


def test_exclusive_create_on_hdfs_fails_for_the_second_writer(
    workspace: StorageWorkspace, both: _Both
) -> None:
    path = f"{workspace.path}/f"
    first, second = (StreamUpload(both.hdfs, path, overwrite=False) for _ in range(2))
    first.add(b"first")
    second.add(b"second")
    first.finish()
    with pytest.raises(Conflict):
        second.finish()
    with pytest.raises(Conflict, match="already exists"):
        StreamUpload(both.hdfs, path, overwrite=False)
    assert [entry.name for entry in both.hdfs.list_folder(workspace.path)] == ["f"]
    assert _written(both, path) == b"first"


def test_incomparable_checksum_is_not_requested(
    workspace: StorageWorkspace, both: _Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(WebHdfs, "checksum_type", lambda self: "COMPOSITE-CRC32C")
    monkeypatch.setattr(WebHdfs, "checksum", lambda self, path: asked.append(path))
    from_stream(both, io.BytesIO(CONTENT), _place(f"hdfs:{workspace.path}/f"))
    assert asked == []
    assert _written(both, f"{workspace.path}/f") == CONTENT
