"""HDFS JSON: the values of WebHDFS responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from paicluster.files import Entry
from paicluster.files.hdfs_checksum import BLOCK_SIZE, BYTES_PER_CRC
from paicluster.files.reads import Listing, Summary

# Hadoop's number of the checksum type CRC32C.
_CRC32C = 2
_CHECKSUM_BUFFER_BYTES = 32


class FileStatus(msgspec.Struct, rename="camel"):
    """Entry of a listing. A struct, because listings can be long and a dict costs several times as much."""

    access_time: int
    block_size: int
    file_id: int
    group: str
    length: int
    modification_time: int
    owner: str
    path_suffix: str
    permission: str
    replication: int
    storage_policy: int
    type: str
    # Omitted for folders in a listing, where counting is expensive: clients treat it as unknown.
    children_num: int | msgspec.UnsetType = msgspec.UNSET


def file_status(entry: Entry, children: int | None = None) -> FileStatus:
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


def file_statuses(listing: Listing) -> dict[str, Any]:
    return {"FileStatuses": {"FileStatus": [file_status(entry) for entry in listing.entries]}}


def directory_listing(listing: Listing) -> dict[str, Any]:
    return {
        "DirectoryListing": {"partialListing": file_statuses(listing), "remainingEntries": listing.remaining}
    }


@dataclass(frozen=True, slots=True)
class SpaceQuota:
    """What counts against a folder's quota, and the quota; -1: none."""

    consumed: int
    limit: int = -1


def content_summary(summary: Summary, space: SpaceQuota) -> dict[str, Any]:
    return {
        "ContentSummary": {
            "directoryCount": summary.folders,
            "ecPolicy": "",
            "fileCount": summary.files,
            "length": summary.size,
            "quota": -1,
            "snapshotDirectoryCount": 0,
            "snapshotFileCount": 0,
            "snapshotLength": 0,
            "snapshotSpaceConsumed": 0,
            "spaceConsumed": space.consumed,
            "spaceQuota": space.limit,
            "typeQuota": {},
        }
    }


def quota_usage(summary: Summary, space: SpaceQuota) -> dict[str, Any]:
    return {
        "QuotaUsage": {
            "fileAndDirectoryCount": summary.files + summary.folders,
            "quota": -1,
            "spaceConsumed": space.consumed,
            "spaceQuota": space.limit,
            "typeQuota": {},
        }
    }


def file_checksum(algorithm: str, checksum: bytes) -> dict[str, Any]:
    # HDFS sends its whole buffer; clients that compare the text compare that.
    sent = checksum.ljust(_CHECKSUM_BUFFER_BYTES, b"\0").hex()
    return {"FileChecksum": {"algorithm": algorithm, "bytes": sent, "length": len(checksum)}}


def _block_offsets(entry: Entry, offset: int, length: int) -> range:
    """Offsets of the blocks that contain these bytes."""
    return range(offset // BLOCK_SIZE * BLOCK_SIZE, min(offset + length, entry.size), BLOCK_SIZE)


def located_blocks(entry: Entry, offset: int, length: int, host: str, port: int) -> dict[str, Any]:
    """Block locations in the format of older clients. They use the host only for data locality."""
    node = {
        "adminState": "NORMAL",
        "hostName": host,
        "infoPort": port,
        "infoSecurePort": 0,
        "ipAddr": host,
        "ipcPort": 0,
        "name": f"{host}:{port}",
        "networkLocation": "/default-rack",
        "storageID": "",
        "xferPort": port,
    }
    blocks = [
        {
            "block": {
                "blockId": entry.file_id,
                "blockPoolId": "",
                "generationStamp": 0,
                "numBytes": min(BLOCK_SIZE, entry.size - start),
            },
            "blockToken": {"urlString": "AAAAAA"},
            "cachedLocations": [],
            "isCorrupt": False,
            "locations": [node],
            "startOffset": start,
            "storageTypes": ["DISK"],
        }
        for start in _block_offsets(entry, offset, length)
    ]
    return {
        "LocatedBlocks": {
            "fileLength": entry.size,
            "isLastBlockComplete": True,
            "isUnderConstruction": False,
            "lastLocatedBlock": blocks[-1] if blocks else None,
            "locatedBlocks": blocks,
        }
    }


def block_locations(entry: Entry, offset: int, length: int, host: str, address: str) -> dict[str, Any]:
    """Every block of a file is on this machine."""
    blocks = [
        {
            "cachedHosts": [],
            "corrupt": False,
            "hosts": [host],
            "length": min(BLOCK_SIZE, entry.size - start),
            "names": [address],
            "offset": start,
            "storageIds": [],
            "storageTypes": ["DISK"],
            "topologyPaths": [f"/default-rack/{address}"],
        }
        for start in _block_offsets(entry, offset, length)
    ]
    return {"BlockLocations": {"BlockLocation": blocks}}


def server_defaults() -> dict[str, Any]:
    return {
        "FsServerDefaults": {
            "blockSize": BLOCK_SIZE,
            "bytesPerChecksum": BYTES_PER_CRC,
            "checksumType": _CRC32C,
            "defaultStoragePolicyId": 0,
            "encryptDataTransfer": False,
            "fileBufferSize": 4096,
            "keyProviderUri": "",
            "replication": 1,
            # There is no trash.
            "trashInterval": 0,
            "writePacketSize": 65536,
        }
    }
