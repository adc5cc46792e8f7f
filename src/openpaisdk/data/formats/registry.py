"""Shard formats by name and by the names of their files."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.data.formats.base import ReadAt, ShardReader, ShardWriter

FORMATS = ("tar", "sequencefile", "har", "tfrecord")
FORMAT_OF_SUFFIX = {".tar": "tar", ".seq": "sequencefile", ".tfrecord": "tfrecord"}
COMPRESSIONS = (
    "none",
    "record-deflate",
    "record-bzip2",
    "record-zstd",
    "block-deflate",
    "block-bzip2",
    "block-zstd",
)


def writer_class(name: str) -> type[ShardWriter]:
    if name == "tar":
        from openpaisdk.data.formats.tar_shard import TarWriter

        return TarWriter
    if name == "tfrecord":
        from openpaisdk.data.formats.tfrecord import TfrecordWriter

        return TfrecordWriter
    if name == "har":
        from openpaisdk.data.formats.har import HarWriter

        return HarWriter
    from openpaisdk.data.formats.sequence_file import SequenceFileWriter

    return SequenceFileWriter


def open_reader(name: str, read_at: ReadAt, size: int, what: str) -> ShardReader:
    """Reader of a shard that describes itself; the parts of a Hadoop archive do not."""
    if name == "tar":
        from openpaisdk.data.formats.tar_shard import TarReader

        return TarReader(read_at, size, what)
    if name == "tfrecord":
        from openpaisdk.data.formats.tfrecord import TfrecordReader

        return TfrecordReader(read_at, size, what)
    from openpaisdk.data.formats.sequence_file import SequenceFileReader

    return SequenceFileReader(read_at, size, what)
