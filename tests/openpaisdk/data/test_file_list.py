"""Listing of the files to pack, while the first ones are packed."""

import os
import threading
from pathlib import Path

import pytest

from openpaisdk.data.file_list import FileList
from openpaisdk.storage.backends.base import walk_by_listing
from openpaisdk.storage.backends.local import LocalBackend
from openpaisdk.storage.file_info import DirectoryListing
from openpaisdk.storage.local_walk import walk
from paiprotocol.errors import PaiError
from support.packed_data import make_files

FILE = (1, 2, 0o644)


class Storage(LocalBackend):
    """Folders of one file each; the last ones are listed when ``go_on`` is set."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        self.go_on = threading.Event()

    def walk(self, path: str, max_files: int = 0):
        yield DirectoryListing("", {}, list(self.names))
        for number, name in enumerate(self.names):
            if number == len(self.names) // 2:
                assert self.go_on.wait(60)
            if name == "broken":
                raise PaiError("broken cannot be read.")
            yield DirectoryListing(name, {"file": FILE}, [])


@pytest.mark.parametrize("in_memory", [1, 20, 50_000])
def test_files_come_in_order_however_many_fit_into_memory(tmp_path: Path, in_memory: int) -> None:
    source = make_files(tmp_path / "source")
    listing = FileList(LocalBackend(), str(source), max_in_memory=in_memory)
    listing.list_first(1)
    assert not listing.is_complete
    listing.list_rest()
    assert listing._thread is not None
    listing._thread.join()
    found = list(listing)
    paths = [path for path, _ in found]
    assert len(paths) == len(set(paths)) == listing.count == 44
    assert paths[0] == "empty" and paths[4:] == sorted(paths[4:])
    assert all((source / path).stat().st_size == size for path, (size, _, _) in found)
    assert listing.size == sum(size for _, (size, _, _) in found)
    assert (listing._spool is not None) == (in_memory < 44)


@pytest.mark.parametrize("max_files", [1, 7, 100])
def test_large_folder_comes_in_order_in_several_parts(tmp_path: Path, max_files: int) -> None:
    expected = list(listed(LocalBackend(), make_files(tmp_path / "source")))
    for backend in (LocalBackend(), PagedStorage()):
        assert list(listed(backend, tmp_path / "source", max_folder_files=max_files)) == expected


class PagedStorage(LocalBackend):
    """A storage that lists some entries at a time, in an order of its own."""

    def list_pages(self, path: str):
        entries = self.list_folder(path)[::-1]
        for at in range(0, len(entries), 5):
            yield entries[at : at + 5]

    def walk(self, path: str, max_files: int = 0):
        return walk_by_listing(self, path, max_files)


def listed(backend: LocalBackend, folder: Path, **limits: int) -> FileList:
    files = FileList(backend, str(folder), **limits)
    files.list_rest()
    return files


def test_first_files_can_be_taken_while_others_are_listed() -> None:
    storage = Storage("a", "b", "c", "d")
    listing = FileList(storage, "/")
    listing.list_first(1)
    listing.list_rest()
    files = iter(listing)
    assert [next(files)[0], next(files)[0]] == ["a/file", "b/file"]
    assert not listing.is_complete
    storage.go_on.set()
    assert [path for path, _ in files] == ["c/file", "d/file"]


def test_spooled_files_are_freed_when_all_were_taken() -> None:
    storage = Storage(*"abcdefghi")
    storage.go_on.set()
    listing = FileList(storage, "/", max_in_memory=1)
    files = iter(listing)
    taken = []
    for listed in (3, 6, 9):
        listing.list_first(listed)
        assert listing._spool is not None and listing._spool_end
        taken += [next(files)[0] for _ in range(3)]
        assert listing._spool.seek(0, os.SEEK_END) == listing._spool_end == 0
    assert taken == [f"{name}/file" for name in "abcdefghi"]


def test_error_of_the_listing_reaches_the_reader() -> None:
    storage = Storage("a", "broken")
    storage.go_on.set()
    listing = FileList(storage, "/")
    listing.list_rest()
    with pytest.raises(PaiError, match="broken cannot be read"):
        list(listing)


def test_unreadable_folder_is_not_said_to_be_left_out_by_a_file_that_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(PaiError, match="cannot be read") as caught:
        list(listed(LocalBackend(), tmp_path / "absent"))
    assert caught.value.hint == "Make it readable, or move it elsewhere."
    with pytest.raises(PaiError, match="cannot be read") as caught:
        list(walk(str(tmp_path / "absent"), use_ignore_files=True))
    assert ".paiignore" in caught.value.hint


def test_closed_listing_ends_who_waits_for_it() -> None:
    storage = Storage("a", "b")
    listing = FileList(storage, "/")
    listing.list_rest()
    files = iter(listing)
    assert next(files)[0] == "a/file"
    timer = threading.Timer(0.1, listing.close)
    timer.start()
    assert list(files) == []
    storage.go_on.set()
    timer.join()
