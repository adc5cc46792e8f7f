"""Every operation responds as HDFS does."""

from __future__ import annotations

import time

import pytest

from support.webhdfs_client import TEAM, StorageCluster, WebHdfsClient, exception


@pytest.mark.parametrize(
    "prefix",
    ["/webhdfs/v1", "/webhdfs/api/v1", "/webhdfs/webhdfs/v1", "/rest-server/webhdfs/v1"],
)
def test_all_url_prefixes_are_served(alice: WebHdfsClient, folder: str, prefix: str) -> None:
    client = WebHdfsClient(alice.cluster, alice.token, prefix)
    client.write(f"{folder}/file", b"x")
    assert client.read(f"{folder}/file") == b"x"
    assert "user" in client.names("/")


def test_status_of_a_file(alice: WebHdfsClient, folder: str) -> None:
    before = int(time.time() * 1000)
    alice.write(f"{folder}/file", b"12345")
    status = alice.json("GETFILESTATUS", f"{folder}/file")["FileStatus"]
    assert before - 1000 <= status.pop("modificationTime") <= time.time() * 1000 + 1000
    assert status.pop("accessTime") > 0
    assert status.pop("fileId") > 0
    assert status == {
        "blockSize": 134217728,
        "childrenNum": 0,
        "group": "alice",
        "length": 5,
        "owner": "alice",
        "pathSuffix": "",
        "permission": "644",
        "replication": 1,
        "storagePolicy": 0,
        "type": "FILE",
    }


def test_status_of_a_folder(alice: WebHdfsClient, folder: str) -> None:
    alice.write(f"{folder}/file", b"12345")
    status = alice.json("GETFILESTATUS", folder)["FileStatus"]
    assert (status["type"], status["length"], status["childrenNum"]) == ("DIRECTORY", 0, 1)
    assert (status["replication"], status["blockSize"], status["accessTime"]) == (0, 0, 0)


def test_listing_is_sorted_and_a_file_has_no_suffix(alice: WebHdfsClient, folder: str) -> None:
    for name in ("b", "a", "ä", "c d"):
        alice.write(f"{folder}/{name}", b"")
    assert alice.names(folder) == ["a", "b", "c d", "ä"]
    (entry,) = alice.json("LISTSTATUS", f"{folder}/a")["FileStatuses"]["FileStatus"]
    assert (entry["pathSuffix"], entry["type"]) == ("", "FILE")


def test_long_listing_has_pages(alice: WebHdfsClient, folder: str, cluster: StorageCluster) -> None:
    home = cluster.home / "storage" / folder[1:]
    for i in range(1500):
        (home / f"f{i:04}").touch()
    first = alice.json("LISTSTATUS_BATCH", folder)["DirectoryListing"]
    names = [entry["pathSuffix"] for entry in first["partialListing"]["FileStatuses"]["FileStatus"]]
    assert (len(names), first["remainingEntries"]) == (1000, 500)
    rest = alice.json("LISTSTATUS_BATCH", folder, startAfter=names[-1])["DirectoryListing"]
    names += [entry["pathSuffix"] for entry in rest["partialListing"]["FileStatuses"]["FileStatus"]]
    assert names == [f"f{i:04}" for i in range(1500)]
    assert rest["remainingEntries"] == 0


def test_mkdirs(alice: WebHdfsClient, folder: str) -> None:
    assert alice.put("MKDIRS", f"{folder}/a/b", permission="711").json() == {"boolean": True}
    assert alice.put("MKDIRS", f"{folder}/a/b").json() == {"boolean": True}
    assert alice.json("GETFILESTATUS", f"{folder}/a/b")["FileStatus"]["permission"] == "711"


def test_rename(alice: WebHdfsClient, folder: str) -> None:
    alice.write(f"{folder}/a", b"a")
    alice.write(f"{folder}/b", b"b")

    def rename(source: str, target: str, **options: str) -> object:
        reply = alice.put("RENAME", f"{folder}/{source}", destination=f"{folder}/{target}", **options)
        return reply.json() if reply.body else reply.status

    assert rename("a", "c") == {"boolean": True}
    assert rename("a", "d") == {"boolean": False}
    assert rename("c", "b") == {"boolean": False}
    assert exception(alice.put("RENAME", f"{folder}/c", destination=f"{folder}/b", renameoptions="NONE")) == (
        403,
        "FileAlreadyExistsException",
    )
    assert rename("c", "b", renameoptions="OVERWRITE") == 200
    assert alice.read(f"{folder}/b") == b"a"
    assert exception(alice.put("RENAME", f"{folder}/b")) == (400, "IllegalArgumentException")
    options = {"destination": f"{folder}/never", "renameoptions": "OVERRIDE"}
    assert exception(alice.put("RENAME", f"{folder}/b", **options)) == (400, "IllegalArgumentException")


def test_delete(alice: WebHdfsClient, folder: str) -> None:
    alice.write(f"{folder}/a/file", b"a")

    def delete(path: str, **options: str) -> object:
        return alice.ask("DELETE", "DELETE", path, **options)

    assert exception(delete(f"{folder}/a")) == (403, "PathIsNotEmptyDirectoryException")
    assert delete(f"{folder}/a", recursive="true").json() == {"boolean": True}
    assert delete(f"{folder}/a", recursive="true").json() == {"boolean": False}
    assert delete("/", recursive="true").json() == {"boolean": False}


def test_concat_and_truncate(alice: WebHdfsClient, folder: str) -> None:
    for name in ("a", "b", "c"):
        alice.write(f"{folder}/{name}", name.encode() * 2)
    reply = alice.ask("POST", "CONCAT", f"{folder}/a", sources=f"{folder}/b,{folder}/c")
    assert (reply.status, reply.body) == (200, b"")
    assert alice.read(f"{folder}/a") == b"aabbcc"
    assert alice.names(folder) == ["a"]
    assert alice.ask("POST", "TRUNCATE", f"{folder}/a", newlength=3).json() == {"boolean": True}
    assert alice.read(f"{folder}/a") == b"aab"
    assert exception(alice.ask("POST", "TRUNCATE", f"{folder}/a", newlength=9)) == (
        400,
        "HadoopIllegalArgumentException",
    )


def test_summary_and_checksum(alice: WebHdfsClient, folder: str) -> None:
    alice.write(f"{folder}/a/one", b"123")
    alice.write(f"{folder}/two", b"45")
    summary = alice.json("GETCONTENTSUMMARY", folder)["ContentSummary"]
    assert (summary["directoryCount"], summary["fileCount"], summary["length"]) == (2, 2, 5)
    assert (summary["quota"], summary["spaceQuota"], summary["spaceConsumed"]) == (-1, -1, 5)
    usage = alice.json("GETQUOTAUSAGE", folder)["QuotaUsage"]
    assert (usage["fileAndDirectoryCount"], usage["spaceConsumed"]) == (4, 5)
    checksum = alice.json("GETFILECHECKSUM", f"{folder}/two", data="true")["FileChecksum"]
    assert (checksum["algorithm"], checksum["length"]) == ("MD5-of-0MD5-of-512CRC32C", 28)
    assert len(checksum["bytes"]) == 64
    assert exception(alice.get("GETFILECHECKSUM", folder)) == (404, "FileNotFoundException")


def test_home_directory_and_server_defaults(alice: WebHdfsClient) -> None:
    assert alice.json("GETHOMEDIRECTORY", "/") == {"Path": "/user/alice"}
    assert alice.json("GETTRASHROOT", "/x") == {"Path": "/user/alice/.Trash"}
    defaults = alice.json("GETSERVERDEFAULTS", "/")["FsServerDefaults"]
    assert (defaults["blockSize"], defaults["checksumType"], defaults["trashInterval"]) == (134217728, 2, 0)


def test_set_permission_owner_times_and_replication(
    alice: WebHdfsClient, admin: WebHdfsClient, folder: str
) -> None:
    path = f"{folder}/file"
    alice.write(path, b"x", permission="600")
    assert alice.put("SETPERMISSION", path, permission="1755").status == 200
    assert alice.put("SETOWNER", path, group=TEAM).status == 200
    assert exception(alice.put("SETOWNER", path, owner="bob")) == (403, "AccessControlException")
    assert admin.put("SETOWNER", path, owner="bob").status == 200
    assert admin.put("SETTIMES", path, modificationtime=1500000000123, accesstime=-1).status == 200
    assert alice.put("SETREPLICATION", path, replication=3).json() == {"boolean": True}
    assert alice.put("SETREPLICATION", folder, replication=3).json() == {"boolean": False}
    status = alice.json("GETFILESTATUS", path)["FileStatus"]
    assert (status["permission"], status["owner"], status["group"]) == ("1755", "bob", TEAM)
    assert status["modificationTime"] == 1500000000123


def test_check_access(alice: WebHdfsClient, bob: WebHdfsClient, folder: str) -> None:
    alice.write(f"{folder}/file", b"x")
    assert alice.get("CHECKACCESS", f"{folder}/file", fsaction="rw-").status == 200
    assert exception(alice.get("CHECKACCESS", f"{folder}/file", fsaction="r-x")) == (
        403,
        "AccessControlException",
    )
    assert exception(bob.get("CHECKACCESS", f"{folder}/file", fsaction="r--")) == (
        403,
        "AccessControlException",
    )
    for wrong in ("", "rwxx", "xwr", "abc"):
        assert exception(alice.get("CHECKACCESS", folder, fsaction=wrong)) == (
            400,
            "IllegalArgumentException",
        )


def test_team_folder_is_shared(alice: WebHdfsClient, bob: WebHdfsClient, admin: WebHdfsClient) -> None:
    alice.write(f"/shared/{TEAM}/plan", b"alice")
    bob.write(f"/shared/{TEAM}/plan", b"bob", overwrite="true")
    assert alice.read(f"/shared/{TEAM}/plan") == b"bob"
    assert admin.json("GETFILESTATUS", f"/shared/{TEAM}")["FileStatus"]["permission"] == "770"


def test_block_locations_and_xattrs(alice: WebHdfsClient, folder: str) -> None:
    alice.write(f"{folder}/file", b"12345")
    (block,) = alice.json("GETFILEBLOCKLOCATIONS", f"{folder}/file")["BlockLocations"]["BlockLocation"]
    assert (block["offset"], block["length"], block["corrupt"]) == (0, 5, False)
    located = alice.json("GET_BLOCK_LOCATIONS", f"{folder}/file", length=2)["LocatedBlocks"]
    assert (located["fileLength"], len(located["locatedBlocks"])) == (5, 1)
    assert located["lastLocatedBlock"]["block"]["numBytes"] == 5
    assert alice.json("GETXATTRS", folder) == {"XAttrs": []}
    assert alice.json("LISTXATTRS", folder) == {"XAttrNames": "[]"}


def test_parameters_and_operations_are_case_insensitive(alice: WebHdfsClient, folder: str) -> None:
    alice.write(f"{folder}/a", b"12345")
    assert alice.get("open", f"{folder}/a", OFFSET=2, Length=2, Data="TRUE").body == b"34"
