"""Errors about damaged packs: they name the shard, the record and the byte offset."""

from __future__ import annotations

from paiprotocol.errors import PaiError


class DamagedShard(PaiError):
    """A shard or its index does not have the bytes that were written."""

    def __init__(self, shard: str, reason: str, *, record: int | None = None, offset: int | None = None):
        where = shard
        if record is not None:
            where += f", record {record}"
        if offset is not None:
            where += f" at byte {offset}"
        super().__init__(
            f"{where}: {reason}.",
            code="DamagedShardError",
            hint="Copy it again from where it is whole. If its files still exist, delete it and run the same "
            "pai pack again.",
        )


class OversizedContent(ValueError):
    """Compressed data that becomes larger than a reader keeps in memory."""


class OversizedRecord(PaiError):
    """A record that is not read, because it would take too much memory."""

    def __init__(self, shard: str, reason: str, *, record: int, offset: int):
        super().__init__(
            f"{shard}, record {record} at byte {offset}: {reason}.",
            code="OversizedRecordError",
            hint="Write it again with smaller blocks, or without compression.",
        )


def unreadable_record(shard: str, cause: Exception, *, record: int, offset: int) -> PaiError:
    """The error for a record whose stored bytes cannot be decoded."""
    if isinstance(cause, OversizedContent):
        return OversizedRecord(shard, str(cause), record=record, offset=offset)
    return DamagedShard(shard, str(cause) or "it is truncated", record=record, offset=offset)


def index_of_other_version(what: str, version: int) -> PaiError:
    return PaiError(
        f"{what} was written by another version of openpaisdk (format {version}).",
        code="IndexVersionError",
        hint="Run pai pack again with the same files and the same target.",
    )


def not_a_pack(what: str) -> PaiError:
    from paiprotocol.errors import UsageError

    return UsageError(
        f"{what} is not a pack: it has no pack.json and no shards.",
        hint="pai pack SOURCE TARGET makes one; shards end in .tar, .tfrecord or .seq.",
    )


def unfinished_pack(what: str) -> PaiError:
    return PaiError(
        f"{what} is an unfinished pack: it has shards, but no pack.json, which is written last.",
        code="UnfinishedPackError",
        hint="Run the same pai pack again: it resumes. To read the shards as they are, delete *.index there.",
    )
