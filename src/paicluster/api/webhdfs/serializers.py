"""The values of WebHDFS responses, from what the storage says."""

from __future__ import annotations

import msgspec

from paicluster.api.webhdfs.hdfs_types import (
    Block,
    BlockLocation,
    BlockLocationArray,
    BlockLocations,
    ContentSummary,
    ContentSummaryValues,
    DataNode,
    DirectoryListing,
    DirectoryQuotaUsage,
    FileChecksum,
    FileChecksumValues,
    FileStatus,
    FileStatusArray,
    FileStatuses,
    FsServerDefaults,
    ListingPage,
    LocatedBlock,
    LocatedBlocks,
    LocatedBlocksValues,
    OneFileStatus,
    QuotaUsageValues,
    ServerDefaults,
)
from paicluster.files import Entry
from paicluster.files.hdfs_checksum import BLOCK_SIZE, BYTES_PER_CRC
from paicluster.files.reads import Listing, Summary

# Hadoop's number of the checksum type CRC32C.
_CRC32C = 2
_CHECKSUM_BUFFER_BYTES = 32


def file_status(entry: Entry, children: int | None) -> OneFileStatus:
    return OneFileStatus(_status(entry, children))


def _status(entry: Entry, children: int | None = None) -> FileStatus:
    folder, record = entry.is_folder, entry.ownership
    return FileStatus(
        entry.accessed_ms,
        0 if folder else BLOCK_SIZE,
        entry.file_id,
        record.group,
        entry.size,
        entry.modified_ms,
        record.owner,
        entry.name,
        f"{record.mode & 0o1777:o}",
        0 if folder else 1,
        0,
        "DIRECTORY" if folder else "FILE",
        msgspec.UNSET if folder and children is None else children or 0,
    )


def file_statuses(listing: Listing) -> FileStatuses:
    return FileStatuses(FileStatusArray([_status(entry) for entry in listing.entries]))


def directory_listing(listing: Listing) -> DirectoryListing:
    return DirectoryListing(ListingPage(file_statuses(listing), listing.remaining))


class SpaceQuota(msgspec.Struct, frozen=True):
    """What counts against a folder's quota, and the quota; -1: none."""

    consumed: int
    limit: int = -1


def content_summary(summary: Summary, space: SpaceQuota) -> ContentSummary:
    return ContentSummary(
        ContentSummaryValues(
            directory_count=summary.folders,
            file_count=summary.files,
            length=summary.size,
            space_consumed=space.consumed,
            space_quota=space.limit,
        )
    )


def quota_usage(summary: Summary, space: SpaceQuota) -> DirectoryQuotaUsage:
    return DirectoryQuotaUsage(
        QuotaUsageValues(
            file_and_directory_count=summary.files + summary.folders,
            space_consumed=space.consumed,
            space_quota=space.limit,
        )
    )


def file_checksum(algorithm: str, checksum: bytes) -> FileChecksum:
    # HDFS sends its whole buffer; clients that compare the text compare that.
    sent = checksum.ljust(_CHECKSUM_BUFFER_BYTES, b"\0").hex()
    return FileChecksum(FileChecksumValues(algorithm, sent, len(checksum)))


def _block_offsets(entry: Entry, offset: int, length: int) -> range:
    """Offsets of the blocks that contain these bytes."""
    return range(offset // BLOCK_SIZE * BLOCK_SIZE, min(offset + length, entry.size), BLOCK_SIZE)


def located_blocks(entry: Entry, offset: int, length: int, host: str, port: int) -> LocatedBlocks:
    """Every block is on this machine. Clients use the host only for data locality."""
    node = DataNode(host_name=host, info_port=port, ip_addr=host, name=f"{host}:{port}", xfer_port=port)
    blocks = [
        LocatedBlock(
            block=Block(block_id=entry.file_id, num_bytes=min(BLOCK_SIZE, entry.size - start)),
            locations=[node],
            start_offset=start,
        )
        for start in _block_offsets(entry, offset, length)
    ]
    return LocatedBlocks(
        LocatedBlocksValues(
            file_length=entry.size,
            last_located_block=blocks[-1] if blocks else None,
            located_blocks=blocks,
        )
    )


def block_locations(entry: Entry, offset: int, length: int, host: str, address: str) -> BlockLocations:
    """Every block is on this machine."""
    blocks = [
        BlockLocation(
            hosts=[host],
            length=min(BLOCK_SIZE, entry.size - start),
            names=[address],
            offset=start,
            topology_paths=[f"/default-rack/{address}"],
        )
        for start in _block_offsets(entry, offset, length)
    ]
    return BlockLocations(BlockLocationArray(blocks))


def server_defaults() -> FsServerDefaults:
    return FsServerDefaults(
        ServerDefaults(block_size=BLOCK_SIZE, bytes_per_checksum=BYTES_PER_CRC, checksum_type=_CRC32C)
    )
