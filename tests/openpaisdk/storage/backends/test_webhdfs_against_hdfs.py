"""The client against a real NameNode and DataNode: configured, addressed by URL, copied to and from."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from support.cli_user import LIMIT, CommandResult, until
from support.hadoop import RealHdfs
from support.hadoop_client import HadoopClient
from support.packed_data import contents, make_files
from support.storage_fixture import StorageWorkspace, tree_of

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("hdfs")]


@pytest.fixture
def lab(workspace: StorageWorkspace, real_hdfs: RealHdfs) -> Iterator[str]:
    """The real HDFS as a configured storage, by the address of its name node."""
    name = os.environ.get("USER") or "root"
    port = real_hdfs.url.rpartition(":")[2]
    workspace.ok(
        *("add-storage-cluster", "-a", "lab", "--type", "hdfs", "--address", f"hdfs://{real_hdfs.address}"),
        *("--path", "/", "--user", name, f"servers_ext:webhdfs={port}"),
    )
    yield f"hdfs://{real_hdfs.address}"
    workspace.ok("delete-cluster", "lab")


def test_all_operations_work_against_hdfs(
    workspace: StorageWorkspace, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = "pai://lab/0/user/me"
    content = os.urandom(1 << 20) * 70  # two writes: the second is appended
    workspace.write("d/large", content, mtime=1.5e9)
    for i in range(20):
        workspace.write(f"d/sub/f {i} ü", f"{i}" * i, mtime=i - 5)  # some from before 1970
    (workspace.local / "d/empty").mkdir()
    assert "21 files, 70 MB, all new" in workspace.pai("copy", "d", f"{top}/").err
    assert "nothing new" in workspace.pai("copy", "d", f"{top}/").err
    workspace.write("d/large", b"changed", mtime=1.6e9)
    workspace.write("d/sub/f 1 ü", "new")
    (workspace.local / "d/sub/f 2 ü").unlink()
    workspace.ok("sync", "--delete", "d", f"{lab}/user/me/d")  # the same storage by its other address
    workspace.ok("copy", f"{top}/d", "back")
    assert tree_of(workspace.local / "back") == tree_of(workspace.local / "d")
    assert (workspace.local / "back/large").stat().st_mtime == 1.6e9 and (
        workspace.local / "back/empty"
    ).is_dir()
    info = workspace.json("getinfo", f"{lab}/user/me/d/large")
    assert (info["type"], info["size"]) == ("file", 7)
    # From HDFS to our own storage and back again, and through pipes.
    workspace.ok("copy", f"{top}/d", f"{workspace.remote}/d")
    workspace.ok("copy", f"{workspace.remote}/d", f"{top}/e")
    assert sorted(workspace.json("listdir", "-R", f"{top}/e"), key=str) != []
    workspace.ok("copy", "-", f"{top}/said", stdin="hello\n")
    assert workspace.ok("copy", f"{top}/said", "-") == "hello\n"
    # As a file system.
    monkeypatch.setenv("HOME", str(workspace.person.home))
    with fsspec.open(f"{top}/through-fsspec", "wb") as f:
        f.write(b"x" * 100_000)
    with fsspec.open(f"{top}/through-fsspec", "rb") as f:
        f.seek(99_990)
        assert f.read() == b"x" * 10
    fs = fsspec.filesystem("pai", skip_instance_cache=True)
    first, second = (fs.open(f"{top}/made-once", "xb") for _ in range(2))
    first.write(b"first")
    second.write(b"second")
    first.close()
    with pytest.raises(FileExistsError):
        second.close()
    assert fs.cat_file(f"{top}/made-once") == b"first"
    fs.rm_file(f"{top}/made-once")
    used = workspace.json("disk-usage", f"{top}/e")
    assert used["files"] == 20
    refused = workspace.pai("copy", f"{top}/none", ".")
    assert refused.status == 2 and "there is no such file or folder" in refused.err
    refused = workspace.pai("makedir", f"{top}/a:b")
    assert refused.status == 2 and "colon" in refused.err
    workspace.ok("remove", f"{top}/d", f"{top}/e")
    assert workspace.ok("listdir", top) == "said\nthrough-fsspec\n"
    left = [each["name"] for each in workspace.json("listdir", "-R", top) if "pai-part" in each["name"]]
    assert left == []


def ask(hdfs: RealHdfs, method: str, path: str, body: bytes | None = None) -> bytes:
    """Answer to a request of WebHDFS, by a client that is not ours."""

    class Follows(urllib.request.HTTPRedirectHandler):
        """The name node sends a request on to a data node; urllib would make a GET of it."""

        def redirect_request(self, *passed: Any) -> urllib.request.Request:
            return urllib.request.Request(passed[-1], data=body, method=method)

    request = urllib.request.Request(f"{hdfs.url}/webhdfs/v1{path}", method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Follows)
    with opener.open(request, timeout=LIMIT) as response:
        return bytes(response.read())


@pytest.mark.parametrize("size", [1, 511, 512, 1 << 20, (1 << 20) + 7, 3 << 20])
def test_hdfs_checksum_equals_ours(workspace: StorageWorkspace, real_hdfs: RealHdfs, size: int) -> None:
    """With blocks of 1 MiB, so that files have one or several blocks."""
    from openpaisdk.storage.backends.hdfs_checksum import file_md5

    content = os.urandom(size)
    local = workspace.write("summed", content)
    path = f"/summed{size}?user.name={os.environ.get('USER') or 'root'}&op="
    ask(real_hdfs, "PUT", f"{path}CREATE&blocksize=1048576&overwrite=true", content)
    found = json.loads(ask(real_hdfs, "GET", f"{path}GETFILECHECKSUM"))["FileChecksum"]
    with local.open("rb") as f:
        assert file_md5(f.fileno(), size, found["algorithm"]) == found["bytes"][24:56]


def test_damage_in_transfers_with_hdfs_is_detected(
    workspace: StorageWorkspace, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from openpaisdk.storage.backends.webhdfs import WebHdfs
    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.location import parse_location
    from openpaisdk.storage.transfer.copy import CopyOperation
    from paiprotocol.errors import ConnectionFailed

    monkeypatch.setenv("HOME", str(workspace.person.home))
    here, there = workspace.write("f", b"right" * 1000), f"{lab}/user/me/damaged"
    put, read = WebHdfs.put, WebHdfs.read

    def run(source: str, target: str) -> None:
        CopyOperation.plan(StorageOpener(), parse_location(source), parse_location(target), force=True).run()

    run(str(here), there)
    with monkeypatch.context() as patch:
        patch.setattr(
            WebHdfs,
            "put",
            lambda self, path, size, chunks, mode: put(
                self, path, size, lambda: iter([b"wrong" * 1000]), mode
            ),
        )
        with pytest.raises(ConnectionFailed, match="damaged"):
            run(str(here), there)
    with monkeypatch.context() as patch:
        patch.setattr(WebHdfs, "read", lambda self, *a: (bytes(data).upper() for data in read(self, *a)))
        with pytest.raises(ConnectionFailed, match="damaged"):
            run(there, str(workspace.local / "back"))
    assert not (workspace.local / "back").exists()
    run(there, str(workspace.local / "back"))
    assert (workspace.local / "back").read_bytes() == here.read_bytes()


def test_interrupted_copy_to_hdfs_resumes(workspace: StorageWorkspace, real_hdfs: RealHdfs, lab: str) -> None:
    content = os.urandom(1 << 20) * 100
    workspace.write("f", content)
    workspace.ok("makedir", "pai://lab/0/user/me")
    process = workspace.person.begin("copy", "f", "pai://lab/0/user/me/f")

    def begun() -> bool:
        found = ask(real_hdfs, "GET", "/user/me?op=LISTSTATUS").decode()
        return '"length":33554432' in found or '"length":67108864' in found

    until(begun)
    process.kill()
    process.wait()
    assert "f" not in workspace.ok("listdir", "pai://lab/0/user/me").split()
    # HDFS holds the lease of the dead client for a minute; the copy waits for it.
    done = ended(workspace.person.begin("copy", "f", "pai://lab/0/user/me/f"))
    assert done.status == 0, done
    workspace.ok("copy", "pai://lab/0/user/me/f", "back")
    assert (workspace.local / "back").read_bytes() == content


def ended(process: subprocess.Popen[str]) -> CommandResult:
    out, err = process.communicate(timeout=150)
    return CommandResult(process.returncode, out, err)


def test_hadoop_reads_our_packs_over_webhdfs(
    workspace: StorageWorkspace, lab: str, real_hdfs: RealHdfs, tmp_path: Path
) -> None:
    source = make_files(workspace.local / "files")
    next(path for path in source.iterdir() if b"\xe9" in bytes(path)).unlink()  # Java has no such names
    (source / "greeting").write_text("hello")
    top = f"{lab}/packs"
    workspace.ok("pack", "--format", "har", "--shard-size", "20k", "files", f"{top}/files.har")
    workspace.ok("unpack", f"{top}/files.har", "back")
    assert contents(workspace.local / "back") == contents(source)
    hadoop = HadoopClient(tmp_path)
    address = real_hdfs.url.partition("://")[2]
    archive = f"har://webhdfs-{address}/packs/files.har"
    listed = hadoop.shell("-ls", "-R", "-C", archive).decode().splitlines()
    names = {str(path.relative_to(source)) for path in source.rglob("*")}
    assert {line.removeprefix(archive + "/") for line in listed} == names
    assert hadoop.shell("-cat", f"{archive}/greeting") == b"hello"
    hadoop.shell("-copyToLocal", archive, str(tmp_path / "out"))
    copied = {name: data for name, data in contents(tmp_path / "out").items() if not name.endswith(".crc")}
    assert copied == contents(source)
    # From a folder of the HDFS to a pack of the HDFS.
    workspace.ok("copy", "files/greeting", f"{top}/plain/greeting")
    workspace.ok(
        *("pack", "--format", "sequencefile", "--compression", "block-deflate"), f"{top}/plain", f"{top}/seq"
    )
    shown = hadoop.shell("-text", f"webhdfs://{address}/packs/seq/shard-000000.seq")
    assert shown == b"greeting\t68 65 6c 6c 6f\n"
