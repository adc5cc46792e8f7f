"""Client of the chunk protocol under ``/api/v1/pfs``: listings, folders, and chunks with their MD5 sums."""

from __future__ import annotations

from openpaisdk.paddlecloud.multipart import CHUNK_TYPE, ChunkBody, read_chunk
from openpaisdk.paddlecloud.paddlecloud_client import sentence
from paiprotocol.errors import ConnectionFailed, NotFound, PaiError, Unauthorized

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from openpaisdk.paddlecloud.paddlecloud_client import PaddleCloudClient

_FILES = "/api/v1/pfs/files"
_CHUNKS = "/api/v1/pfs/chunks"
_STORAGE = "/api/v1/pfs/storage/chunks"
_MISSING = "no such file or directory"
NO_FILE = "NoFileError"
"""Code of the error of a path that does not exist. A server without this protocol also responds with 404."""
_NO_FILE_SUFFIX = ".paddle-no-file"
MAX_PATHS_BYTES = 1500
"""Length of the paths of one request: PaddleCloud's server reads at most 2048 bytes of JSON."""


class PfsFile:
    """A file or a folder in the cloud."""

    __slots__ = ("is_folder", "mtime_ns", "path", "size")

    def __init__(self, path: str, is_folder: bool, size: int, mtime_ns: int):
        self.path = path
        self.is_folder = is_folder
        self.size = size
        self.mtime_ns = mtime_ns


class ChunkSum:
    """MD5 sum of a range of a file, and how many of its bytes exist."""

    __slots__ = ("length", "md5")

    def __init__(self, length: int, md5: str):
        self.length = length
        self.md5 = md5


class PfsClient:
    """Files of one datacenter. Not thread-safe: each thread creates its own."""

    def __init__(self, client: PaddleCloudClient):
        self.client = client

    def with_own_connection(self) -> PfsClient:
        return PfsClient(self.client.with_own_connection())

    def close(self) -> None:
        self.client.transport.close()

    def list(self, path: str, *, recursive: bool = False) -> list[PfsFile]:
        """What a folder contains, or the file itself; the server expands patterns."""
        results = self._get(_FILES, {"method": "ls", "r": "true" if recursive else "false", "arg": path})
        if results is None:
            return []
        if not isinstance(results, list):
            raise _unusable()
        return [_file(item) for item in results]

    def stat(self, path: str) -> PfsFile | None:
        """One file or folder; None if it does not exist."""
        try:
            return _file(self._get(_FILES, {"method": "stat", "path": path}))
        except NotFound as e:
            if e.code != NO_FILE:
                raise
            return None

    def make_folders(self, paths: Sequence[str]) -> None:
        """Create folders with their parents; existing ones are fine."""
        for some in _in_requests(paths):
            self._send("POST", {"method": "mkdir", "path": some})

    def remove(self, path: str, *, recursive: bool) -> None:
        """Delete what a path or a pattern names. A missing one is an error here, though not for servers."""
        if not self._send("DELETE", {"method": "rm", "r": recursive, "path": [path]}):
            raise NotFound(f"{path}: no such file or folder in the cloud.", code=NO_FILE)

    def can_rename(self, path: str) -> bool:
        """Whether the datacenter has ``rename``, which is an addition of our server; ``path`` is any path."""
        if self.client.can_rename is None:
            try:
                self.rename(path + _NO_FILE_SUFFIX, path + _NO_FILE_SUFFIX)
            except (ConnectionFailed, Unauthorized):
                raise
            except PaiError as e:
                self.client.can_rename = e.code == NO_FILE
            else:
                self.client.can_rename = True
        return self.client.can_rename

    def rename(self, path: str, target: str) -> None:
        """Rename a file, over another one if there is one."""
        self._send("POST", {"method": "mv", "path": path, "dest": target})

    def allocate(self, path: str, size: int) -> None:
        """Create a file of this size; one that has another size is replaced."""
        self._send("POST", {"method": "touch", "filesize": size, "path": path})

    def chunk_sum(self, path: str, offset: int, size: int) -> ChunkSum:
        values = {"method": "GetChunkMeta", "path": path, "offset": offset, "chunksize": size}
        results = self._get(_CHUNKS, values)
        if not isinstance(results, dict):
            raise _unusable()
        length, md5 = results.get("len"), results.get("checksum")
        if not isinstance(length, int) or not isinstance(md5, str):
            raise _unusable()
        return ChunkSum(length, md5)

    def write_chunk(self, path: str, offset: int, content: memoryview) -> None:
        response = self.client.request(
            "POST", _STORAGE, body=ChunkBody(path, offset, content), headers={"Content-Type": CHUNK_TYPE}
        )
        self._results(self.client.decode(response))

    def read_chunk(self, path: str, offset: int, buffer: memoryview) -> int:
        """Fill the buffer with the bytes at an offset; returns their number."""
        values = {"path": path, "offset": offset, "chunksize": len(buffer)}
        return read_chunk(self.client.request("GET", _STORAGE, values), buffer)

    def _get(self, path: str, values: dict[str, object]) -> object:
        return self._results(self.client.get(path, values))

    def _send(self, method: str, value: dict[str, object]) -> object:
        return self._results(self.client.send(method, _FILES, value))

    @staticmethod
    def _results(reply: dict[str, object]) -> object:
        if "err" not in reply:
            raise _unusable()
        error = str(reply["err"] or "")
        if _MISSING in error:
            raise NotFound(sentence(error), code=NO_FILE)
        if error:
            raise PaiError(sentence(error))
        return reply.get("results")


def _in_requests(paths: Sequence[str]) -> Iterator[list[str]]:
    """The paths in lists that are short enough for one request."""
    some: list[str] = []
    size = 0
    for path in paths:
        length = len(path.encode())
        if some and size + length > MAX_PATHS_BYTES:
            yield some
            some, size = [], 0
        some.append(path)
        size += length
    if some:
        yield some


def _file(value: object) -> PfsFile:
    if not isinstance(value, dict):
        raise _unusable()
    path, size, mtime = value.get("Path"), value.get("Size"), value.get("ModTime")
    if not isinstance(path, str) or not isinstance(size, int) or not isinstance(mtime, int):
        raise _unusable()
    return PfsFile(path, value.get("IsDir") is True, size, mtime)


def _unusable() -> ConnectionFailed:
    return ConnectionFailed(
        "The datacenter's reply about files is not one of PaddleCloud.",
        hint="Check its endpoint in ~/.paddle/config.",
    )
