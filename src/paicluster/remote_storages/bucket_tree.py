"""Files of a bucket in a cloud: objects whose keys look like paths, with the cluster's credentials.

A folder may have more objects than one request can delete or copy: such a change is made in steps, and its
caller repeats it until it is complete.
"""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING

from paicluster.remote_storages.remote_tree import (
    MAX_DELETED,
    MAX_PAGE_ENTRIES,
    STEP_S,
    TRANSIENT,
    ChangeStep,
    NewFile,
    RemoteEntry,
    RemoteFile,
    RemoteListing,
    RemoteTree,
    RemoteUpload,
    missing_entry,
    missing_file,
)
from paiprotocol.errors import Conflict, InvalidParameters, NotFound, PaiError

if TYPE_CHECKING:
    from openpaisdk.storage.backends.object_store import ObjectInfo, ObjectStore

MAX_MOVED = 100
"""Objects that one step moves; each is a request to the cloud."""
# Folders without objects that a step deletes, of stores that keep them.
_MAX_FOLDERS = 1000


class BucketTree(RemoteTree):
    def __init__(self, store: ObjectStore, *, max_deleted: int = MAX_DELETED, max_moved: int = MAX_MOVED):
        self._store = store
        self._max_deleted = max_deleted
        self._max_moved = max_moved

    def list_folder(self, names: list[str], path: str, cursor: str) -> RemoteListing:
        return _list(self._store, names, path, cursor)

    def open(self, names: list[str], path: str) -> RemoteFile:
        info = self._store.head(self._store.key_of("/".join(names))) if path.strip("/") else None
        if info is None or info.is_folder:
            raise missing_file(path)
        return RemoteFile(names[-1], info.size, self, info.key, info.etag)

    def read_block(self, file: RemoteFile, at: int, size: int) -> bytes:
        return self._store.read_range(file.key, at, size, file.version)

    def make_folder(self, names: list[str], path: str) -> None:
        _make_folder(self._store, names, path)

    def delete(self, names: list[str], path: str) -> ChangeStep:
        return _delete(self._store, names, path, self._max_deleted)

    def move(
        self, names: list[str], path: str, target_names: list[str], target: str, *, resumes: bool
    ) -> ChangeStep:
        if not resumes:
            _check_new(self._store, target_names, target)
            if self._store.status("/".join(target_names)) is not None:
                raise Conflict(
                    f"{target} already exists.",
                    hint="If an earlier attempt of this move made it, resume=true continues that move.",
                )
        new_key = self._store.key_of("/".join(target_names))
        return _move(self._store, names, path, new_key, self._max_moved, resumes=resumes)

    def open_upload(self, names: list[str], file: NewFile, key: str) -> RemoteUpload:
        return _open_upload(self._store, names, file, key)


def _list(store: ObjectStore, names: list[str], path: str, cursor: str) -> RemoteListing:
    key = store.key_of("/".join(names))
    prefix = f"{key}/" if key else ""
    page = store.list_page(prefix, cursor, flat=False, limit=MAX_PAGE_ENTRIES)
    entries = {}
    for info in page.objects:
        # The object of the folder itself has no name.
        if name := info.key[len(prefix) :].rstrip("/"):
            entries[name] = _entry(name, info)
    for each in page.prefixes:
        name = each[len(prefix) :].rstrip("/")
        entries[name] = RemoteEntry(name, True)
    if not entries and not page.objects and not page.next and path.strip("/"):
        found_here = store.head(key)
        if found_here is None:
            raise missing_entry(path)
        if not found_here.is_folder:
            return RemoteListing(_entry(names[-1], found_here), [])
    # Names that no path can have are left out.
    shown = [
        entry
        for name, entry in sorted(entries.items())
        if name and "/" not in name and name not in (".", "..")
    ]
    return RemoteListing(None, shown, page.next)


def _entry(name: str, info: ObjectInfo) -> RemoteEntry:
    if info.is_folder or info.key.endswith("/"):
        return RemoteEntry(name, True)
    return RemoteEntry(name, False, info.size, info.mtime_ns // 1_000_000)


def _check_new(store: ObjectStore, names: list[str], path: str) -> None:
    """Raise an error if this cannot be the path of a new entry."""
    if reason := store.invalid_name_reason("/".join(names)):
        raise InvalidParameters(f"{path} cannot be written: {reason}.")
    folder = path.strip("/").rpartition("/")[0]
    info = store.head(store.key_of("/".join(names[:-1]))) if folder else None
    if info is not None and not info.is_folder:
        raise Conflict(f"/{folder} is a file and not a folder.")


def _make_folder(store: ObjectStore, names: list[str], path: str) -> None:
    _check_new(store, names, path)
    info = store.head(store.key_of("/".join(names)))
    if info is not None and not info.is_folder:
        raise Conflict(f"{path} already exists, and is a file.")
    store.make_folder("/".join(names))


def _delete(store: ObjectStore, names: list[str], path: str, limit: int) -> ChangeStep:
    key = store.key_of("/".join(names))
    info = store.head(key)
    if info is not None and not info.is_folder:
        store.delete_objects([key])
        _keep_folder(store, names, path)
        return ChangeStep(1, True)
    page = store.list_page(f"{key}/", "", flat=True, limit=limit)
    if not page.objects and info is None and store.head(f"{key}/") is None:
        raise missing_entry(path)
    deleted = _deletable(page.objects, has_more=bool(page.next))
    _delete_objects(store, deleted)
    if not page.next:
        _delete_folders(store, key, is_object=info is not None)
        _keep_folder(store, names, path)
    return ChangeStep(len(deleted), not page.next)


def _move(
    store: ObjectStore, names: list[str], path: str, new_key: str, limit: int, *, resumes: bool
) -> ChangeStep:
    key = store.key_of("/".join(names))
    info = store.head(key)
    is_file = info is not None and not info.is_folder
    if info is not None and is_file:
        store.copy_object(key, new_key)
        moved, is_complete = [info], True
    else:
        page = store.list_page(f"{key}/", "", flat=True, limit=limit)
        if not page.objects and info is None:
            raise missing_entry(path)
        copied = _copy_some(store, page.objects, key, new_key)
        is_complete = not page.next and len(copied) == len(page.objects)
        moved = _deletable(copied, has_more=not is_complete)
    try:
        # Only what was copied: another program may have written more.
        _delete_objects(store, moved)
        if is_complete and not is_file:
            _delete_folders(store, key, is_object=info is not None)
        if is_complete:
            _keep_folder(store, names, path)
    except TRANSIENT:
        if resumes:
            raise
        # The target exists now: only a step that goes on can repeat this.
        return ChangeStep(0, False)
    return ChangeStep(len(moved), is_complete)


def _deletable(objects: list[ObjectInfo], *, has_more: bool) -> list[ObjectInfo]:
    """Objects of a page that can be deleted now. ``has_more``: a real folder, which must be empty, stays if
    its entries may be on the next page."""
    if not has_more or not objects:
        return objects
    last = objects[-1].key
    # "0" follows "/": all that is in a folder comes before it.
    return [each for each in objects if not each.is_folder or last >= f"{each.key}0"] or objects


def _delete_objects(store: ObjectStore, objects: list[ObjectInfo]) -> None:
    """Delete objects, then real folders, the deepest first: only empty ones can be deleted."""
    _delete_keys(store, [each.key for each in objects if not each.is_folder])
    folders = [each.key for each in objects if each.is_folder]
    for _, same_depth in groupby(sorted(folders, key=_depth, reverse=True), _depth):
        # One request for each depth: a store may delete the objects of a request in any order.
        _delete_keys(store, list(same_depth))


def _depth(key: str) -> int:
    return key.count("/")


def _delete_keys(store: ObjectStore, keys: list[str]) -> None:
    if keys:
        # The deepest first: folders that are objects with a slash at the end are among them.
        store.delete_objects(keys[::-1])


def _delete_folders(store: ObjectStore, key: str, *, is_object: bool) -> None:
    """Delete the folders of a folder without objects: some stores keep and list them.

    ``is_object``: the folder itself is an object, without a slash at the end.
    """
    folders = [f"{key}/"]
    for folder in folders:
        if len(folders) < _MAX_FOLDERS:
            folders += store.list_page(folder, "", flat=False).prefixes
    _delete_keys(store, [*([key] if is_object else ()), *folders[:_MAX_FOLDERS]])


def _copy_some(
    store: ObjectStore, objects: list[ObjectInfo], prefix: str, new_prefix: str
) -> list[ObjectInfo]:
    """Copy objects for some seconds; returns those that were copied, at least one."""
    copied: list[ObjectInfo] = []
    ends = time.monotonic() + STEP_S
    for each in objects:
        if copied and time.monotonic() > ends:
            break
        try:
            store.copy_object(each.key, new_prefix + each.key[len(prefix) :])
        except NotFound:
            pass  # deleted meanwhile: there is nothing to move
        except PaiError:
            if not copied:
                raise
            break  # the next step reports it
        copied.append(each)
    return copied


def _keep_folder(store: ObjectStore, names: list[str], path: str) -> None:
    """Keep the folder of a deleted entry: a cloud has a folder only as long as something is in it."""
    if "/" in path.strip("/"):
        store.make_folder("/".join(names[:-1]))


def _open_upload(store: ObjectStore, names: list[str], file: NewFile, key: str) -> RemoteUpload:
    path = "/".join(names)
    _check_new(store, names, file.path)
    if file.overwrite and (info := store.status(path)) is not None and info.is_folder:
        raise Conflict(f"{file.path} already exists, and is a folder.")
    try:
        target = store.create(path, (file.size, 0, 0), key, overwrite=file.overwrite)
    except Conflict:
        raise Conflict(f"{file.path} already exists.") from None
    return RemoteUpload(file, target, target.missing_ranges())
