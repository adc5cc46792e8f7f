"""Compression codecs of Hadoop's SequenceFile, by the names of their Java classes."""

from __future__ import annotations

from openpaisdk.data.errors import OversizedContent
from openpaisdk.storage.file_info import format_size
from paiprotocol.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PACKAGE = "org.apache.hadoop.io.compress."
CLASS_OF_CODEC = {
    "deflate": _PACKAGE + "DefaultCodec",
    "bzip2": _PACKAGE + "BZip2Codec",
    "zstd": _PACKAGE + "ZStandardCodec",
}
_READABLE = {name: codec for codec, name in CLASS_OF_CODEC.items()} | {_PACKAGE + "GzipCodec": "gzip"}


# Four times what zstd uses at its highest ordinary level; a header may ask for gigabytes.
_MAX_ZSTD_WINDOW_BYTES = 32 << 20


class UnknownCodec(PaiError):
    pass


def codec_of_class(name: str) -> str:
    """Our name of a codec that we can read."""
    codec = _READABLE.get(name)
    if codec is None:
        raise UnknownCodec(f"The file is compressed with {name}, which is not supported.")
    return codec


def compress(codec: str, data: bytes) -> bytes:
    if codec == "deflate":
        import zlib

        return zlib.compress(data)
    if codec == "bzip2":
        import bz2

        return bz2.compress(data)
    compressed: bytes = _zstandard().ZstdCompressor().compress(data)
    return compressed


def decompress(codec: str, data: bytes | memoryview, max_bytes: int) -> bytes:
    """Raises ValueError for damaged data, and OversizedContent where it becomes larger than ``max_bytes``.

    The size is not known in advance, and a few kilobytes can become gigabytes: no more is decompressed.
    """
    by_codec = {"deflate": _inflate, "gzip": _inflate, "bzip2": _decompress_bzip2, "zstd": _decompress_zstd}
    plain = by_codec[codec](data, max_bytes)
    if len(plain) > max_bytes:
        raise OversizedContent(
            f"it becomes larger than {format_size(max_bytes)} when it is decompressed, and is not read"
        )
    return plain


# Each of these stops after max_bytes + 1 bytes.


def _inflate(data: bytes | memoryview, max_bytes: int) -> bytes:
    import zlib

    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = decompressor.decompress(data, max_bytes + 1)
    except zlib.error as e:
        raise ValueError(str(e)) from None
    if not decompressor.eof and len(plain) <= max_bytes:
        raise ValueError("the compressed data is truncated")
    return plain


def _decompress_bzip2(data: bytes | memoryview, max_bytes: int) -> bytes:
    import bz2

    parts = []
    remaining = max_bytes + 1
    while data and remaining:  # several streams may follow each other
        decompressor = bz2.BZ2Decompressor()
        try:
            parts.append(decompressor.decompress(data, remaining))
        except OSError as e:
            raise ValueError(str(e)) from None
        remaining -= len(parts[-1])
        if not decompressor.eof and remaining:
            raise ValueError("the compressed data is truncated")
        data = decompressor.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_zstd(data: bytes | memoryview, max_bytes: int) -> bytes:
    from io import BytesIO

    zstandard = _zstandard()
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES)
    try:
        with decompressor.stream_reader(BytesIO(data), read_across_frames=True) as reader:
            plain: bytes = reader.read(max_bytes + 1)
    except zstandard.ZstdError as e:
        if "memory" in str(e):
            raise OversizedContent("it needs too much memory to be decompressed, and is not read") from None
        raise ValueError(str(e)) from None
    return plain


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise PaiError(
            "zstd needs the Python package zstandard, which is not installed.", hint="pip install zstandard"
        ) from None
    return zstandard
