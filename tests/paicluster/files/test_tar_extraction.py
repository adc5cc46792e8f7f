"""Extraction of tar archives: atomic, with the user as owner, never over a user's own folder."""

from __future__ import annotations

import io
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from paicluster.files import Storage, StorageUser
from paicluster.files.staging import STAGED
from paicluster.files.tar_extraction import ExtractedFolder, remove_marked
from paiprotocol.errors import Conflict, Forbidden, PaiError
from support.hostile_tar import pax_record

WHERE = "/user/alice/jobs/train/source"


def make_archive(folder: Path, members: dict[str, bytes | str | None]) -> Path:
    """Tar archive: bytes are a file's content, None is a folder, a str is a link's target."""
    path = folder / "archive.tar"
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.mtime = 1_600_000_000
            if content is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            else:
                info.size, info.mode = len(content), 0o751
                archive.addfile(info, io.BytesIO(content))
    return path


def extract(
    storage: Storage,
    archive_path: Path,
    user: StorageUser,
    mark: str = "alice~train",
    path: str = WHERE,
    **limits: int,
) -> None:
    folder = ExtractedFolder(storage, path, user, **limits)
    try:
        folder.extract(archive_path)
        folder.publish(mark)
    finally:
        folder.discard()


def content(storage: Storage, path: str, user: StorageUser) -> bytes:
    opened = storage.open_read(path, user)
    with os.fdopen(opened.fd, "rb") as file:
        return file.read()


def names(storage: Storage, path: str, user: StorageUser) -> list[str]:
    return [entry.name for entry in storage.list(path, user).entries]


def staged(storage: Storage) -> list[str]:
    return os.listdir(storage.staging_area.folder(STAGED))


def test_extracted_files_belong_to_the_user(
    storage: Storage, alice: StorageUser, bob: StorageUser, tmp_path: Path
) -> None:
    extract(storage, make_archive(tmp_path, {"a.py": b"1", "deep/er/b": b"x" * 70_000, "empty": None}), alice)
    assert names(storage, WHERE, alice) == ["a.py", "deep", "empty"]
    assert content(storage, f"{WHERE}/deep/er/b", alice) == b"x" * 70_000
    entry = storage.status(f"{WHERE}/a.py", alice)
    assert (entry.ownership.owner, entry.ownership.mode, entry.modified_ms) == (
        "alice",
        0o751,
        1_600_000_000_000,
    )
    assert storage.status(f"{WHERE}/deep", alice).ownership.owner == "alice"
    with pytest.raises(Forbidden):
        storage.status(f"{WHERE}/a.py", bob)
    assert staged(storage) == []


def test_team_can_read_files_extracted_to_its_folder(
    storage: Storage, alice: StorageUser, bob: StorageUser, carol: StorageUser, tmp_path: Path
) -> None:
    where = "/shared/vision/jobs/train/source"
    extract(storage, make_archive(tmp_path, {"d/a": b"1"}), alice, path=where)
    assert content(storage, f"{where}/d/a", bob) == b"1"
    with pytest.raises(Forbidden):
        storage.status(where, carol)


def test_extraction_stays_in_the_folder_and_skips_links(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    members = {"../out": b"1", "/abs": b"2", "a/../../b": b"3", "link": "/etc", "link/x": b"4", "fine": b"5"}
    extract(storage, make_archive(tmp_path, members), alice)
    # An absolute path is taken relative to the folder; below a skipped link a folder is created.
    assert names(storage, WHERE, alice) == ["abs", "fine", "link"]
    assert names(storage, "/user/alice/jobs/train", alice) == ["source"]
    assert not Path("/etc/x").exists()


def test_later_extraction_replaces_an_earlier_one(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    extract(storage, make_archive(tmp_path, {"old": b"1"}), alice)
    extract(storage, make_archive(tmp_path, {"new": b"2"}), alice)
    assert names(storage, WHERE, alice) == ["new"]


def test_users_folder_is_neither_replaced_nor_removed(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    storage.make_dirs(f"{WHERE}/mine", alice)
    with pytest.raises(Conflict):
        extract(storage, make_archive(tmp_path, {"a": b"1"}), alice)
    assert names(storage, WHERE, alice) == ["mine"] and staged(storage) == []
    assert not remove_marked(storage, WHERE, "alice~train")
    assert names(storage, WHERE, alice) == ["mine"]


def test_only_folder_with_matching_mark_is_removed(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    extract(storage, make_archive(tmp_path, {"a": b"1"}), alice)
    assert not remove_marked(storage, WHERE, "alice~other")
    assert remove_marked(storage, WHERE, "alice~train")
    assert names(storage, "/user/alice/jobs", alice) == []
    extract(storage, make_archive(tmp_path, {"a": b"1"}), alice)
    storage.make_dirs("/user/alice/jobs/train/output", alice)
    assert remove_marked(storage, WHERE, "alice~train")
    assert names(storage, "/user/alice/jobs/train", alice) == ["output"]
    assert not remove_marked(storage, "/user/unknown/jobs/x/source", "alice~train")


def test_extraction_needs_write_permission(
    storage: Storage, alice: StorageUser, bob: StorageUser, tmp_path: Path
) -> None:
    with pytest.raises(Forbidden):
        extract(storage, make_archive(tmp_path, {"a": b"1"}), bob)
    assert staged(storage) == []


def test_archive_with_invalid_mtime_is_rejected(storage: Storage, alice: StorageUser, tmp_path: Path) -> None:
    archive_path = tmp_path / "archive.tar"
    with tarfile.open(archive_path, "w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a")
        info.mtime = 1e300
        archive.addfile(info)
    with pytest.raises(PaiError):
        extract(storage, archive_path, alice)
    assert staged(storage) == []


@pytest.mark.parametrize("damage", [b"no tar at all" * 100, b""])
def test_damaged_archive_leaves_nothing(
    storage: Storage, alice: StorageUser, tmp_path: Path, damage: bytes
) -> None:
    archive_path = make_archive(tmp_path, {"a": b"1" * 5000})
    archive_path.write_bytes(damage or archive_path.read_bytes()[:2000])
    with pytest.raises(PaiError):
        extract(storage, archive_path, alice)
    assert staged(storage) == [] and names(storage, "/user/alice", alice) == []


def header(name: str, kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


# Far more than the memory that a rejection may take.
HOSTILE_BYTES = 64 << 20
HOSTILE_MEMBERS: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "a PAX header": (tarfile.XHDTYPE, partial(pax_record, b"path")),
    "a global PAX header": (tarfile.XGLTYPE, partial(pax_record, b"comment")),
    "a GNU long name": (tarfile.GNUTYPE_LONGNAME, bytes),
    "a GNU long link": (tarfile.GNUTYPE_LONGLINK, bytes),
}


def rejected(storage: Storage, archive_path: Path, user: StorageUser, **limits: int) -> str:
    """The reason why an archive is rejected, without much memory and with nothing left."""
    tracemalloc.start()
    try:
        with pytest.raises(PaiError) as caught:
            extract(storage, archive_path, user, **limits)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    assert staged(storage) == []
    return str(caught.value)


@pytest.mark.parametrize("kind", HOSTILE_MEMBERS)
def test_long_header_is_rejected_with_little_memory(
    storage: Storage, alice: StorageUser, tmp_path: Path, kind: str
) -> None:
    member_type, make_content = HOSTILE_MEMBERS[kind]
    content = make_content(b"x" * HOSTILE_BYTES)
    archive_path = tmp_path / "archive.tar"
    with archive_path.open("wb") as file:
        file.write(header("x", member_type, len(content)))
        file.write(content)
        file.write(bytes(-len(content) % 512) + header("a", tarfile.REGTYPE, 0) + bytes(1024))
    assert "the headers of a member have more than 64 KiB" in rejected(storage, archive_path, alice)


def test_chains_of_headers_are_rejected_with_little_memory(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    archive_path = tmp_path / "archive.tar"
    # A sparse file with a map that continues over many blocks.
    sparse = bytearray(header("x", tarfile.GNUTYPE_SPARSE, 0))
    sparse[482] = 1
    sparse[148:156] = b"%06o\0 " % (sum(sparse[:148]) + sum(sparse[156:]) + 8 * 32)
    block = (b"0" * 11 + b"\0") * 42 + b"\1" + bytes(7)
    archive_path.write_bytes(bytes(sparse) + block * 100_000)
    assert "the headers of a member have more than 64 KiB" in rejected(storage, archive_path, alice)
    # Global headers, one before each member, that add up.
    with archive_path.open("wb") as file:
        for index in range(200):
            record = pax_record(b"comment%d" % index, b"x" * 60_000)
            file.write(header("g", tarfile.XGLTYPE, len(record)) + record + bytes(-len(record) % 512))
            file.write(header(f"f{index}", tarfile.REGTYPE, 0))
        file.write(bytes(1024))
    assert "it has more than 100 global records" in rejected(storage, archive_path, alice)


def test_number_of_members_is_bounded(storage: Storage, alice: StorageUser, tmp_path: Path) -> None:
    allowed = make_archive(tmp_path, {f"f{index}": b"1" for index in range(20)})
    extract(storage, allowed, alice, max_members=20)
    archive_path = make_archive(tmp_path, {f"f{index}": b"1" for index in range(21)})
    assert "it has more than 20 members" in rejected(storage, archive_path, alice, max_members=20)


def test_longest_names_are_extracted(storage: Storage, alice: StorageUser, tmp_path: Path) -> None:
    name = "/".join(["é" * 100] * 12)
    for tar_format in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        archive_path = tmp_path / "archive.tar"
        with tarfile.open(archive_path, "w", format=tar_format) as archive:
            info = tarfile.TarInfo(name)
            info.size = 3
            archive.addfile(info, io.BytesIO(b"abc"))
        extract(storage, archive_path, alice)
        assert content(storage, f"{WHERE}/{name}", alice) == b"abc"
