"""GETARCHIVE: a folder as one tar file, with what its caller may read."""

from __future__ import annotations

import io
import tarfile

from support.webhdfs_client import StorageCluster, WebHdfsClient, exception

LARGE = bytes(range(256)) * 2100


def members(body: bytes) -> dict[str, bytes | None]:
    """Content by name; None: a folder."""
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        files = {one.name: archive.extractfile(one) for one in archive}
        return {name: None if file is None else file.read() for name, file in files.items()}


def test_folder_is_a_tar_with_all_names_and_bytes(alice: WebHdfsClient, folder: str) -> None:
    content = {
        "a/empty": b"",
        "a/large.bin": LARGE,
        f"a/b/{'ä' * 120}": b"deep",
        "block": b"x" * 512,
    }
    for name, data in content.items():
        alice.write(f"{folder}/to tar/{name}", data)
    alice.put("MKDIRS", f"{folder}/to tar/z-empty")
    reply = alice.get("GETARCHIVE", f"{folder}/to tar", data="true")
    assert reply.status == 200
    assert reply.headers["content-disposition"] == "attachment; filename*=UTF-8''to%20tar.tar"
    assert members(reply.body) == {
        **{f"to tar/{name}": data for name, data in content.items()},
        **dict.fromkeys(("to tar", "to tar/a", "to tar/a/b", "to tar/z-empty")),
    }


def test_address_of_an_archive_needs_no_header(
    alice: WebHdfsClient, folder: str, cluster: StorageCluster
) -> None:
    alice.write(f"{folder}/linked/one", b"1")
    location = alice.get("GETARCHIVE", f"{folder}/linked", noredirect="true").json()["Location"]
    path = "/webhdfs" + location.partition("/webhdfs")[2]
    assert members(cluster.get(path, token=None).body) == {"linked": None, "linked/one": b"1"}
    # For this folder only.
    assert cluster.get(path.replace("/linked?", "?"), token=None).status == 401


def test_what_the_caller_may_not_read_is_listed(
    admin: WebHdfsClient, alice: WebHdfsClient, bob: WebHdfsClient
) -> None:
    admin.put("MKDIRS", "/archives", permission="777")
    alice.write("/archives/shared/open.txt", b"for all")
    alice.write("/archives/shared/secret.txt", b"not for bob")
    alice.write("/archives/shared/closed/inner.txt", b"not for bob")
    for path, mode in (("", "755"), ("/open.txt", "644"), ("/secret.txt", "600"), ("/closed", "700")):
        alice.put("SETPERMISSION", f"/archives/shared{path}", permission=mode)
    found = members(bob.get("GETARCHIVE", "/archives/shared", data="true").body)
    left_out = (found.pop("shared/not-included.txt") or b"").decode()
    assert found == {"shared": None, "shared/open.txt": b"for all", "shared/closed": None}
    assert sorted(line.partition(":")[0] for line in left_out.splitlines()) == ["closed", "secret.txt"]
    assert "Permission denied" in left_out and "inner.txt" not in left_out
    # A file of the folder keeps its name.
    for name in ("not-included.txt", "not-included-2.txt"):
        alice.write(f"/archives/shared/{name}", b"own")
        alice.put("SETPERMISSION", f"/archives/shared/{name}", permission="644")
    found = members(bob.get("GETARCHIVE", "/archives/shared", data="true").body)
    assert found["shared/not-included.txt"] == found["shared/not-included-2.txt"] == b"own"
    assert (found["shared/not-included-3.txt"] or b"").decode() == left_out


def test_files_and_missing_or_closed_folders_are_errors(
    alice: WebHdfsClient, bob: WebHdfsClient, folder: str
) -> None:
    alice.write(f"{folder}/file", b"1")
    refused = alice.get("GETARCHIVE", f"{folder}/file")
    assert refused.status == 400
    assert "is a file: only folders have archives" in refused.json()["RemoteException"]["message"]
    assert exception(alice.get("GETARCHIVE", f"{folder}/nothing")) == (404, "FileNotFoundException")
    alice.put("MKDIRS", f"{folder}/mine", permission="700")
    assert bob.get("GETARCHIVE", f"{folder}/mine").status == 403
