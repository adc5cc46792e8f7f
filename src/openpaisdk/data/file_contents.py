"""Contents of many files of a storage, small ones fetched together."""

from __future__ import annotations

from openpaisdk.errors import ConnectionFailed, PaiError
from openpaisdk.fileio import pack_format
from openpaisdk.fileio.hashing import ALGORITHMS, hash_bytes
from openpaisdk.storage.backends.base import changed_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from openpaisdk.data.formats.base import Content
    from openpaisdk.storage.backends.base import Backend, Chunks
    from openpaisdk.storage.file_info import FileStat

    Item = tuple[str, FileStat]


def read_files(backend: Backend, base: str, items: Iterable[Item]) -> Iterator[Content]:
    """The content of each file, in order; a content must be read before the next one is requested.

    A file that is not as it was listed is an error.
    """
    batch: list[Item] = []
    size = 0
    for item in items:
        if item[1][0] > pack_format.MAX_PACKED_FILE_BYTES:
            yield from _small_files(backend, base, batch)
            batch, size = [], 0
            yield _large_file(backend, _join(base, item[0]), item[1])
            continue
        batch.append(item)
        size += item[1][0]
        if size >= pack_format.PACK_FULL_BYTES or len(batch) >= pack_format.MAX_PACK_FILES:
            yield from _small_files(backend, base, batch)
            batch, size = [], 0
    yield from _small_files(backend, base, batch)


def _small_files(backend: Backend, base: str, batch: list[Item]) -> Iterator[Content]:
    if batch and backend.supports_packs:
        yield from _fetched(backend, base, batch)
        return
    for path, file_stat in batch:
        content, mtime_ns, _ = backend.read_small(_join(base, path), file_stat)
        if len(content) != file_stat[0] or mtime_ns != file_stat[1]:
            raise _changed(backend, base, path)
        yield (content,)


def _fetched(backend: Backend, base: str, batch: list[Item]) -> Iterator[Content]:
    records = {
        record.name: record
        for record in pack_format.read_pack(backend.fetch_pack(base, [path for path, _ in batch]))
    }
    for path, file_stat in batch:
        record = records.get(path)
        if record is None:
            raise PaiError(f"The storage did not send {backend.display_path(_join(base, path))}.")
        if record.kind == pack_format.PROBLEM:
            raise PaiError(bytes(record.content).decode("utf-8", "replace"))
        if hash_bytes(record.content, ALGORITHMS[record.algorithm]) != record.digest:
            raise ConnectionFailed(f"{path} was damaged during the transfer.")
        # Storages keep times in milliseconds.
        if len(record.content) != file_stat[0] or record.mtime_ns // 1_000_000 != file_stat[1] // 1_000_000:
            raise _changed(backend, base, path)
        yield (record.content,)


def _large_file(backend: Backend, path: str, file_stat: FileStat) -> Chunks:
    source = backend.open(path, file_stat)
    try:
        if source.size != file_stat[0]:
            raise changed_error(backend.display_path(path))
        yield from source.chunks(0, source.size)
        source.check()
    finally:
        source.close()


def read_whole(backend: Backend, path: str) -> bytes:
    """Content of a file that fits into memory."""
    source = backend.open(path)
    try:
        content = b"".join(map(bytes, source.chunks(0, source.size)))
        source.check()
        return content
    finally:
        source.close()


def _changed(backend: Backend, base: str, path: str) -> PaiError:
    error = changed_error(backend.display_path(_join(base, path)))
    return PaiError(error.message.replace("copied", "packed"), code=error.code, hint="Pack it again.")


def _join(base: str, path: str) -> str:
    return f"{base.rstrip('/')}/{path}"
