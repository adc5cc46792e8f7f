"""``pai listdir`` of a path inside a pack: records are listed like files."""

from __future__ import annotations

from openpaisdk.storage.file_info import FileInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Backend

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755


def list_path_in_pack(
    backend: Backend, path: str, address: str, *, is_recursive: bool
) -> list[tuple[str, FileInfo]] | None:
    """Names and infos below a path that lies in a pack; None if there is no such path."""
    from openpaisdk.data.manifest import MANIFEST

    folder, prefix = path, ""
    below = address.rstrip("/")
    while backend.status(f"{folder.rstrip('/')}/{MANIFEST}") is None:
        parent, _, name = folder.rstrip("/").rpartition("/")
        if not name:
            return None
        folder, prefix = parent, f"{name}/{prefix}"
        below = below.rpartition("/")[0]
        info = backend.status(folder or "/")
        if info is not None and info.is_folder and backend.status(f"{folder}/{MANIFEST}") is None:
            return None  # a real folder that is no pack has no records
    return list_records(below, prefix, is_recursive=is_recursive) or None


def list_records(address: str, prefix: str = "", *, is_recursive: bool) -> list[tuple[str, FileInfo]]:
    """Names and infos of the records of a pack, or of shards of other programs, whose keys begin so."""
    from openpaisdk.data.pack_reader import open_pack

    pack = open_pack(address)
    rows: dict[str, FileInfo] = {}
    for number, key in enumerate(pack.iter_keys()):
        if not (key + "/").startswith(prefix):
            continue
        rest = key[len(prefix) :]
        name, slash, _ = rest.partition("/")
        if slash:
            rows.setdefault(name, FileInfo(name, True, 0, 0, _FOLDER_MODE))
        if not slash or is_recursive:
            last = key.rpartition("/")[2]
            rows[rest or last] = FileInfo(last, False, pack.content_size(number), 0, _FILE_MODE)
    return sorted(rows.items())
