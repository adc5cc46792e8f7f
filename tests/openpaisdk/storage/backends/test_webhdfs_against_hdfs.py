"""The client against a real NameNode and DataNode: added by hand, found by its address, copied to."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import fsspec
import pytest

from support.cli_user import CommandResult, until
from support.hadoop import RealHdfs, hdfs
from support.storage_fixture import Desk, tree_of

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


@pytest.fixture
def lab(desk: Desk, real: RealHdfs) -> Iterator[str]:
    """The real HDFS as a storage of this person, by the address of its name node."""
    name = os.environ.get("USER") or "root"
    port = real.url.rpartition(":")[2]
    desk.ok(
        *("add-storage-cluster", "-a", "lab", "--type", "hdfs", "--address", f"hdfs://{real.address}"),
        *("--path", "/", "--user", name, f"servers_ext:webhdfs={port}"),
    )
    yield f"hdfs://{real.address}"
    desk.ok("delete-cluster", "lab")


def test_everything_works_against_the_real_thing(
    desk: Desk, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = "pai://lab/0/user/me"
    content = os.urandom(1 << 20) * 70  # two writes: the second is appended
    desk.write("d/large", content, mtime=1.5e9)
    for i in range(20):
        desk.write(f"d/sub/f {i} ü", f"{i}" * i, mtime=i - 5)  # some from before 1970
    (desk.here / "d/empty").mkdir()
    assert "21 files, 70 MB, all new" in desk.pai("copy", "d", f"{top}/").err
    assert "nothing new" in desk.pai("copy", "d", f"{top}/").err
    desk.write("d/large", b"changed", mtime=1.6e9)
    desk.write("d/sub/f 1 ü", "new")
    (desk.here / "d/sub/f 2 ü").unlink()
    desk.ok("sync", "--delete", "d", f"{lab}/user/me/d")  # the same storage by its other address
    desk.ok("copy", f"{top}/d", "back")
    assert tree_of(desk.here / "back") == tree_of(desk.here / "d")
    assert (desk.here / "back/large").stat().st_mtime == 1.6e9 and (desk.here / "back/empty").is_dir()
    info = desk.json("getinfo", f"{lab}/user/me/d/large")
    assert (info["type"], info["size"]) == ("file", 7)
    # From HDFS to our own storage and back again, and through pipes.
    desk.ok("copy", f"{top}/d", f"{desk.there}/d")
    desk.ok("copy", f"{desk.there}/d", f"{top}/e")
    assert sorted(desk.json("listdir", "-R", f"{top}/e"), key=str) != []
    desk.ok("copy", "-", f"{top}/said", stdin="hello\n")
    assert desk.ok("copy", f"{top}/said", "-") == "hello\n"
    # As a file system.
    monkeypatch.setenv("HOME", str(desk.person.home))
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
    used = desk.json("disk-usage", f"{top}/e")
    assert used["files"] == 20
    refused = desk.pai("copy", f"{top}/none", ".")
    assert refused.status == 2 and "there is no such file or folder" in refused.err
    refused = desk.pai("makedir", f"{top}/a:b")
    assert refused.status == 2 and "colon" in refused.err
    desk.ok("remove", f"{top}/d", f"{top}/e")
    assert desk.ok("listdir", top) == "said\nthrough-fsspec\n"
    left = [each["name"] for each in desk.json("listdir", "-R", top) if "pai-part" in each["name"]]
    assert left == []


@pytest.mark.parametrize("size", [1, 511, 512, 1 << 20, (1 << 20) + 7, 3 << 20])
def test_the_checksum_of_hdfs_is_the_one_made_here(desk: Desk, real: RealHdfs, size: int) -> None:
    """With blocks of 1 MiB, so that there are one, and several."""
    from openpaisdk.storage.backends.hdfs_checksum import file_md5

    content = os.urandom(size)
    local = desk.write("summed", content)
    path = f"{real.url}/webhdfs/v1/summed{size}?op="
    user = "&user.name=" + (os.environ.get("USER") or "root")
    subprocess.run(
        [
            "curl",
            "-sfL",
            "-X",
            "PUT",
            "-T",
            str(local),
            f"{path}CREATE&blocksize=1048576&overwrite=true{user}",
        ],
        check=True,
    )
    told = subprocess.run(["curl", "-sfL", f"{path}GETFILECHECKSUM{user}"], check=True, capture_output=True)
    found = json.loads(told.stdout)["FileChecksum"]
    with local.open("rb") as f:
        assert file_md5(f.fileno(), size, found["algorithm"]) == found["bytes"][24:56]


def test_what_was_damaged_on_its_way_to_or_from_hdfs_is_noticed(
    desk: Desk, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from openpaisdk.errors import ConnectionFailed
    from openpaisdk.storage.backends.webhdfs import WebHdfs
    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.location import parse_location
    from openpaisdk.storage.transfer.copy import CopyOperation

    monkeypatch.setenv("HOME", str(desk.person.home))
    here, there = desk.write("f", b"right" * 1000), f"{lab}/user/me/damaged"
    create, read = WebHdfs.create, WebHdfs.read

    def run(source: str, target: str) -> None:
        CopyOperation.plan(StorageOpener(), parse_location(source), parse_location(target), force=True).run()

    run(str(here), there)
    with monkeypatch.context() as wire:
        wire.setattr(
            WebHdfs,
            "create",
            lambda self, path, size, chunks, mode: create(
                self, path, size, lambda: iter([b"wrong" * 1000]), mode
            ),
        )
        with pytest.raises(ConnectionFailed, match="damaged"):
            run(str(here), there)
    with monkeypatch.context() as wire:
        wire.setattr(WebHdfs, "read", lambda self, *a: (bytes(data).upper() for data in read(self, *a)))
        with pytest.raises(ConnectionFailed, match="damaged"):
            run(there, str(desk.here / "back"))
    assert not (desk.here / "back").exists()
    run(there, str(desk.here / "back"))
    assert (desk.here / "back").read_bytes() == here.read_bytes()


def test_an_interrupted_copy_to_hdfs_continues(desk: Desk, real: RealHdfs, lab: str) -> None:
    content = os.urandom(1 << 20) * 100
    desk.write("f", content)
    desk.ok("makedir", "pai://lab/0/user/me")
    process = desk.person.begin("copy", "f", "pai://lab/0/user/me/f")

    def begun() -> bool:
        found = subprocess.run(
            ["curl", "-s", f"{real.url}/webhdfs/v1/user/me?op=LISTSTATUS"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return '"length":33554432' in found or '"length":67108864' in found

    until(begun, 40)
    process.kill()
    process.wait()
    assert "f" not in desk.ok("listdir", "pai://lab/0/user/me").split()
    # HDFS keeps the file for the client that is gone for a minute; that is waited for.
    done = ended(desk.person.begin("copy", "f", "pai://lab/0/user/me/f"))
    assert done.status == 0, done
    desk.ok("copy", "pai://lab/0/user/me/f", "back")
    assert (desk.here / "back").read_bytes() == content


def ended(process: subprocess.Popen[str]) -> CommandResult:
    out, err = process.communicate(timeout=150)
    return CommandResult(process.returncode, out, err)
