"""Errors have Hadoop's exception names and messages."""

from __future__ import annotations

import pytest

from support.webhdfs_client import StorageCluster, WebHdfsClient, exception


def test_missing_path(alice: WebHdfsClient, folder: str) -> None:
    for op in (
        "GETFILESTATUS",
        "LISTSTATUS",
        "LISTSTATUS_BATCH",
        "OPEN",
        "GETCONTENTSUMMARY",
        "GETFILECHECKSUM",
    ):
        assert exception(alice.get(op, f"{folder}/none")) == (404, "FileNotFoundException")
    for op in ("SETPERMISSION", "SETTIMES", "SETREPLICATION"):
        assert exception(alice.put(op, f"{folder}/none")) == (404, "FileNotFoundException")
    assert exception(alice.put("SETOWNER", f"{folder}/none", group="alice")) == (404, "FileNotFoundException")
    assert exception(alice.ask("POST", "APPEND", f"{folder}/none")) == (404, "FileNotFoundException")
    message = alice.get("GETFILESTATUS", f"{folder}/none").json()["RemoteException"]["message"]
    assert message == f"File does not exist: {folder}/none"


def test_forbidden_path(bob: WebHdfsClient, folder: str) -> None:
    for op in ("GETFILESTATUS", "LISTSTATUS", "OPEN"):
        assert exception(bob.get(op, folder)) == (403, "AccessControlException")
    for op in ("CREATE", "MKDIRS"):
        assert exception(bob.put(op, f"{folder}/mine")) == (403, "AccessControlException")
    assert exception(bob.put("MKDIRS", "/anywhere")) == (403, "AccessControlException")
    error = bob.put("MKDIRS", "/anywhere").json()["RemoteException"]
    assert error["javaClassName"] == "org.apache.hadoop.security.AccessControlException"
    assert error["message"] == (
        'Permission denied: user=bob, access=WRITE, inode="/":admin:supergroup:drwxr-xr-x'
    )


def test_existing_path(alice: WebHdfsClient, folder: str) -> None:
    alice.write(f"{folder}/file", b"old")
    for reply in (
        alice.put("CREATE", f"{folder}/file"),
        alice.ask("PUT", "CREATE", f"{folder}/file", b"new", data="true"),
        alice.put("CREATE", folder, overwrite="true"),
        alice.put("MKDIRS", f"{folder}/file"),
    ):
        assert exception(reply) == (403, "FileAlreadyExistsException")
    below = alice.put("MKDIRS", f"{folder}/file/below")
    assert exception(below) == (403, "ParentNotDirectoryException")
    assert below.json()["RemoteException"]["message"] == f"{folder}/file (is not a directory)"
    missing = alice.get("GETFILESTATUS", f"{folder}/file/below")
    assert exception(missing) == (404, "FileNotFoundException")
    assert missing.json()["RemoteException"]["message"] == f"File does not exist: {folder}/file"
    assert exception(alice.get("OPEN", folder)) == (404, "FileNotFoundException")
    assert alice.read(f"{folder}/file") == b"old"


def test_invalid_names(alice: WebHdfsClient, folder: str) -> None:
    for name in ("a:b", "..", ".", "x" * 256, "a/../b"):
        assert exception(alice.put("CREATE", f"{folder}/{name}")) == (400, "InvalidPathException")


@pytest.mark.parametrize(
    ("op", "parameters"),
    [
        ("OPEN", {"offset": "-1"}),
        ("OPEN", {"offset": "one"}),
        ("OPEN", {"length": "1" * 30}),
        ("LISTSTATUS", {"op": ""}),
    ],
)
def test_invalid_parameters(alice: WebHdfsClient, folder: str, op: str, parameters: dict[str, str]) -> None:
    alice.write(f"{folder}/file", b"x")
    query = {"op": op, **parameters}
    encoded = "&".join(f"{name}={value}" for name, value in query.items())
    reply = alice.cluster.get(f"/webhdfs/v1{folder}/file?{encoded}", token=alice.token)
    assert exception(reply) == (400, "IllegalArgumentException")


def test_unknown_operation(alice: WebHdfsClient) -> None:
    for method, op in (("GET", "CREATE"), ("PUT", "OPEN"), ("DELETE", "MKDIRS"), ("GET", "CREATESNAPSHOT")):
        assert exception(alice.ask(method, op, "/")) == (400, "UnsupportedOperationException")
    assert exception(alice.get("NOSUCH", "/")) == (400, "IllegalArgumentException")


def test_invalid_permission(alice: WebHdfsClient, folder: str) -> None:
    for wrong in ("888", "7777", "rwx", "-1"):
        assert exception(alice.put("SETPERMISSION", folder, permission=wrong)) == (
            400,
            "IllegalArgumentException",
        )


def test_query_that_is_not_utf8(alice: WebHdfsClient, cluster: StorageCluster) -> None:
    reply = cluster.get("/webhdfs/v1/?op=LISTSTATUS&x=%ff", token=alice.token)
    assert exception(reply) == (400, "IllegalArgumentException")


def test_acl_and_snapshot_calls_answer_as_an_hdfs_without_them(alice: WebHdfsClient, folder: str) -> None:
    alice.write(f"{folder}/file", b"x")
    for op in ("SETACL", "MODIFYACLENTRIES", "REMOVEACLENTRIES", "REMOVEDEFAULTACL", "REMOVEACL"):
        assert exception(alice.put(op, folder, aclspec="user:bob:rwx")) == (403, "AclException")
    assert exception(alice.get("GETACLSTATUS", folder)) == (403, "AclException")
    for op in ("CREATESNAPSHOT", "RENAMESNAPSHOT"):
        assert exception(alice.put(op, folder)) == (403, "SnapshotException")
        assert exception(alice.put(op, f"{folder}/none")) == (404, "FileNotFoundException")
        assert exception(alice.put(op, f"{folder}/file")) == (403, "PathIsNotDirectoryException")
    assert exception(alice.ask("DELETE", "DELETESNAPSHOT", folder)) == (403, "SnapshotException")
    assert alice.json("GETSNAPSHOTTABLEDIRECTORYLIST", "/") == {"SnapshottableDirectoryList": []}
