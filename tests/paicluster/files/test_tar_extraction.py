"""Folders that come in as a tar: whole, in their owner's name, and never over what a person made."""

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


def packed(folder: Path, members: dict[str, bytes | str | None]) -> Path:
    """Files by their content, folders by None, links by where they lead."""
    path = folder / "bundle.tar"
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


def lay(
    storage: Storage, bundle: Path, who: StorageUser, mark: str = "alice~train", path: str = WHERE
) -> None:
    folder = ExtractedFolder(storage, path, who)
    try:
        folder.extract(bundle)
        folder.publish(mark)
    finally:
        folder.discard()


def content(storage: Storage, path: str, who: StorageUser) -> bytes:
    opened = storage.open_read(path, who)
    with os.fdopen(opened.fd, "rb") as file:
        return file.read()


def names(storage: Storage, path: str, who: StorageUser) -> list[str]:
    return [entry.name for entry in storage.list(path, who).entries]


def staged(storage: Storage) -> list[str]:
    return os.listdir(storage.staging_area.folder(STAGED))


def test_files_and_folders_belong_to_whom_they_are_made_for(
    storage: Storage, alice: StorageUser, bob: StorageUser, tmp_path: Path
) -> None:
    lay(storage, packed(tmp_path, {"a.py": b"1", "deep/er/b": b"x" * 70_000, "empty": None}), alice)
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


def test_in_a_teams_folder_the_team_may_read_them(
    storage: Storage, alice: StorageUser, bob: StorageUser, carol: StorageUser, tmp_path: Path
) -> None:
    where = "/shared/vision/jobs/train/source"
    lay(storage, packed(tmp_path, {"d/a": b"1"}), alice, path=where)
    assert content(storage, f"{where}/d/a", bob) == b"1"
    with pytest.raises(Forbidden):
        storage.status(where, carol)


def test_nothing_leaves_the_folder_and_links_stay_out(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    members = {"../out": b"1", "/abs": b"2", "a/../../b": b"3", "link": "/etc", "link/x": b"4", "fine": b"5"}
    lay(storage, packed(tmp_path, members), alice)
    # A path from the root is one from the folder; a file below what would have been a link is in a folder.
    assert names(storage, WHERE, alice) == ["abs", "fine", "link"]
    assert names(storage, "/user/alice/jobs/train", alice) == ["source"]
    assert not Path("/etc/x").exists()


def test_a_later_one_takes_the_place_of_an_earlier_one(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    lay(storage, packed(tmp_path, {"old": b"1"}), alice)
    lay(storage, packed(tmp_path, {"new": b"2"}), alice)
    assert names(storage, WHERE, alice) == ["new"]


def test_what_a_person_made_is_neither_replaced_nor_removed(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    storage.make_dirs(f"{WHERE}/mine", alice)
    with pytest.raises(Conflict):
        lay(storage, packed(tmp_path, {"a": b"1"}), alice)
    assert names(storage, WHERE, alice) == ["mine"] and staged(storage) == []
    assert not remove_marked(storage, WHERE, "alice~train")
    assert names(storage, WHERE, alice) == ["mine"]


def test_only_the_folder_with_the_mark_is_removed(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    lay(storage, packed(tmp_path, {"a": b"1"}), alice)
    assert not remove_marked(storage, WHERE, "alice~other")
    assert remove_marked(storage, WHERE, "alice~train")
    assert names(storage, "/user/alice/jobs", alice) == []
    lay(storage, packed(tmp_path, {"a": b"1"}), alice)
    storage.make_dirs("/user/alice/jobs/train/output", alice)
    assert remove_marked(storage, WHERE, "alice~train")
    assert names(storage, "/user/alice/jobs/train", alice) == ["output"]
    assert not remove_marked(storage, "/user/nobody/jobs/x/source", "alice~train")


def test_nobody_gets_a_folder_where_he_may_not_write(
    storage: Storage, alice: StorageUser, bob: StorageUser, tmp_path: Path
) -> None:
    with pytest.raises(Forbidden):
        lay(storage, packed(tmp_path, {"a": b"1"}), bob)
    assert staged(storage) == []


def test_a_time_beyond_all_clocks_is_a_damage_too(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.tar"
    with tarfile.open(bundle, "w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a")
        info.mtime = 1e300
        archive.addfile(info)
    with pytest.raises(PaiError):
        lay(storage, bundle, alice)
    assert staged(storage) == []


@pytest.mark.parametrize("damage", [b"no tar at all" * 100, b""])
def test_a_damaged_bundle_leaves_nothing(
    storage: Storage, alice: StorageUser, tmp_path: Path, damage: bytes
) -> None:
    bundle = packed(tmp_path, {"a": b"1" * 5000})
    bundle.write_bytes(damage or bundle.read_bytes()[:2000])
    with pytest.raises(PaiError):
        lay(storage, bundle, alice)
    assert staged(storage) == [] and names(storage, "/user/alice", alice) == []
