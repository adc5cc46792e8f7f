"""The checksum equals Hadoop's."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest

from paicluster.files import Storage, StorageUser
from paicluster.files.hdfs_checksum import file_checksum
from support.storage_files import put


def _crc32c(data: bytes) -> int:
    """Reference implementation, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def _hadoop(data: bytes, block: int) -> bytes:
    md5s = b""
    for start in range(0, len(data), block):
        part = data[start : start + block]
        sums = [_crc32c(part[i : i + 512]) for i in range(0, len(part), 512)]
        md5s += hashlib.md5(b"".join(struct.pack(">I", s) for s in sums)).digest()
    buffer_size = 32
    while buffer_size < len(md5s):
        buffer_size *= 2
    return hashlib.md5(md5s.ljust(buffer_size, b"\0")).digest()


@pytest.mark.parametrize("size", [1, 511, 512, 513, 4096, 5000])
def test_small_files_have_one_block(storage: Storage, alice: StorageUser, size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    put(storage, "/user/alice/file", data, alice)
    name, digest = storage.checksum("/user/alice/file", alice)
    assert name == "MD5-of-0MD5-of-512CRC32C"
    assert digest == struct.pack(">iq", 512, 0) + _hadoop(data, 1 << 27)


def test_large_file_has_a_checksum_per_block(tmp_path: Path) -> None:
    data = bytes(i % 253 for i in range(5000))
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb") as file:
        name, digest = file_checksum(file.fileno(), len(data), block_size=2048)
    assert name == "MD5-of-4MD5-of-512CRC32C"
    assert digest == struct.pack(">iq", 512, 4) + _hadoop(data, 2048)


def test_empty_file_has_hadoops_constant_checksum(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/user/alice/file", b"", alice)
    name, digest = storage.checksum("/user/alice/file", alice)
    assert (name, digest.hex()) == ("MD5-of-0MD5-of-0CRC32", "0" * 24 + "70bc8f4b72a86921468bf8e8441dce51")


def test_reference_crc32c_is_correct() -> None:
    assert _crc32c(b"123456789") == 0xE3069283
