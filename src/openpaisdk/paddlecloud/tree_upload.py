"""Upload of files: small ones whole, large ones and unchanged ones in chunks."""

from __future__ import annotations

import posixpath

from openpaisdk.errors import PaiError
from openpaisdk.paddlecloud.pfs_client import PfsClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from openpaisdk.output.progress import Progress
    from openpaisdk.paddlecloud.local_tree import LocalFile, LocalTree
    from openpaisdk.paddlecloud.paddlecloud_client import PaddleCloudClient
    from openpaisdk.paddlecloud.pfs_client import PfsFile

WHOLE_FILE_BYTES = 1 << 20
"""Up to this size one request that replaces the whole file takes less time than several for its chunks."""


class UploadReport:
    """What an upload did."""

    __slots__ = ("chunks", "files", "sent_chunks", "sent_files")

    def __init__(self) -> None:
        self.files = 0
        self.sent_files = 0
        self.chunks = 0
        self.sent_chunks = 0


class TreeUpload:
    """Uploads to one datacenter."""

    def __init__(self, client: PaddleCloudClient, chunk_bytes: int = 0):
        """``chunk_bytes``: size of the chunks, 0 for the default."""
        self.client = client
        self.pfs = PfsClient(client)
        self.report = UploadReport()
        self._chunk_bytes = chunk_bytes
        self._folders: set[str] = set()

    def put_tree(self, tree: LocalTree, target: str, progress: Progress | None = None) -> None:
        """Upload the content of a folder into a folder, which is created if needed."""
        there = self.pfs.stat(target)
        if there is not None and not there.is_folder:
            raise PaiError(f"{target} is a file, so no folder can be copied there.")
        known: dict[str, PfsFile] = {}
        if there is not None:
            known = {posixpath.normpath(file.path): file for file in self.pfs.list(target, recursive=True)}
            self._folders = {target, *(path for path, file in known.items() if file.is_folder)}
        else:
            self._make_folders([target])
        self._make_folders([f"{target}/{name}" for name in tree.empty_folders])
        for file in tree.files:
            path = f"{target}/{file.name}"
            self.put_file(file, path, known.get(path), progress)

    def put_file(
        self, file: LocalFile, target: str, existing: PfsFile | None, progress: Progress | None = None
    ) -> None:
        """Upload one file to this path. ``existing`` is what is there now."""
        if existing is not None and existing.is_folder:
            raise PaiError(f"{target} is a folder, so no file can be copied there.")
        self.report.files += 1
        is_same_size = existing is not None and existing.size == file.size
        if file.size <= WHOLE_FILE_BYTES and not is_same_size:
            self.client.put_file(target, file.path, file.name, file.size)
            self.report.sent_files += 1
            if progress is not None:
                progress.advance(file.size)
            return
        from openpaisdk.paddlecloud.chunk_transfer import DEFAULT_CHUNK_BYTES, upload

        self._make_folders([posixpath.dirname(target)])
        count = upload(
            self.pfs,
            file.path,
            target,
            existing,
            chunk_bytes=self._chunk_bytes or DEFAULT_CHUNK_BYTES,
            advance=progress.advance if progress else None,
        )
        self.report.sent_files += bool(count.sent)
        self.report.chunks += count.chunks
        self.report.sent_chunks += count.sent

    def _make_folders(self, paths: Sequence[str]) -> None:
        if missing := [path for path in paths if path not in self._folders]:
            self.pfs.make_folders(missing)
            self._folders.update(missing)
