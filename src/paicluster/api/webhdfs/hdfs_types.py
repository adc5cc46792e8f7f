"""Values of WebHDFS responses: objects of HDFS's JSON, with the keys that Hadoop's client reads."""

from __future__ import annotations

import msgspec


class FileStatus(msgspec.Struct, rename="camel"):
    """Entry of a listing."""

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


class OneFileStatus(msgspec.Struct, rename="pascal"):
    file_status: FileStatus


class FileStatusArray(msgspec.Struct, rename="pascal"):
    file_status: list[FileStatus]


class FileStatuses(msgspec.Struct, rename="pascal"):
    file_statuses: FileStatusArray


class ListingPage(msgspec.Struct, rename="camel"):
    partial_listing: FileStatuses
    remaining_entries: int


class DirectoryListing(msgspec.Struct, rename="pascal"):
    directory_listing: ListingPage


class ContentSummaryValues(msgspec.Struct, rename="camel", kw_only=True):
    """Sizes and counts of a folder; a quota of -1 is none."""

    directory_count: int
    ec_policy: str = ""
    file_count: int
    length: int
    quota: int = -1
    snapshot_directory_count: int = 0
    snapshot_file_count: int = 0
    snapshot_length: int = 0
    snapshot_space_consumed: int = 0
    space_consumed: int
    space_quota: int
    type_quota: dict[str, int] = {}


class ContentSummary(msgspec.Struct, rename="pascal"):
    content_summary: ContentSummaryValues


class QuotaUsageValues(msgspec.Struct, rename="camel", kw_only=True):
    """As in `ContentSummaryValues`."""

    file_and_directory_count: int
    quota: int = -1
    space_consumed: int
    space_quota: int
    type_quota: dict[str, int] = {}


class DirectoryQuotaUsage(msgspec.Struct, rename="pascal"):
    quota_usage: QuotaUsageValues


class FileChecksumValues(msgspec.Struct, rename="camel"):
    algorithm: str
    bytes: str
    length: int


class FileChecksum(msgspec.Struct, rename="pascal"):
    file_checksum: FileChecksumValues


class DataNode(msgspec.Struct, rename="camel", kw_only=True):
    """The machine that has a block."""

    admin_state: str = "NORMAL"
    host_name: str
    info_port: int
    info_secure_port: int = 0
    ip_addr: str
    ipc_port: int = 0
    name: str
    network_location: str = "/default-rack"
    storage_id: str = msgspec.field(name="storageID", default="")
    xfer_port: int


class Block(msgspec.Struct, rename="camel", kw_only=True):
    block_id: int
    block_pool_id: str = ""
    generation_stamp: int = 0
    num_bytes: int


class BlockToken(msgspec.Struct, rename="camel"):
    url_string: str = "AAAAAA"


class LocatedBlock(msgspec.Struct, rename="camel", kw_only=True):
    block: Block
    block_token: BlockToken = msgspec.field(default_factory=BlockToken)
    cached_locations: list[DataNode] = []
    is_corrupt: bool = False
    locations: list[DataNode]
    start_offset: int
    storage_types: tuple[str, ...] = ("DISK",)


class LocatedBlocksValues(msgspec.Struct, rename="camel", kw_only=True):
    file_length: int
    is_last_block_complete: bool = True
    is_under_construction: bool = False
    last_located_block: LocatedBlock | None
    located_blocks: list[LocatedBlock]


class LocatedBlocks(msgspec.Struct, rename="pascal"):
    """Block locations in the format of older clients."""

    located_blocks: LocatedBlocksValues


class BlockLocation(msgspec.Struct, rename="camel", kw_only=True):
    cached_hosts: list[str] = []
    corrupt: bool = False
    hosts: list[str]
    length: int
    names: list[str]
    offset: int
    storage_ids: list[str] = []
    storage_types: tuple[str, ...] = ("DISK",)
    topology_paths: list[str]


class BlockLocationArray(msgspec.Struct, rename="pascal"):
    block_location: list[BlockLocation]


class BlockLocations(msgspec.Struct, rename="pascal"):
    block_locations: BlockLocationArray


class ServerDefaults(msgspec.Struct, rename="camel", kw_only=True):
    block_size: int
    bytes_per_checksum: int
    checksum_type: int
    default_storage_policy_id: int = 0
    encrypt_data_transfer: bool = False
    file_buffer_size: int = 4096
    key_provider_uri: str = ""
    replication: int = 1
    # There is no trash.
    trash_interval: int = 0
    write_packet_size: int = 65536


class FsServerDefaults(msgspec.Struct, rename="pascal"):
    fs_server_defaults: ServerDefaults


class Path(msgspec.Struct, rename="pascal"):
    path: str


class ExtendedAttributes(msgspec.Struct):
    attributes: list[str] = msgspec.field(name="XAttrs", default_factory=list)


class ExtendedAttributeNames(msgspec.Struct):
    """``names`` is a list as JSON in a string."""

    names: str = msgspec.field(name="XAttrNames", default="[]")
