"""Contents of many files of a storage, small ones fetched together."""

from __future__ import annotations

from openpaisdk.storage.backends.base import CHANGED_WHILE_COPIED, FILE_CHANGED, changed_error
from paiprotocol.errors import ConnectionFailed, PaiError
from paiprotocol.transfer import pack_format
from paiprotocol.transfer.hashing import ALGORITHMS, hash_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from openpaisdk.storage.backends.base import Backend, Chunks
    from openpaisdk.storage.file_info import FileStat

    Item = tuple[str, FileStat]


def file_batches(items: Sequence[Item], max_files: int, max_bytes: int) -> Iterator[slice]:
    """The items in batches of small files that are read together; a large file is a batch of its own."""
    start = size = 0
    for number, item in enumerate(items):
        if item[1][0] > pack_format.MAX_PACKED_FILE_BYTES:
            if start < number:
                yield slice(start, number)
            yield slice(number, number + 1)
            start, size = number + 1, 0
            continue
        size += item[1][0]
        if size >= max_bytes or number - start >= max_files - 1:
            yield slice(start, number + 1)
            start, size = number + 1, 0
    if start < len(items):
        yield slice(start, len(items))


def is_large(item: Item) -> bool:
    """Whether a file is read in pieces (``read_large_file``)."""
    return item[1][0] > pack_format.MAX_PACKED_FILE_BYTES


def read_files(backend: Backend, base: str, items: Sequence[Item]) -> Iterator[bytes]:
    """The content of each file, in order. A file that is not as it was listed is an error."""
    for batch in file_batches(items, pack_format.MAX_PACK_FILES, pack_format.PACK_FULL_BYTES):
        some = items[batch]
        if is_large(some[0]):
            yield b"".join(map(bytes, read_large_file(backend, base, some[0])))
        else:
            yield from map(bytes, read_small_files(backend, base, some))


def read_small_files(backend: Backend, base: str, batch: Sequence[Item]) -> list[bytes | memoryview]:
    """The contents of a batch of small files. A file that is not as it was listed is an error."""
    if backend.supports_packs:
        return list(_fetched(backend, base, batch))
    return [
        _small_file(backend, base, item) if content is None else content
        for item, content in zip(batch, backend.read_listed(base, batch), strict=True)
    ]


def _small_file(backend: Backend, base: str, item: Item) -> bytes:
    path, file_stat = item
    try:
        content, mtime_ns, _ = backend.read_small(_join(base, path), file_stat)
    except PaiError as e:
        raise _as_pack_error(e) from None
    if len(content) != file_stat[0] or mtime_ns != file_stat[1]:
        raise _changed(backend, base, path)
    return content


def _fetched(backend: Backend, base: str, batch: Sequence[Item]) -> Iterator[bytes | memoryview]:
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
        yield record.content


def read_large_file(backend: Backend, base: str, item: Item) -> Chunks:
    """The content of a file in pieces. A file that is not as it was listed, or changes, is an error."""
    path, file_stat = _join(base, item[0]), item[1]
    try:
        source = backend.open(path, file_stat)
        try:
            if source.size != file_stat[0]:
                raise changed_error(backend.display_path(path))
            yield from source.small_chunks()
            source.check()
        finally:
            source.close()
    except PaiError as e:
        raise _as_pack_error(e) from None


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
    return _as_pack_error(changed_error(backend.display_path(_join(base, path))))


def _as_pack_error(error: PaiError) -> PaiError:
    """The error of a file that changed, worded for packing."""
    if error.code != FILE_CHANGED:
        return error
    return PaiError(
        error.message.removesuffix(CHANGED_WHILE_COPIED) + " while it was packed.",
        code=error.code,
        hint="Complete shards are kept: run the same pai pack again when no program writes to it.",
    )


def _join(base: str, path: str) -> str:
    return f"{base.rstrip('/')}/{path}"
