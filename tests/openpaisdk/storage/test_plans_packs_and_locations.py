"""Pure parts of the storage client: packs, plans, locations, partial files, sizes."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpaisdk.storage.backends import base, local, partial_files
from openpaisdk.storage.backends.base import split_ranges, walk_by_listing
from openpaisdk.storage.backends.local import LocalBackend
from openpaisdk.storage.file_info import DirectoryListing, format_size, walk_order
from openpaisdk.storage.local_walk import SkippedFiles, walk
from openpaisdk.storage.location import invalid_name_reason, parse_location
from openpaisdk.storage.transfer.plan import TransferPlan, compare_trees
from openpaisdk.storage.transfer.spool import Spool
from paiprotocol.errors import InvalidParameters, NotFound, PaiError, UsageError
from paiprotocol.transfer import hashing, pack_format

NAMES = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=20
)
FILES = st.lists(st.tuples(NAMES, st.binary(max_size=200), st.integers(0, 2**62)), max_size=8)


def packed(files: list[tuple[str, bytes, int]], algorithm: str) -> bytes:
    out = []
    for name, content, mtime_ns in files:
        digest = hashing.hash_bytes(content, algorithm)
        place = hashing.ALGORITHMS.index(algorithm)
        record = pack_format.PackRecord(
            pack_format.FILE, name, content, mtime_ns=mtime_ns, digest=digest, algorithm=place, mode=0o640
        )
        out += [pack_format.record_header(record), content]
    return b"".join([*out, pack_format.end_record(len(files))])


@given(FILES, st.sampled_from(hashing.ALGORITHMS))
def test_pack_round_trip(files: list[tuple[str, bytes, int]], algorithm: str) -> None:
    found = list(pack_format.read_pack(packed(files, algorithm)))
    assert [(r.name, bytes(r.content), r.mtime_ns) for r in found] == files
    for record in found:
        assert record.digest == hashing.hash_bytes(record.content, hashing.ALGORITHMS[record.algorithm])


@given(FILES.filter(bool), st.data())
def test_truncated_pack_is_rejected(files: list[tuple[str, bytes, int]], data: st.DataObject) -> None:
    whole = packed(files, hashing.XXH3)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(InvalidParameters):
        list(pack_format.read_pack(whole[:cut]))
    with pytest.raises(InvalidParameters):
        list(pack_format.read_pack(whole + b"x"))


def test_non_utf8_names_survive_packing() -> None:
    name = os.fsdecode(b"caf\xe9")
    (record,) = pack_format.read_pack(packed([(name, b"", 0)], hashing.XXH3))
    assert record.name == name


@given(st.integers(0, 1 << 40))
def test_ranges_cover_a_file_exactly_once(size: int) -> None:
    step = 1 << 36
    found = split_ranges(size, step)
    assert sum(length for _, length in found) == size
    assert [offset for offset, _ in found] == [i * step for i in range(len(found))]


TREES = st.dictionaries(
    st.lists(st.sampled_from(["a", "b", "a-b", "a.b", "c"]), min_size=1, max_size=3).map("/".join),
    st.tuples(st.integers(0, 3), st.integers(0, 2).map(lambda ms: ms * 10**6), st.just(0o644)),
    max_size=8,
)


def folders_of(files: dict[str, tuple[int, int, int]]) -> list[DirectoryListing]:
    """A tree in walk order; where a path is both file and folder, the folder wins."""
    folders = {""}
    for path in files:
        for i in range(1, path.count("/") + 1):
            folders.add("/".join(path.split("/")[:i]))
    kept = {path: facts for path, facts in files.items() if path not in folders}
    made = []
    for folder in sorted(folders, key=walk_order):
        front = folder + "/" if folder else ""
        inside = {
            p[len(front) :]: f for p, f in kept.items() if p.startswith(front) and "/" not in p[len(front) :]
        }
        names = {p[len(front) :] for p in folders if p and p.startswith(front) and "/" not in p[len(front) :]}
        made.append(DirectoryListing(folder, inside, sorted(names)))
    return made


def flat(folders: list[DirectoryListing]) -> dict[str, tuple[int, int, int]]:
    return {f"{f.path}/{name}".lstrip("/"): facts for f in folders for name, facts in f.files.items()}


@given(TREES, TREES)
def test_plan_contains_exactly_the_differences(
    ours: dict[str, tuple[int, int, int]], theirs: dict[str, tuple[int, int, int]]
) -> None:
    here, there = folders_of(ours), folders_of(theirs)
    plan = compare_trees(
        TransferPlan("/h", "/t"), here, iter(there), invalid_name_reason=invalid_name_reason, delete=True
    )
    before, after = flat(there), flat(here)
    new = dict(plan.new)
    assert new == {path: facts for path, facts in after.items() if before.get(path) != facts}
    assert plan.count == len(after)
    # Executing the plan makes the trees equal.
    gone = tuple(plan.extra)
    left = {p: f for p, f in before.items() if not any(p == g or p.startswith(g + "/") for g in gone)}
    assert {**left, **new} == after


def test_unordered_walk_is_rejected() -> None:
    folders = [
        DirectoryListing("", {}, ["a", "b"]),
        DirectoryListing("b", {}, []),
        DirectoryListing("a", {}, []),
    ]
    with pytest.raises(PaiError, match="out of order"):
        compare_trees(
            TransferPlan("/h", "/t"),
            [DirectoryListing("", {}, []), DirectoryListing("z", {}, [])],
            iter(folders),
        )


def test_walk_is_in_comparison_order(tmp_path: Path) -> None:
    for path in ("a/x", "a-b/x", "a.c", "b/a/x", "b-/x"):
        (tmp_path / path).mkdir(parents=True)
    found = [folder.path for folder in walk(str(tmp_path))]
    assert found == sorted(found, key=walk_order)


def test_tree_deeper_than_the_recursion_limit(tmp_path: Path) -> None:
    depth = sys.getrecursionlimit() + 100
    here = tmp_path
    for _ in range(depth):
        here = here / "d"
        here.mkdir()
    try:
        there = LocalBackend(str(tmp_path))
        assert sum(1 for _ in walk(str(tmp_path))) == depth + 1
        assert sum(1 for _ in walk_by_listing(there, "/")) == depth + 1
        (here / "file").write_bytes(b"x")
        skipped = SkippedFiles()
        skipped.add("d", str(tmp_path / "d"))
        assert skipped.sizes == {"d": 1}
        there.delete("/d")
        assert not list(tmp_path.iterdir())
    finally:
        # Left that deep, pytest could not remove it.
        while here != tmp_path and here.exists():
            (here / "file").unlink(missing_ok=True)
            here.rmdir()
            here = here.parent


def test_long_plan_is_spooled_to_disk() -> None:
    spool = Spool(max_in_memory=3)
    items = [(f"path {i} ü\n", (i, i * 10, 0o600)) for i in range(10)]
    items.append((os.fsdecode(b"\xff"), (5 << 20, 1, 2)))
    for path, facts in items:
        spool.add(path, facts)
    assert list(spool) == items and list(spool) == items and len(spool) == 11
    assert spool.top(1) == [(5 << 20, os.fsdecode(b"\xff"))]


def test_locations_are_parsed() -> None:
    place = parse_location("pai://team/0//alice/./data/")
    assert (place.cluster, place.storage, place.path, place.is_folder) == ("team", "0", "/alice/data", True)
    place = parse_location("hdfs://NameNode:9000/x")
    assert (place.kind, place.host, place.path) == ("hdfs", "namenode:9000", "/x")
    assert parse_location("C:/x").kind == "local"
    assert parse_location("./pai:/x").kind == "local"
    for bad in ("pai://team", "pai://", "gs://x/y", "", "hdfs:///x", "pai://a/b/../c", "pai:/a/b", "hdfs:/x"):
        with pytest.raises(UsageError):
            parse_location(bad)


@pytest.mark.parametrize("name", ["a:b", "x\0y", os.fsdecode(b"\xff"), "x" * 256])
def test_names_invalid_in_hdfs(name: str) -> None:
    assert invalid_name_reason(f"d/{name}")


@pytest.mark.parametrize("name", ["a b", "ü", "-", "...", "x" * 255])
def test_names_valid_in_hdfs(name: str) -> None:
    assert not invalid_name_reason(f"d/{name}")


def test_sizes_are_human_readable() -> None:
    assert [format_size(n) for n in (0, 999, 2048, 18 << 20, 1288490188, 5 << 40)] == [
        "0 B",
        "999 B",
        "2.0 kB",
        "18 MB",
        "1.2 GB",
        "5.0 TB",
    ]


def test_parts_of_another_size_are_not_resumed(tmp_path: Path) -> None:
    """The cluster was remote when the copy was interrupted, and is on this machine now."""
    size, far = 520 << 20, base.MAX_PART_BYTES
    facts = (size, 10**18, 0o644)
    first = LocalBackend().create(str(tmp_path / "f"), facts, "key")
    assert first.missing_ranges()[1] == (far, far)
    first.put(0, far, lambda: iter((bytes(far),)))
    first.close()
    again = LocalBackend().create(str(tmp_path / "f"), facts, "key")
    assert again.missing_ranges()[0] == (far, far)
    near = again.missing_ranges(base.MAX_LOCAL_PART_BYTES)
    assert near[0] == (0, 2 * far) and sum(length for _, length in near) == size
    again.abandon()


def test_local_copy_resumes_after_a_crash_with_verified_parts(tmp_path: Path) -> None:
    content = os.urandom(20 << 20)
    facts = (len(content), 10**18, 0o644)
    target = str(tmp_path / "f")
    first = LocalBackend().create(target, facts, "key")
    ranges = first.missing_ranges()
    for offset, length in ranges[:2]:
        piece = content[offset : offset + length]
        first.put(offset, length, lambda piece=piece: iter((piece,)))
    first.close()
    part = next(tmp_path.glob(".f.key.pai-part"))
    with part.open("r+b") as f:  # as if a block of the second part had never reached the disk
        f.seek(ranges[1][0] + 5)
        f.write(b"\0\0\0\0")
    again = LocalBackend().create(target, facts, "key")
    assert again.missing_ranges() == ranges[1:]
    for offset, length in ranges[1:]:
        piece = content[offset : offset + length]
        again.put(offset, length, lambda piece=piece: iter((piece,)))
    again.finish(len(content))
    assert Path(target).read_bytes() == content
    assert os.listdir(tmp_path) == ["f"]


def test_new_content_removes_stale_partial_files(tmp_path: Path) -> None:
    target = str(tmp_path / "f")
    LocalBackend().create(target, (1, 1, 0o644), "one").close()
    LocalBackend().create(target, (1, 2, 0o644), "two").abandon()
    assert os.listdir(tmp_path) == []


def test_concurrent_removal_of_one_local_tree_succeeds(tmp_path: Path) -> None:
    there = LocalBackend(str(tmp_path))
    for _ in range(5):
        for i in range(300):
            (tmp_path / f"d/{i % 7}").mkdir(parents=True, exist_ok=True)
            (tmp_path / f"d/{i % 7}/{i}").touch()

        def remove() -> None:
            with contextlib.suppress(NotFound):
                there.delete("/d")
            assert not (tmp_path / "d").exists()

        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(remove) for _ in range(4)]:
                done.result()
    with pytest.raises(NotFound, match="/d: there is no such file or folder"):
        there.delete("/d")


def test_sync_delete_keeps_partial_files_of_other_copies(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    other = LocalBackend(str(theirs)).create("/large", (9 << 20, 1, 0o644), "key")
    (theirs / "gone").touch()
    plan = compare_trees(TransferPlan("/", "/"), walk(str(ours)), walk(str(theirs)), delete=True)
    assert plan.extra == ["gone"]
    other.abandon()


@pytest.mark.parametrize("name", ["..", "../../.ssh/authorized_keys", "/etc/passwd", "a/b", "", "x\0y"])
def test_names_leading_out_of_the_target_are_rejected(name: str) -> None:
    for folder in (
        DirectoryListing("", {name: (1, 1, 0)}, []),
        DirectoryListing("", {}, [name]),
        DirectoryListing(f"a/{name}/b", {}, []),
    ):
        if folder.path == "a/a/b/b":
            continue
        with pytest.raises(PaiError, match="not a valid name"):
            compare_trees(TransferPlan("/h", "/t"), [folder], iter(()), trusted=False)


def test_partial_files_of_similar_names_are_kept(tmp_path: Path) -> None:
    LocalBackend().create(str(tmp_path / "data.tar.gz"), (9 << 20, 1, 0o644), "one").close()
    LocalBackend().create(str(tmp_path / "data.tar"), (9 << 20, 1, 0o644), "two").close()
    assert sum(name.endswith(".pai-part") for name in os.listdir(tmp_path)) == 2


def test_large_folder_is_listed_once_for_many_small_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".f3.0123456789abcdef.pai-part").write_bytes(b"what an interrupted copy left")
    (tmp_path / ".f3.0123456789abcdef.pai-part.done").write_bytes(b"")
    looks: list[object] = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: looks.append(folder) or listdir(folder))
    there = LocalBackend(str(tmp_path))
    for i in range(20):
        incoming = there.create(f"/f{i}", (1, 1, 0o644), f"key{i}")
        assert incoming.missing_ranges() == [(0, 1)]
        incoming.put(0, 1, lambda: iter((b"x",)))
        assert sorted(path.name for path in tmp_path.glob(f".f{i}.*")) == [f".f{i}.pai-part"]
        incoming.finish(1)
    assert len(looks) == 1
    assert {path.name for path in tmp_path.iterdir()} == {f"f{i}" for i in range(20)}


def test_concurrent_copies_use_separate_partial_files(tmp_path: Path) -> None:
    content = os.urandom(1 << 20)
    target = str(tmp_path / "f")
    copies = [LocalBackend().create(target, (len(content), 10**18, 0o644), "key") for _ in range(3)]
    copies.append(LocalBackend().create(target, (len(content), 10**18, 0o644), "other"))
    for copy in copies:
        copy.put(0, len(content), lambda: iter((content,)))
    copies[0].abandon()
    for copy in copies[1:]:
        copy.finish(len(content))
        assert Path(target).read_bytes() == content
    assert os.listdir(tmp_path) == ["f"]


def test_failed_copy_keeps_a_partial_file_reused_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close, others = os.close, []
    (tmp_path / "f").write_bytes(b"old")  # a new file would need no lock

    def no_room(fd: int, data: bytes, offset: int) -> None:
        monkeypatch.setattr(os, "close", close_and_let_another_come)
        raise OSError(errno.ENOSPC, "full")

    def close_and_let_another_come(fd: int) -> None:
        monkeypatch.setattr(os, "close", close)
        close(fd)
        others.append(partial_files.open_partial(str(tmp_path), "f", "", 0o600))

    monkeypatch.setattr(local, "write_at", no_room)
    with pytest.raises(PaiError, match="The disk is full"):
        LocalBackend().write_bytes(str(tmp_path / "f"), b"x", 10**18, 0o644)
    [(path, fd)] = others
    assert Path(path).exists()
    close(fd)


def test_listing_with_broken_links(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "below-a-file").symlink_to("f/below")
    (tmp_path / "nothing").symlink_to("none")
    (tmp_path / "f").write_bytes(b"x")
    names = [entry.name for entry in LocalBackend().list_folder(str(tmp_path))]
    assert names == ["below-a-file", "f", "loop", "nothing"]


def test_partial_file_names_fit_the_name_limit(tmp_path: Path) -> None:
    name = "漢" * 85
    LocalBackend().write_bytes(str(tmp_path / name), b"x", 10**18, 0o644)
    large = LocalBackend().create(str(tmp_path / name), (0, 10**18, 0o644), "0123456789abcdef")
    large.put(0, 0, lambda: iter(()))
    large.finish(0)
    assert os.listdir(tmp_path) == [name]
