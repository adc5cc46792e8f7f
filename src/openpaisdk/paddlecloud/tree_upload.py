"""Upload of files: small ones whole, large ones and unchanged ones in chunks."""

from __future__ import annotations

import posixpath
import threading

from openpaisdk.paddlecloud.chunk_transfer import DEFAULT_CHUNK_BYTES, MAX_THREADS, upload
from openpaisdk.paddlecloud.pfs_client import PfsClient
from openpaisdk.paddlecloud.worker_threads import share_work
from paiprotocol.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
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
        self._chunk_bytes = chunk_bytes or DEFAULT_CHUNK_BYTES
        self._lock = threading.Lock()

    def put_tree(self, tree: LocalTree, target: str, progress: Progress) -> None:
        """Upload the content of a folder into a folder, which is created if needed."""
        there = self.pfs.stat(target)
        if there is not None and not there.is_folder:
            raise PaiError(f"{target} is a file, so no folder can be copied there.")
        known = self.pfs.list(target, recursive=True) if there is not None else []
        existing = {posixpath.normpath(file.path): file for file in known}
        wanted = {target, *(f"{target}/{name}" for name in tree.empty_folders)}
        wanted |= {posixpath.dirname(f"{target}/{file.name}") for file in tree.files}
        self.pfs.make_folders(sorted(wanted - {path for path, file in existing.items() if file.is_folder}))

        def put(client: PaddleCloudClient, file: LocalFile) -> None:
            path = f"{target}/{file.name}"
            self._put(client, file, path, existing.get(path), progress)

        # Requests for small files mostly wait for the server; a large file has threads for its chunks.
        small = [file for file in tree.files if file.size <= self._chunk_bytes]
        threads = max(1, min(MAX_THREADS, len(small)))
        clients = [self.client, *(self.client.with_own_connection() for _ in range(threads - 1))]
        try:
            share_work(small, clients, put)
        finally:
            for client in clients[1:]:
                client.transport.close()
        for file in tree.files:
            if file.size > self._chunk_bytes:
                put(self.client, file)

    def put_file(self, file: LocalFile, target: str, existing: PfsFile | None, progress: Progress) -> None:
        """Upload one file to this path, whose folder is created if needed. ``existing`` is there now."""
        if existing is None:
            self.pfs.make_folders([posixpath.dirname(target)])
        self._put(self.client, file, target, existing, progress)

    def _put(
        self,
        client: PaddleCloudClient,
        file: LocalFile,
        target: str,
        existing: PfsFile | None,
        progress: Progress,
    ) -> None:
        if existing is not None and existing.is_folder:
            raise PaiError(f"{target} is a folder, so no file can be copied there.")
        if file.size <= WHOLE_FILE_BYTES and (existing is None or existing.size != file.size):
            client.put_file(target, file.path, file.name, file.size)
            self._count(file.size, progress, is_sent=True)
            return

        def advance(length: int) -> None:
            with self._lock:
                progress.advance(length)

        count = upload(
            PfsClient(client), file.path, target, existing, chunk_bytes=self._chunk_bytes, advance=advance
        )
        self._count(0, progress, bool(count.sent), count.chunks, count.sent)

    def _count(
        self, advanced: int, progress: Progress, is_sent: bool, chunks: int = 0, sent_chunks: int = 0
    ) -> None:
        with self._lock:
            self.report.files += 1
            self.report.sent_files += is_sent
            self.report.chunks += chunks
            self.report.sent_chunks += sent_chunks
            progress.advance(advanced)
