"""`pai://` where people use it: fsspec, pandas, and the Python API."""

from __future__ import annotations

import functools
import gc
import io
import os
import random
from pathlib import Path, PurePosixPath

import fsspec
import pytest
from fsspec.callbacks import Callback

from openpaisdk.storage.backends.local import LocalBackend, LocalSource
from openpaisdk.storage.fsspec_filesystem import PaiFileSystem
from openpaisdk.storage.transfer.stream_upload import StreamUpload
from paiprotocol.errors import Conflict, UsageError
from support.storage_fixture import StorageWorkspace

CONTENT = os.urandom(1 << 20) * 20


@pytest.fixture(params=[False, True], ids=["handed over", "over HTTP"])
def fs(
    workspace: StorageWorkspace, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> PaiFileSystem:
    monkeypatch.setenv("HOME", str(workspace.person.home))
    made = fsspec.filesystem("pai", http=request.param, skip_instance_cache=True)
    assert isinstance(made, PaiFileSystem)
    return made


def test_path_below_a_file_raises_not_a_directory(workspace: StorageWorkspace, fs: PaiFileSystem) -> None:
    fs.pipe_file(f"{workspace.remote}/f", b"1")
    with pytest.raises(NotADirectoryError, match="/f is a file and not a folder"):
        fs.pipe_file(f"{workspace.remote}/f/below", b"2")


def test_files_are_written_and_read_at_any_offset(workspace: StorageWorkspace, fs: PaiFileSystem) -> None:
    path = f"{workspace.remote}/f"
    with fs.open(path, "wb") as f:
        for start in range(0, len(CONTENT), 3_000_000):
            f.write(CONTENT[start : start + 3_000_000])
        assert not fs.exists(path)
    assert fs.size(path) == len(CONTENT)
    with fs.open(path, "rb") as f:
        assert f.read() == CONTENT
    dice = random.Random(7)
    with fs.open(path, "rb") as f:
        for _ in range(50):
            at, size = dice.randrange(len(CONTENT)), dice.randrange(1, 200_000)
            f.seek(at)
            assert f.read(size) == CONTENT[at : at + size]
        f.seek(0)
        assert b"".join(iter(lambda: f.read(77_777), b"")) == CONTENT
    assert fs.cat_file(path, 5, 10) == CONTENT[5:10] and fs.cat_file(path, -3) == CONTENT[-3:]


def test_unfinished_file_does_not_exist(workspace: StorageWorkspace, fs: PaiFileSystem) -> None:
    path = f"{workspace.remote}/f"
    fs.pipe_file(path, b"old")
    with pytest.raises(RuntimeError, match="on purpose"), fs.open(path, "wb") as f:
        f.write(CONTENT)
        raise RuntimeError("on purpose")
    assert fs.cat_file(path) == b"old"
    assert fs.ls(workspace.remote, detail=False) == [path.removeprefix("pai://")]


def _by_the_address(fs: PaiFileSystem, path: str, mode: str, **options: str) -> fsspec.core.OpenFile:
    return fsspec.core.OpenFile(fs, path, mode, **options)


@pytest.mark.parametrize("how", ["fs.open", "fsspec.open"])
@pytest.mark.parametrize(
    "mode, options", [("wb", {}), ("w", {}), ("wb", {"compression": "gzip"}), ("xt", {})]
)
def test_exception_while_writing_keeps_the_old_file(
    workspace: StorageWorkspace, fs: PaiFileSystem, how: str, mode: str, options: dict[str, str]
) -> None:
    path = f"{workspace.remote}/f"
    if mode != "xt":
        fs.pipe_file(path, b"old")
    opened = fs.open if how == "fs.open" else functools.partial(_by_the_address, fs)
    line: str | bytes = b"new" if "b" in mode else "new"
    with pytest.raises(RuntimeError, match="on purpose"), opened(path, mode, **options) as f:
        f.write(line)
        f.flush()
        f.write(line)
        raise RuntimeError("on purpose")
    assert fs.exists(path) == (mode != "xt")
    assert mode == "xt" or fs.cat_file(path) == b"old"
    assert sorted(fs.ls(workspace.remote, detail=False)) == [path.removeprefix("pai://")] * (mode != "xt")
    try:
        raise RuntimeError("of somebody else")
    except RuntimeError:
        with opened(
            path, mode, **options
        ) as f:  # a file written while an exception is handled is complete, too
            f.write(line)
    with fs.open(path, "rb", **options) as f:
        assert f.read() == b"new"


def test_exclusive_create_fails_for_the_second_writer(workspace: StorageWorkspace, fs: PaiFileSystem) -> None:
    path = f"{workspace.remote}/f"
    first, second = fs.open(path, "xb"), fs.open(path, "xb")
    first.write(b"first")
    second.write(CONTENT)
    first.close()
    with pytest.raises(FileExistsError):
        second.close()
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    assert fs.cat_file(path) == b"first"
    assert fs.ls(workspace.remote, detail=False) == [path.removeprefix("pai://")]


def test_concurrent_exclusive_put_fails_for_one(
    workspace: StorageWorkspace, fs: PaiFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, here = f"{workspace.remote}/f", str(workspace.write("mine", CONTENT))
    monkeypatch.setattr(LocalSource, "check", lambda _: fs.pipe_file(path, b"theirs"))
    with pytest.raises(FileExistsError):
        fs.put_file(here, path, mode="create")
    assert fs.cat_file(path) == b"theirs"


def test_exclusive_create_on_a_local_storage(tmp_path: Path) -> None:
    backend = LocalBackend(str(tmp_path))
    first, second = (StreamUpload(backend, "/f", overwrite=False) for _ in range(2))
    first.add(b"first")
    second.add(b"second")
    first.finish()
    with pytest.raises(Conflict, match="already exists"):
        second.finish()
    with pytest.raises(Conflict, match="already exists"):
        StreamUpload(backend, "/f", overwrite=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"f": b"first"}


def test_file_and_folder_operations(workspace: StorageWorkspace, fs: PaiFileSystem) -> None:
    top = workspace.remote
    fs.makedirs(f"{top}/a/b")
    fs.pipe({f"{top}/a/x": b"1", f"{top}/a/b/y": b"22"})
    bare = top.removeprefix("pai://")
    assert fs.find(top) == [f"{bare}/a/b/y", f"{bare}/a/x"]
    assert fs.isdir(f"{top}/a") and fs.isfile(f"{top}/a/x") and not fs.exists(f"{top}/none")
    assert fs.du(top) == 3 and fs.glob(f"{top}/*/x") == [f"{bare}/a/x"]
    fs.mv(f"{top}/a/x", f"{top}/z")
    fs.cp_file(f"{top}/z", f"{top}/copy")
    assert fs.cat(f"{top}/copy") == b"1"
    fs.rm(f"{top}/a", recursive=True)
    assert sorted(fs.ls(top, detail=False)) == [f"{bare}/copy", f"{bare}/z"]
    with pytest.raises(FileNotFoundError):
        fs.open(f"{top}/none")
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{top}/none")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{top}")
    with pytest.raises(IsADirectoryError):
        fs.open(f"{top}")
    with pytest.raises(UsageError):
        fs.rm("pai://team/0/", recursive=True)


def test_remove_deletes_only_matching_paths(workspace: StorageWorkspace, fs: PaiFileSystem) -> None:
    top = f"{workspace.remote}/top"
    fs.pipe({f"{top}/{name}": b"1" for name in ("a.x", "b.x", "c", "[c]", "one/d", "two/three/e")})
    fs.rm(f"{top}/*.x")
    fs.rm(f"{top}/[c]")  # a name, though it looks like a pattern
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{top}/*.x")
    with pytest.raises(IsADirectoryError):
        fs.rm_file(f"{top}/one")
    with pytest.raises(NotADirectoryError):
        fs.rmdir(f"{top}/c")
    assert [name.rpartition("/top/")[2] for name in fs.find(top)] == ["c", "one/d", "two/three/e"]
    fs.rm(top, recursive=True, maxdepth=2)
    assert [name.rpartition("/top/")[2] for name in fs.find(top)] == ["two/three/e"]
    assert not fs.exists(f"{top}/one")


def test_move_creates_parent_folders(workspace: StorageWorkspace, fs: PaiFileSystem) -> None:
    fs.pipe_file(f"{workspace.remote}/f", b"f")
    fs.mv(f"{workspace.remote}/f", f"{workspace.remote}/new/folder/f")
    assert fs.cat_file(f"{workspace.remote}/new/folder/f") == b"f" and not fs.exists(f"{workspace.remote}/f")
    with pytest.raises(FileNotFoundError):
        fs.mv(f"{workspace.remote}/f", f"{workspace.remote}/other/f")
    assert not fs.exists(f"{workspace.remote}/other")


@pytest.mark.parametrize("cache", ["blockcache", "background", "readahead", "bytes", "mmap", "all", "none"])
def test_every_fsspec_cache_reads_to_the_end(
    workspace: StorageWorkspace, fs: PaiFileSystem, cache: str
) -> None:
    content = CONTENT[:9_000_001]
    fs.pipe_file(f"{workspace.remote}/f", content)
    with fs.open(f"{workspace.remote}/f", "rb", cache_type=cache) as f:
        f.seek(-5, os.SEEK_END)
        assert f.read(100) == content[-5:]
        f.seek(0)
        assert f.read() == content


def test_missing_file_is_reported_by_its_url(workspace: StorageWorkspace, fs: PaiFileSystem) -> None:
    path = f"{workspace.remote}/none"
    for ask in (fs.open, fs.info, fs.ls, fs.cat_file, fs.rm):
        with pytest.raises(FileNotFoundError, match=f"^{path}: there is no such file or folder"):
            ask(path)
    with pytest.raises(FileNotFoundError, match="There is no cluster called 'nobody'"):
        fs.open("pai://nobody/0/f")
    with pytest.raises(FileNotFoundError, match="has no storage called 'nothing'"):
        fs.ls("pai://team/nothing/f")


def test_put_and_get_files(workspace: StorageWorkspace, fs: PaiFileSystem) -> None:
    workspace.write("d/big", CONTENT)
    workspace.write("d/sub/small", b"s")
    fs.put(str(workspace.local / "d"), f"{workspace.remote}/d", recursive=True)
    fs.get(f"{workspace.remote}/d", str(workspace.local / "back"), recursive=True)
    assert (workspace.local / "back/big").read_bytes() == CONTENT
    assert (workspace.local / "back/sub/small").read_bytes() == b"s"


def test_put_without_overwrite_and_get_into_an_open_file(
    workspace: StorageWorkspace, fs: PaiFileSystem
) -> None:
    workspace.write("f", b"new")
    fs.pipe_file(f"{workspace.remote}/f", b"old")
    with pytest.raises(FileExistsError):
        fs.put_file(str(workspace.local / "f"), f"{workspace.remote}/f", mode="create")
    held = io.BytesIO()
    fs.get_file(f"{workspace.remote}/f", held)
    assert held.getvalue() == b"old"
    seen = Callback()
    fs.get_file(f"{workspace.remote}/f", "", callback=seen, outfile=held)
    assert held.getvalue() == b"oldold" and (seen.size, seen.value) == (3, 3)
    fs.get_file(f"{workspace.remote}/f", workspace.local / "by-path")
    assert (workspace.local / "by-path").read_bytes() == b"old"


def test_fsspec_open_by_url(workspace: StorageWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(workspace.person.home))
    with fsspec.open(f"{workspace.remote}/table.csv", "wt") as f:
        f.write("name,size\na,1\nb,2\n")
    with fsspec.open(
        "pai://team/0/user/${PAI_USER_NAME}/" + workspace.path.split("/")[3] + "/table.csv", "rt"
    ) as f:
        assert f.readline() == "name,size\n"
    pandas = pytest.importorskip("pandas")
    found = pandas.read_csv(f"{workspace.remote}/table.csv")
    assert list(found["size"]) == [1, 2]
    found.to_csv(f"{workspace.remote}/again.csv", index=False)
    assert workspace.read("again.csv") == b"name,size\na,1\nb,2\n"


def test_sequential_reads_read_ahead_random_reads_do_not(
    workspace: StorageWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace.person.home))
    workspace.write("f", CONTENT)
    workspace.ok("copy", "f", f"{workspace.remote}/f")
    fs = fsspec.filesystem("pai", http=True, skip_instance_cache=True)
    asked: list[tuple[int, int]] = []
    with fs.open(f"{workspace.remote}/f") as f:
        fetch = f.cache.fetcher
        f.cache.fetcher = lambda start, end: asked.append((start, end)) or fetch(start, end)
        for _ in range(100):
            f.read(10_000)
        assert len(asked) < 6
        asked.clear()
        for at in (5_000_000, 3_000_000, 9_000_000):
            f.seek(at)
            f.read(65536)
        assert asked == [(at, at + 65536) for at in (5_000_000, 3_000_000, 9_000_000)]


def test_python_uploads_downloads_lists_and_deletes(workspace: StorageWorkspace) -> None:
    storage = workspace.storage()
    workspace.write("d/x", b"1")
    said = storage.upload(workspace.local / "d", workspace.path + "/")
    assert said["newFiles"] == 1
    assert [each["name"] for each in storage.list(workspace.path + "/d")] == ["x"]
    assert storage.status(workspace.path + "/d/x")["size"] == 1
    storage.download(PurePosixPath(workspace.path, "d/x"), workspace.local / "y")
    assert (workspace.local / "y").read_bytes() == b"1"
    for target in ("y", "d"):
        with pytest.raises(UsageError, match="already exists"):
            storage.download(workspace.path + "/d/x", str(workspace.local / target), overwrite=False)
    for target in ("d/x", "d", "d/"):
        with pytest.raises(UsageError, match="/d/x already exists"):
            storage.upload(workspace.local / "d/x", f"{workspace.path}/{target}", overwrite=False)
    storage.upload(workspace.local / "y", workspace.path + "/d", overwrite=False)
    storage.delete(workspace.path + "/d")
    assert not storage.exists(workspace.path + "/d")
    with pytest.raises(UsageError):
        storage.delete("/")
    with pytest.raises(UsageError):
        storage.status(workspace.path + "/none")


def test_append_is_rejected_and_changes_nothing(workspace: StorageWorkspace, fs: PaiFileSystem) -> None:
    path = f"{workspace.remote}/f"
    fs.pipe_file(path, b"old")
    for each in (path, f"{workspace.remote}/none"):
        with pytest.raises(NotImplementedError, match="write it again"):
            fs.open(each, "ab")
    gc.collect()
    assert fs.cat_file(path) == b"old"
    assert not fs.exists(f"{workspace.remote}/none")


def test_forked_processes_read_their_own_responses(workspace: StorageWorkspace, fs: PaiFileSystem) -> None:
    """Like the workers of a DataLoader, which inherit the file system object of their parent."""
    contents = {f"{workspace.remote}/{number}": b"%d" % number * 100_000 for number in range(4)}
    fs.pipe(contents)
    children = []
    for path, content in contents.items():
        child = os.fork()
        if not child:
            is_right = False
            try:
                is_right = all(fs.cat_file(path) == content for _ in range(20))
            finally:
                os._exit(0 if is_right else 1)
        children.append(child)
    assert all(fs.cat_file(path) == content for _ in range(5) for path, content in contents.items())
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0, 0]
