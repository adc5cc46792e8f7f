"""Archives of untrusted origin: any bytes give members or an error of tarfile, in bounded memory and time."""

from __future__ import annotations

import io
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairuntime.transport.bounded_tar import BoundedTarFile
from support.hostile_tar import MEMBER_KINDS, block, pax_record, write_endless_header


def read_all(data: bytes, **limits: int) -> list[tarfile.TarInfo]:
    archive = BoundedTarFile(fileobj=io.BytesIO(data), **limits)
    return list(archive.one_by_one())


@pytest.mark.parametrize("kind", MEMBER_KINDS)
def test_header_of_gigabytes_is_an_error_in_little_memory(tmp_path: Path, kind: bytes) -> None:
    path = write_endless_header(tmp_path / "archive.tar", kind)
    tracemalloc.start()
    try:
        with path.open("rb") as file, pytest.raises(tarfile.ReadError, match="more than 64 KiB"):
            list(BoundedTarFile(fileobj=file).one_by_one())
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_negative_size_is_an_error() -> None:
    with pytest.raises(tarfile.ReadError, match="negative size"):
        read_all(block(b"a", b"0", -512) + bytes(1024))
    record = pax_record(b"size", b"-512")
    data = block(b"x", b"x", len(record)) + record.ljust(512, b"\0") + block(b"a", b"0", 0)
    with pytest.raises(tarfile.ReadError, match="negative size"):
        read_all(data + bytes(1024))


def test_damaged_header_is_not_the_end() -> None:
    """tarfile ends there without an error; the members after it would be lost unnoticed."""
    intact, damaged = block(b"a", b"0", 0), block(b"b", b"0", 0).replace(b"b", b"c", 1)
    with pytest.raises(tarfile.ReadError, match="a header is damaged"):
        read_all(intact + damaged + intact + bytes(1024))
    with pytest.raises(tarfile.ReadError, match="a header is damaged"):
        read_all(intact + intact[:100])
    assert [member.name for member in read_all(intact)] == ["a"]
    assert [member.name for member in read_all(intact + bytes(512) + damaged)] == ["a"]


def test_members_are_bounded_and_not_kept() -> None:
    data = b"".join(block(b"%d" % number, b"0", 0) for number in range(20)) + bytes(1024)
    assert [member.name for member in read_all(data, max_members=20)] == [str(n) for n in range(20)]
    with pytest.raises(tarfile.ReadError, match="more than 19 members"):
        read_all(data, max_members=19)
    archive = BoundedTarFile(fileobj=io.BytesIO(data))
    assert max(len(archive.members) for _ in archive.one_by_one()) == 1


def test_compressed_stream_is_read_within_the_same_bounds() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("a")
        member.pax_headers = {"comment": "x" * (1 << 20)}
        archive.addfile(member)
    packed.seek(0)
    with pytest.raises(tarfile.ReadError, match="more than 64 KiB"):
        BoundedTarFile.open(fileobj=packed, mode="r|*")


PAX_KEYS = [b"path", b"size", b"mtime", b"GNU.sparse.major", b"GNU.sparse.minor", b"GNU.sparse.map"]
PAX_KEYS += [b"GNU.sparse.size", b"GNU.sparse.numblocks", b"GNU.sparse.realsize", b"hdrcharset", b"linkpath"]
PAX_VALUES = st.sampled_from(
    [b"", b"-1", b"1e999", b"nan", b"9" * 5000, b"1", b"0,1,2", b"BINARY", b"\xff/\0"]
)
CONTENTS = st.one_of(
    st.binary(max_size=600),
    st.lists(st.tuples(st.sampled_from(PAX_KEYS), PAX_VALUES), max_size=5).map(
        lambda records: b"".join(pax_record(*record) for record in records)
    ),
)
SIZES = st.sampled_from([None, None, 0, 1, 513, -1, -512, 1 << 31, 1 << 62, (1 << 80)])


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """Members of all kinds with wrong sizes and contents, and some bytes changed."""
    data = bytearray()
    for _ in range(draw(st.integers(1, 5))):
        content = draw(CONTENTS)
        size = draw(SIZES)
        kind = draw(st.sampled_from([*MEMBER_KINDS, b"0", b"5", b"S", b"1", b"7", b"Z"]))
        data += block(draw(st.binary(max_size=100)), kind, len(content) if size is None else size)
        data += content + bytes(-len(content) % 512)
    for at, value in draw(
        st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=4)
    ):
        data[at] = value
    return bytes(data)


@settings(max_examples=300, deadline=None)
@given(archives())
def test_any_archive_gives_members_or_an_error(data: bytes) -> None:
    try:
        for member in read_all(data, max_members=1000):
            assert member.size >= 0
    except tarfile.TarError as e:
        assert str(e)
