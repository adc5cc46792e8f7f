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

from openpaisdk.errors import Conflict, UsageError
from openpaisdk.storage.backends.local import LocalBackend, LocalSource
from openpaisdk.storage.fsspec_filesystem import PaiFileSystem
from openpaisdk.storage.transfer.stream_upload import StreamUpload
from support.storage_fixture import Desk

CONTENT = os.urandom(1 << 20) * 20


@pytest.fixture(params=[False, True], ids=["handed over", "over HTTP"])
def fs(desk: Desk, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PaiFileSystem:
    monkeypatch.setenv("HOME", str(desk.person.home))
    made = fsspec.filesystem("pai", http=request.param, skip_instance_cache=True)
    assert isinstance(made, PaiFileSystem)
    return made


def test_what_would_lie_below_a_file_says_so_as_everywhere(desk: Desk, fs: PaiFileSystem) -> None:
    fs.pipe_file(f"{desk.there}/f", b"1")
    with pytest.raises(NotADirectoryError, match="/f is a file and not a folder"):
        fs.pipe_file(f"{desk.there}/f/below", b"2")


def test_files_are_written_and_read_from_any_place(desk: Desk, fs: PaiFileSystem) -> None:
    path = f"{desk.there}/f"
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


def test_a_file_that_was_not_finished_is_not_there(desk: Desk, fs: PaiFileSystem) -> None:
    path = f"{desk.there}/f"
    fs.pipe_file(path, b"old")
    with pytest.raises(RuntimeError, match="on purpose"), fs.open(path, "wb") as f:
        f.write(CONTENT)
        raise RuntimeError("on purpose")
    assert fs.cat_file(path) == b"old"
    assert fs.ls(desk.there, detail=False) == [path.removeprefix("pai://")]


def _by_the_address(fs: PaiFileSystem, path: str, mode: str, **options: str) -> fsspec.core.OpenFile:
    return fsspec.core.OpenFile(fs, path, mode, **options)


@pytest.mark.parametrize("how", ["fs.open", "fsspec.open"])
@pytest.mark.parametrize(
    "mode, options", [("wb", {}), ("w", {}), ("wb", {"compression": "gzip"}), ("xt", {})]
)
def test_an_exception_leaves_what_was_there_however_the_file_was_opened(
    desk: Desk, fs: PaiFileSystem, how: str, mode: str, options: dict[str, str]
) -> None:
    path = f"{desk.there}/f"
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
    assert sorted(fs.ls(desk.there, detail=False)) == [path.removeprefix("pai://")] * (mode != "xt")
    try:
        raise RuntimeError("of somebody else")
    except RuntimeError:
        with opened(path, mode, **options) as f:  # a file written because of an exception is a file, too
            f.write(line)
    with fs.open(path, "rb", **options) as f:
        assert f.read() == b"new"


def test_of_two_who_make_the_same_file_the_second_is_refused(desk: Desk, fs: PaiFileSystem) -> None:
    path = f"{desk.there}/f"
    first, second = fs.open(path, "xb"), fs.open(path, "xb")
    first.write(b"first")
    second.write(CONTENT)
    first.close()
    with pytest.raises(FileExistsError):
        second.close()
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    assert fs.cat_file(path) == b"first"
    assert fs.ls(desk.there, detail=False) == [path.removeprefix("pai://")]


def test_of_two_who_put_the_same_file_together_one_is_refused(
    desk: Desk, fs: PaiFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, here = f"{desk.there}/f", str(desk.write("mine", CONTENT))
    monkeypatch.setattr(LocalSource, "check", lambda _: fs.pipe_file(path, b"theirs"))
    with pytest.raises(FileExistsError):
        fs.put_file(here, path, mode="create")
    assert fs.cat_file(path) == b"theirs"


def test_on_a_storage_of_this_machine_too_the_second_is_refused(tmp_path: Path) -> None:
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


def test_folders_and_files_can_be_handled(desk: Desk, fs: PaiFileSystem) -> None:
    top = desk.there
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


def test_only_what_was_meant_is_removed(desk: Desk, fs: PaiFileSystem) -> None:
    top = f"{desk.there}/top"
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


def test_a_move_makes_the_folders_on_its_way(desk: Desk, fs: PaiFileSystem) -> None:
    fs.pipe_file(f"{desk.there}/f", b"f")
    fs.mv(f"{desk.there}/f", f"{desk.there}/new/folder/f")
    assert fs.cat_file(f"{desk.there}/new/folder/f") == b"f" and not fs.exists(f"{desk.there}/f")
    with pytest.raises(FileNotFoundError):
        fs.mv(f"{desk.there}/f", f"{desk.there}/other/f")
    assert not fs.exists(f"{desk.there}/other")


@pytest.mark.parametrize("cache", ["blockcache", "background", "readahead", "bytes", "mmap", "all", "none"])
def test_every_cache_of_fsspec_reads_up_to_the_end(desk: Desk, fs: PaiFileSystem, cache: str) -> None:
    content = CONTENT[:9_000_001]
    fs.pipe_file(f"{desk.there}/f", content)
    with fs.open(f"{desk.there}/f", "rb", cache_type=cache) as f:
        f.seek(-5, os.SEEK_END)
        assert f.read(100) == content[-5:]
        f.seek(0)
        assert f.read() == content


def test_what_is_not_there_is_said_by_its_address(desk: Desk, fs: PaiFileSystem) -> None:
    path = f"{desk.there}/none"
    for ask in (fs.open, fs.info, fs.ls, fs.cat_file, fs.rm):
        with pytest.raises(FileNotFoundError, match=f"^{path}: there is no such file or folder"):
            ask(path)
    with pytest.raises(FileNotFoundError, match="There is no cluster called 'nobody'"):
        fs.open("pai://nobody/0/f")
    with pytest.raises(FileNotFoundError, match="has no storage called 'nothing'"):
        fs.ls("pai://team/nothing/f")


def test_files_go_up_and_down(desk: Desk, fs: PaiFileSystem) -> None:
    desk.write("d/big", CONTENT)
    desk.write("d/sub/small", b"s")
    fs.put(str(desk.here / "d"), f"{desk.there}/d", recursive=True)
    fs.get(f"{desk.there}/d", str(desk.here / "back"), recursive=True)
    assert (desk.here / "back/big").read_bytes() == CONTENT
    assert (desk.here / "back/sub/small").read_bytes() == b"s"


def test_a_file_goes_up_only_where_none_is_and_down_into_one_that_is_open(
    desk: Desk, fs: PaiFileSystem
) -> None:
    desk.write("f", b"new")
    fs.pipe_file(f"{desk.there}/f", b"old")
    with pytest.raises(FileExistsError):
        fs.put_file(str(desk.here / "f"), f"{desk.there}/f", mode="create")
    held = io.BytesIO()
    fs.get_file(f"{desk.there}/f", held)
    assert held.getvalue() == b"old"
    seen = Callback()
    fs.get_file(f"{desk.there}/f", "", callback=seen, outfile=held)
    assert held.getvalue() == b"oldold" and (seen.size, seen.value) == (3, 3)
    fs.get_file(f"{desk.there}/f", desk.here / "by-path")
    assert (desk.here / "by-path").read_bytes() == b"old"


def test_the_address_alone_is_enough(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(desk.person.home))
    with fsspec.open(f"{desk.there}/table.csv", "wt") as f:
        f.write("name,size\na,1\nb,2\n")
    with fsspec.open(
        "pai://team/0/user/${PAI_USER_NAME}/" + desk.path.split("/")[3] + "/table.csv", "rt"
    ) as f:
        assert f.readline() == "name,size\n"
    pandas = pytest.importorskip("pandas")
    found = pandas.read_csv(f"{desk.there}/table.csv")
    assert list(found["size"]) == [1, 2]
    found.to_csv(f"{desk.there}/again.csv", index=False)
    assert desk.read("again.csv") == b"name,size\na,1\nb,2\n"


def test_reading_on_reads_ahead_and_jumping_about_does_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(desk.person.home))
    desk.write("f", CONTENT)
    desk.ok("copy", "f", f"{desk.there}/f")
    fs = fsspec.filesystem("pai", http=True, skip_instance_cache=True)
    asked: list[tuple[int, int]] = []
    with fs.open(f"{desk.there}/f") as f:
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


def test_python_uploads_downloads_lists_and_deletes(desk: Desk) -> None:
    storage = desk.storage()
    desk.write("d/x", b"1")
    said = storage.upload(desk.here / "d", desk.path + "/")
    assert said["newFiles"] == 1
    assert [each["name"] for each in storage.list(desk.path + "/d")] == ["x"]
    assert storage.status(desk.path + "/d/x")["size"] == 1
    storage.download(PurePosixPath(desk.path, "d/x"), desk.here / "y")
    assert (desk.here / "y").read_bytes() == b"1"
    for target in ("y", "d"):
        with pytest.raises(UsageError, match="already exists"):
            storage.download(desk.path + "/d/x", str(desk.here / target), overwrite=False)
    for target in ("d/x", "d", "d/"):
        with pytest.raises(UsageError, match="/d/x already exists"):
            storage.upload(desk.here / "d/x", f"{desk.path}/{target}", overwrite=False)
    storage.upload(desk.here / "y", desk.path + "/d", overwrite=False)
    storage.delete(desk.path + "/d")
    assert not storage.exists(desk.path + "/d")
    with pytest.raises(UsageError):
        storage.delete("/")
    with pytest.raises(UsageError):
        storage.status(desk.path + "/none")


def test_what_cannot_be_appended_to_stays_as_it_was(desk: Desk, fs: PaiFileSystem) -> None:
    path = f"{desk.there}/f"
    fs.pipe_file(path, b"old")
    for each in (path, f"{desk.there}/none"):
        with pytest.raises(NotImplementedError, match="write it again"):
            fs.open(each, "ab")
    gc.collect()
    assert fs.cat_file(path) == b"old"
    assert not fs.exists(f"{desk.there}/none")


def test_forks_read_what_they_asked_for_and_not_what_others_did(desk: Desk, fs: PaiFileSystem) -> None:
    """As the workers of a DataLoader do, which have the file system of their parent."""
    contents = {f"{desk.there}/{number}": b"%d" % number * 100_000 for number in range(4)}
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
