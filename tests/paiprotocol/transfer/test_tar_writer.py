"""Headers of tar archives, read by tarfile."""

import io
import tarfile

import pytest

from paiprotocol.transfer import tar_writer

LARGEST_OCTAL = (8 << 30) - 1


def member_of(header: bytes) -> tarfile.TarInfo:
    assert len(header) % tar_writer.BLOCK == 0
    member = tarfile.open(fileobj=io.BytesIO(header)).next()  # noqa: SIM115 - the rest of the file is not there
    assert member is not None and member.offset_data == len(header)
    return member


@pytest.mark.parametrize("name", [b"data.bin", b"long/" * 30 + b"data.bin", b"latin\xe9", b"\xe9" * 120])
@pytest.mark.parametrize("size", [0, LARGEST_OCTAL, LARGEST_OCTAL + 1, 64 << 30, 1 << 50])
def test_size_of_any_member_is_read_back(name: bytes, size: int) -> None:
    text = name.decode("utf-8", "surrogateescape")
    header = tar_writer.header(text, kind=tar_writer.FILE, mode=0o644, size=size, mtime=0)
    member = member_of(header)
    assert (member.name, member.size, member.mode) == (text, size, 0o644)
    assert tar_writer.file_header(name, 0o644, size) == header


def test_size_that_does_not_fit_is_a_pax_record() -> None:
    small = tar_writer.file_header(b"data.bin", 0o644, LARGEST_OCTAL)
    assert len(small) == tar_writer.BLOCK and small[124:136] == b"77777777777\0"
    extended, records, block = (
        tar_writer.file_header(b"data.bin", 0o644, LARGEST_OCTAL + 1)[at : at + tar_writer.BLOCK]
        for at in (0, tar_writer.BLOCK, 2 * tar_writer.BLOCK)
    )
    assert extended[156:157] == tar_writer.EXTENDED
    assert records.rstrip(b"\0") == b"19 size=8589934592\n"
    assert block[124:136] == b"00000000000\0" and block[257:263] == b"ustar\0"
