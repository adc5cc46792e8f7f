"""The files of a folder as records, for training on data that is not packed."""

from __future__ import annotations

import os

from openpaisdk.data.file_contents import read_files
from openpaisdk.data.record_source import RecordRun, RecordSource, runs_of
from openpaisdk.storage.catalog import StorageOpener
from openpaisdk.storage.location import parse_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.storage.file_info import FileStat


class FolderRecords(RecordSource):
    """Every file below a folder is a record; its key is its path relative to the folder."""

    def __init__(self, url: str):
        self.url = url
        self._pid = -1
        self._connect()
        self._files: list[tuple[str, FileStat]] = []
        for folder in self._backend.walk(self._path):
            prefix = folder.path + "/" if folder.path else ""
            for name in sorted(folder.files):
                size, mtime_ns, mode = folder.files[name]
                self._files.append((prefix + name, (size, mtime_ns, mode)))

    def __reduce__(self) -> tuple[type[FolderRecords], tuple[str]]:
        return type(self), (self.url,)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"<FolderRecords {self.url}: {len(self)} files>"

    def key(self, number: int) -> str:
        return self._files[number][0]

    def read_run(self, run: RecordRun) -> list[bytes]:
        self._connect()
        if not 0 <= run.first < len(self._files):
            raise IndexError(f"{self.url} has {len(self)} files, numbered from 0")
        files = self._files[run.first : run.first + run.count]
        return list(read_files(self._backend, self._path, files))

    def runs(self, max_bytes: int, max_records: int) -> list[RecordRun]:
        return runs_of([file_stat[0] for _, file_stat in self._files], 0, max_bytes, max_records)

    def run_identity(self, run: RecordRun) -> str:
        return f"{self.url}\n{self._files[run.first : run.first + run.count]}"

    def _connect(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._backend, self._path = StorageOpener().open(parse_location(self.url))
