"""Compression codecs of Hadoop's SequenceFile, by the names of their Java classes."""

from __future__ import annotations

from openpaisdk.errors import PaiError

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


def decompress(codec: str, data: bytes) -> bytes:
    """Raises ValueError for damaged data."""
    if codec in ("deflate", "gzip"):
        import zlib

        try:
            return zlib.decompress(data, zlib.MAX_WBITS | 32)
        except zlib.error as e:
            raise ValueError(str(e)) from None
    if codec == "bzip2":
        import bz2

        try:
            return bz2.decompress(data)
        except OSError as e:
            raise ValueError(str(e)) from None
    zstandard = _zstandard()
    try:
        plain: bytes = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    except zstandard.ZstdError as e:
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
