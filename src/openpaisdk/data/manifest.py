"""Layout of a pack: a folder with shards, their indexes, and ``pack.json``, which is written last."""

from __future__ import annotations

import json
import re

from openpaisdk.data.formats.registry import FORMAT_OF_SUFFIX
from openpaisdk.data.shard_index import SUFFIX as INDEX_SUFFIX
from paiprotocol.errors import PaiError

MANIFEST = "pack.json"
HAR_INDEX, HAR_MASTER_INDEX = "_index", "_masterindex"
WHOLE_PACK_FILES = (MANIFEST, HAR_INDEX, HAR_MASTER_INDEX)
"""Files that describe all shards."""
VERSION = 1
# Of records and of bytes of a shard.
_MAX_NUMBER = 1 << 53
_PART = re.compile(r"part-\d+")
_OWN_FILE = re.compile(r"(shard-\d{6,}\.[a-z]+|part-\d+)(\.index)?")


def shard_name(number: int, format_name: str) -> str:
    """Name of a shard; the parts of a Hadoop archive have Hadoop's names."""
    if format_name == "har":
        return f"part-{number}"
    suffix = next(suffix for suffix, found in FORMAT_OF_SUFFIX.items() if found == format_name)
    return f"shard-{number:06}{suffix}"


def is_pack_file(name: str) -> bool:
    """Whether ``pai pack`` writes files of that name."""
    return name in WHOLE_PACK_FILES or _OWN_FILE.fullmatch(name) is not None


def format_of(name: str) -> str:
    """Format of a shard by its name; empty if it is no shard."""
    if _PART.fullmatch(name):
        return "har"
    return next((found for suffix, found in FORMAT_OF_SUFFIX.items() if name.endswith(suffix)), "")


def index_name(shard: str) -> str:
    return shard + INDEX_SUFFIX


class ShardEntry:
    """One shard in the manifest."""

    __slots__ = ("name", "records", "size")

    def __init__(self, name: str, records: int, size: int):
        self.name = name
        self.records = records
        self.size = size


class Manifest:
    """Content of ``pack.json``."""

    def __init__(self, format_name: str, compression: str, shards: list[ShardEntry]):
        self.format = format_name
        self.compression = compression
        self.shards = shards

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @property
    def size(self) -> int:
        return sum(shard.size for shard in self.shards)

    def encode(self) -> bytes:
        value = {
            "version": VERSION,
            "format": self.format,
            "compression": self.compression,
            "records": self.records,
            "shards": [
                {"name": shard.name, "records": shard.records, "bytes": shard.size} for shard in self.shards
            ],
        }
        return json.dumps(value, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, what: str) -> Manifest:
        try:
            value = json.loads(data)
            version = int(value["version"])
            shards = [
                ShardEntry(str(shard["name"]), int(shard["records"]), int(shard["bytes"]))
                for shard in value["shards"]
            ]
            manifest = cls(str(value["format"]), str(value["compression"]), shards)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise _damaged(what) from None
        if not all(0 <= number <= _MAX_NUMBER for shard in shards for number in (shard.records, shard.size)):
            raise _damaged(what)
        if version != VERSION:
            raise PaiError(
                f"{what} was written by a later version (format {version}).",
                hint="Update with: pip install --upgrade openpaisdk",
            )
        if any("/" in shard.name or not format_of(shard.name) for shard in shards):
            raise _damaged(what)
        return manifest


def _damaged(what: str) -> PaiError:
    return PaiError(
        f"{what} is damaged: it does not describe a pack.",
        hint="Copy it again from where it is whole, or run the same pai pack again: it keeps the shards.",
    )
