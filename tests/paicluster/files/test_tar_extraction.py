"""Extraction of tar archives: atomic, with the user as owner, never over a user's own folder."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from openpaisdk.errors import Conflict, Forbidden, PaiError
from paicluster.files import Storage, StorageUser
from paicluster.files.staging import STAGED
from paicluster.files.tar_extraction import ExtractedFolder, remove_marked

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
    storage: Storage, archive_path: Path, user: StorageUser, mark: str = "alice~train", path: str = WHERE
) -> None:
    folder = ExtractedFolder(storage, path, user)
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
