"""The same requests to a real HDFS and to a cluster: the same responses."""

from __future__ import annotations

import getpass
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.hadoop import RealHdfs
from support.webhdfs_client import StorageCluster

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("hdfs")]

# Values that differ between machines, owners, and fields of later HDFS versions.
_MACHINE_SPECIFIC = {"accessTime", "modificationTime", "fileId", "owner", "group", "quota"}
_LATER_VERSIONS = {"ecPolicy", "typeQuota"} | {
    f"snapshot{field}" for field in ("DirectoryCount", "FileCount", "Length")
}
_IGNORED = _MACHINE_SPECIFIC | _LATER_VERSIONS | {"snapshotSpaceConsumed", "message"}
# The default mode of files is 755 in HDFS 2 and 644 in HDFS 3.
_MODE = "permission=640"


def _ask(url: str, method: str, path: str, token: str = "", body: bytes | None = None) -> tuple[int, Any]:
    """Send a request and follow one redirect, which gets the body: as HDFS clients do."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc, timeout=90)
    user = "" if token else f"&user.name={getpass.getuser()}"
    connection.request(
        method, f"{address.path}{path}{user}", headers={"Authorization": f"Bearer {token}"} if token else {}
    )
    reply = connection.getresponse()
    data = reply.read()
    connection.close()
    if reply.status == 307:
        location = urlsplit(str(reply.getheader("location")))
        connection = http.client.HTTPConnection(location.netloc, timeout=90)
        connection.request(method, f"{location.path}?{location.query}", body)
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
    try:
        return reply.status, _plain(json.loads(data))
    except ValueError:
        return reply.status, data


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key not in _IGNORED}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


_REQUESTS: list[tuple[str, str, bytes | None]] = [
    ("PUT", "/deep/er?op=MKDIRS&permission=750", None),
    ("PUT", f"/deep/file?op=CREATE&{_MODE}", b"0123456789" * 100),
    ("PUT", f"/empty?op=CREATE&{_MODE}", b""),
    ("GET", "/deep/file?op=GETFILESTATUS", None),
    ("GET", "/deep?op=GETFILESTATUS", None),
    ("GET", "/deep/file?op=LISTSTATUS", None),
    ("GET", "/deep/file?op=OPEN", None),
    ("GET", "/deep/file?op=OPEN&offset=995", None),
    ("GET", "/deep/file?op=OPEN&offset=10&length=5", None),
    ("GET", "/empty?op=OPEN", None),
    ("GET", "/deep/file?op=OPEN&offset=2000", None),
    ("GET", "/deep/file?op=GETFILECHECKSUM", None),
    ("GET", "/empty?op=GETFILECHECKSUM", None),
    ("GET", "/deep?op=GETCONTENTSUMMARY", None),
    ("PUT", f"/deep/file?op=CREATE&{_MODE}", b"again"),
    ("PUT", f"/deep/file?op=CREATE&{_MODE}&overwrite=true", b"again"),
    ("POST", "/deep/file?op=APPEND", b" and more"),
    ("GET", "/deep/file?op=OPEN", None),
    ("PUT", "/deep/file?op=SETPERMISSION&permission=1700", None),
    ("PUT", "/deep/file?op=SETTIMES&modificationtime=1500000000000&accesstime=1400000000000", None),
    ("GET", "/deep/file?op=GETFILESTATUS", None),
    ("PUT", "/deep/file?op=SETREPLICATION&replication=1", None),
    ("PUT", "/deep?op=SETREPLICATION&replication=1", None),
    ("GET", "/none?op=GETFILESTATUS", None),
    ("GET", "/none?op=LISTSTATUS", None),
    ("GET", "/none?op=OPEN", None),
    ("GET", "/none?op=GETCONTENTSUMMARY", None),
    ("GET", "/none?op=GETFILECHECKSUM", None),
    ("GET", "/deep/file/below?op=GETFILESTATUS", None),
    ("GET", "/deep?op=OPEN", None),
    ("GET", "/deep?op=GETFILECHECKSUM", None),
    ("GET", "/a:b?op=GETFILESTATUS", None),
    ("GET", "/deep?op=NOSUCH", None),
    ("GET", "/deep/file?op=OPEN&offset=-1", None),
    ("GET", "/deep/file?op=OPEN&length=x", None),
    ("GET", "/deep?op=CHECKACCESS&fsaction=rwx", None),
    ("GET", "/deep?op=GETACLSTATUS", None),
    ("PUT", "/deep?op=SETACL&aclspec=user::rwx,user:bob:rwx,group::r--,other::r--", None),
    ("PUT", "/deep?op=MODIFYACLENTRIES&aclspec=user:bob:rwx", None),
    ("PUT", "/deep?op=REMOVEACLENTRIES&aclspec=user:bob:", None),
    ("PUT", "/deep?op=REMOVEDEFAULTACL", None),
    ("PUT", "/deep?op=REMOVEACL", None),
    ("PUT", "/none?op=REMOVEACL", None),
    ("PUT", "/deep?op=SETACL", None),
    ("PUT", "/deep?op=CREATESNAPSHOT", None),
    ("PUT", "/deep?op=CREATESNAPSHOT&snapshotname=first", None),
    ("PUT", "/deep?op=RENAMESNAPSHOT&oldsnapshotname=first&snapshotname=second", None),
    ("DELETE", "/deep?op=DELETESNAPSHOT&snapshotname=first", None),
    ("PUT", "/none?op=CREATESNAPSHOT", None),
    ("PUT", "/deep/file?op=CREATESNAPSHOT", None),
    ("PUT", "/deep/file?op=MKDIRS", None),
    ("PUT", "/deep/../x?op=MKDIRS", None),
    ("PUT", "/deep/a:b?op=MKDIRS", None),
    ("PUT", "/none?op=SETPERMISSION&permission=700", None),
    ("PUT", "/none?op=SETOWNER&owner=x", None),
    ("POST", "/none?op=APPEND", None),
    ("POST", "/deep/file?op=TRUNCATE&newlength=1000", None),
    ("POST", "/deep/file?op=CONCAT&sources=/none", None),
    ("DELETE", "/deep?op=DELETE", None),
    ("DELETE", "/none?op=DELETE", None),
    ("DELETE", "/?op=DELETE&recursive=true", None),
    ("PUT", "/none?op=RENAME&destination=/x", None),
    ("PUT", "/deep/file?op=RENAME&destination=/none/x", None),
    ("PUT", "/deep/file?op=RENAME&destination=/empty", None),
    ("PUT", "/deep?op=RENAME&destination=/deep/er", None),
    ("PUT", "/empty?op=RENAME&destination=/deep", None),
    ("PUT", "/deep/file?op=RENAME&destination=/moved", None),
    ("GET", "/moved?op=GETFILESTATUS", None),
    ("DELETE", "/deep?op=DELETE&recursive=true", None),
    ("DELETE", "/moved?op=DELETE", None),
    ("GET", "/?op=GETHOMEDIRECTORY", None),
]


def test_responses_equal_those_of_hdfs(cluster: StorageCluster, real_hdfs: RealHdfs) -> None:
    admin = cluster.tokens["admin"]
    different = []
    for method, path, body in _REQUESTS:
        expected = _ask(f"{real_hdfs.url}/webhdfs/v1", method, path, body=body)
        actual = _ask(f"{cluster.url}/webhdfs/v1", method, path, admin, body)
        if path.endswith("GETHOMEDIRECTORY"):
            expected, actual = (expected[0], list(expected[1])), (actual[0], list(actual[1]))
        if actual != expected:
            different.append(f"{method} {path}\n  expected: {expected}\n  actual:   {actual}")
    assert not different, "\n".join(different)
