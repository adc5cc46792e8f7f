"""``pai listdir`` of a path inside a pack: records are listed like files."""

from __future__ import annotations

from openpaisdk.storage.file_info import FileInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Backend

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755


def list_records(
    backend: Backend, path: str, address: str, *, is_recursive: bool
) -> list[tuple[str, FileInfo]] | None:
    """Names and infos below a path that is a pack or lies in one; None if there is no such path."""
    from openpaisdk.data.manifest import MANIFEST
    from openpaisdk.data.pack_reader import open_pack

    folder, prefix = path, ""
    below = address.rstrip("/")
    while backend.status(f"{folder.rstrip('/')}/{MANIFEST}") is None:
        parent, _, name = folder.rstrip("/").rpartition("/")
        if not name:
            return None
        folder, prefix = parent, f"{name}/{prefix}"
        below = below.rpartition("/")[0]
        found = backend.status(folder or "/")
        if found is not None and found.is_folder and backend.status(f"{folder}/{MANIFEST}") is None:
            return None  # a real folder that is no pack has no records
    pack = open_pack(below)
    rows: dict[str, FileInfo] = {}
    is_record = False
    for number, key in enumerate(pack.iter_keys()):
        if not (key + "/").startswith(prefix):
            continue
        rest = key[len(prefix) :]
        is_record = is_record or not rest
        name, slash, _ = rest.partition("/")
        if slash:
            rows.setdefault(name, FileInfo(name, True, 0, 0, _FOLDER_MODE))
        if not slash or is_recursive:
            last = key.rpartition("/")[2]
            rows[rest or last] = FileInfo(last, False, pack.content_size(number), 0, _FILE_MODE)
    if not rows:
        return None
    return sorted(rows.items())
