"""Writes the records of a pack as files: ``pai unpack``."""

from __future__ import annotations

from openpaisdk.data.buffered_upload import BufferedUpload
from openpaisdk.data.key_set import KeySet
from openpaisdk.storage.backends.base import STORAGE_FULL, WriteAccess
from openpaisdk.storage.file_info import is_valid_name
from openpaisdk.storage.transfer.executor import TransferProgress
from paiprotocol.errors import PaiError, UsageError
from paiprotocol.transfer import pack_format
from paiprotocol.transfer.hashing import ALGORITHMS, hash_bytes, preferred_algorithm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from openpaisdk.data.pack_reader import Pack
    from openpaisdk.storage.backends.base import Backend

_MODE = 0o644
RUN_BYTES = 4 << 20
RUN_RECORDS = 1000


class UnpackOperation:
    """One run of ``pai unpack``. Existing files are replaced; a record's key is the path of its file."""

    def __init__(self, pack: Pack, target: Backend, target_path: str):
        self.pack = pack
        self.target = target
        self.target_path = target_path
        self.progress = TransferProgress(len(pack))

    def check(self) -> None:
        """Raise if a key cannot be a path below the target, before anything is written."""
        seen, folders = KeySet(), KeySet()
        for key in self.pack.iter_keys():
            if not all(is_valid_name(part) for part in key.split("/")):
                raise PaiError(
                    f"The record {key!r} cannot be unpacked: its key is not a path below a folder."
                )
            if reason := self.target.invalid_name_reason(key):
                raise UsageError(
                    f"The record {key!r} cannot be a file on {self.target.url}: {reason}.",
                    hint="Unpack it to a folder of this machine, or read it with openpaisdk.data.open_pack.",
                )
            if not seen.add(key):
                raise PaiError(
                    f"Two records have the key {key!r}: one file would replace the other.",
                    hint="Read such a pack with openpaisdk.data.open_pack.",
                )
            folder = key.rpartition("/")[0]
            while folder and folders.add(folder):  # a known folder has known folders above it
                folder = folder.rpartition("/")[0]
        if clash := next(filter(folders.__contains__, self.pack.iter_keys()), ""):
            raise PaiError(f"The key {clash!r} is of a record, and a folder of other records.")

    def run(self, watch: Callable[[TransferProgress], None] | None = None) -> None:
        try:
            self._run(watch)
        except PaiError as e:
            if e.code != STORAGE_FULL:
                raise
            hint = "Free some space, and run the same command again."
            raise PaiError(e.message, code=e.code, status=e.status, hint=hint) from None

    def _run(self, watch: Callable[[TransferProgress], None] | None) -> None:
        with WriteAccess(self.target, self.target_path):
            self.target.make_folder(self.target_path)
            for run in self.pack.runs(RUN_BYTES, RUN_RECORDS):
                if run.count == 1 and self.pack.size_of(run.first) > pack_format.MAX_PACKED_FILE_BYTES:
                    self._upload(self.pack.key(run.first), self.pack.stream(run.first))
                    continue
                contents = self.pack.read_run(run)
                files = [(self.pack.key(run.first + i), content) for i, content in enumerate(contents)]
                small = [file for file in files if len(file[1]) <= pack_format.MAX_PACKED_FILE_BYTES]
                if self.target.supports_packs and small:
                    self._send(small)
                for key, content in files:
                    if len(content) > pack_format.MAX_PACKED_FILE_BYTES:
                        self._upload(key, (content,))
                    elif not self.target.supports_packs:
                        self.target.write_bytes(self._path(key), content, 0, _MODE)
                self.progress.files += len(small)
                self.progress.bytes += sum(len(content) for _, content in small)
                if watch is not None:
                    watch(self.progress)

    def _send(self, files: list[tuple[str, bytes]]) -> None:
        algorithm = preferred_algorithm()
        number = ALGORITHMS.index(algorithm)
        parts: list[bytes] = []
        for key, content in files:
            record = pack_format.PackRecord(
                pack_format.FILE,
                key,
                content,
                mode=_MODE,
                digest=hash_bytes(content, algorithm),
                algorithm=number,
            )
            parts += (pack_format.record_header(record), content)
        parts.append(pack_format.end_record(len(files)))
        for _, error in self.target.send_pack(self.target_path, b"".join(parts)):
            raise error

    def _upload(self, key: str, content: Iterable[bytes | memoryview]) -> None:
        upload = BufferedUpload(self.target, self._path(key))
        try:
            for chunk in content:
                upload.write(chunk)
                self.progress.bytes += len(chunk)
            upload.finish()
        except BaseException:
            upload.abandon()
            raise
        self.progress.files += 1

    def _path(self, key: str) -> str:
        return f"{self.target_path.rstrip('/')}/{key}"
