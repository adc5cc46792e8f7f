"""Operations on ACLs and snapshots, which this storage does not have: the answers of an HDFS without them."""

from __future__ import annotations

from typing import Any

from paicluster.api.webhdfs.exceptions import JavaException
from paicluster.api.webhdfs.request import WebHdfsRequest

# Hadoop's own tools test for these exceptions before they preserve ACLs or make a snapshot.
_HDFS = "org.apache.hadoop.hdfs.protocol"


def reject_acls(call: WebHdfsRequest) -> Any:
    raise JavaException(
        f"{_HDFS}.AclException",
        403,
        "The ACL operation has been rejected.  This storage has owners, groups and modes, and no ACLs.",
    )


def reject_snapshots(call: WebHdfsRequest) -> Any:
    if not call.storage.status(call.path, call.user).is_folder:
        java_class = "org.apache.hadoop.fs.PathIsNotDirectoryException"
        raise JavaException(java_class, 403, f"`{call.path}': Is not a directory")
    message = f"Directory is not a snapshottable directory: {call.path}"
    raise JavaException(f"{_HDFS}.SnapshotException", 403, message)


def no_snapshottable_folders(call: WebHdfsRequest) -> Any:
    return {"SnapshottableDirectoryList": []}
