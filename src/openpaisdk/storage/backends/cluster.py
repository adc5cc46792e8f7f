"""A storage of our own cluster: WebHDFS for the questions, and faster ways for what is large or many."""

from __future__ import annotations

import json
import os
import sys
import threading

from openpaisdk.client.http1 import Body
from openpaisdk.errors import Conflict, ConnectionFailed, InvalidParameters, NotFound, PaiError, Unavailable
from openpaisdk.fileio import hashing
from openpaisdk.fileio.pack_format import COUNT
from openpaisdk.storage.backends.base import CHUNK, LONGEST_PARTS, NEAR_PARTS, WORKERS, part_bytes_of, parts
from openpaisdk.storage.backends.connection_pool import (
    ConnectionPool,
    blocks_of,
    body_of,
    whole,
    with_retries,
)
from openpaisdk.storage.backends.descriptor_io import DescriptorTarget
from openpaisdk.storage.backends.webhdfs import BASE, WebHdfs, WebHdfsSource
from openpaisdk.storage.file_info import DirectoryListing

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from openpaisdk.client.http1 import Response
    from openpaisdk.storage.backends.base import Chunks, Handover, Range, SourceFile, TargetFile
    from openpaisdk.storage.file_info import FileStat

TRANSFER = "/api/v2/transfer"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
UPLOADS = TRANSFER + "/uploads"


class ClusterBackend(WebHdfs):
    supports_packs = True
    longest_parts = LONGEST_PARTS

    def __init__(
        self,
        lines: ConnectionPool,
        offer: dict[str, object],
        *,
        where: str,
        user: str = "",
        base: str = BASE,
        root: str = "",
        rest_path: str = "",
        over_http: bool = False,
    ):
        """``offer`` is what the cluster said about its fast ways; ``over_http`` forgoes the shortcut."""
        super().__init__(lines, where=where, user=user, base=base, root=root)
        self.capabilities = offer
        self.rest_path = rest_path
        known = offer.get("hashes")
        best = hashing.preferred()
        self.algorithm = best if isinstance(known, list) and best in known else hashing.BLAKE2B
        self.over_http = over_http
        if is_same_machine(offer):
            # The cluster needs the same processors: more threads than these only stand in each other's way.
            self.workers = max(2, min(WORKERS, os.cpu_count() or 1))
            self.longest_parts = NEAR_PARTS
        self._bypass_hash_cache = False
        self._handover: Handover | None = None
        self._met_by = os.getpid()
        self._meeting = threading.Lock()

    def walk(self, path: str) -> Iterator[DirectoryListing]:
        answer = self._ask("GET", TRANSFER + "/tree", {"path": self.root + path})
        line = b""
        for data in body_of(answer, self.where):
            *lines, line = (line + data).split(b"\n")
            for each in lines:
                found = json.loads(each)
                if "end" in found:
                    return
                if "code" in found:
                    raise _refusal(found)
                yield DirectoryListing(found["p"], found["f"], found["d"])
        raise ConnectionFailed(
            f"{self.shown(path)} was listed only in part: something on the way cuts answers."
        )

    def read(
        self, path: str, offset: int = 0, length: int = -1, proven: Callable[[bytes], None] | None = None
    ) -> Chunks:
        """Bytes of a file, verified: what was read counts only once the end came without an error.

        Their hash is told to ``proven`` then.
        """
        if length == 0:
            return
        answer = self._ask(
            "GET",
            TRANSFER + "/file",
            {
                "path": self.root + path,
                "offset": offset or None,
                "length": length if length >= 0 else None,
                "hash": self.algorithm,
                "fresh": "true" if self._bypass_hash_cache else None,
            },
        )
        announced = answer.headers.get("content-length", "")
        if not announced.isdecimal():
            raise self._cut(path)
        made = hashing.hasher(self.algorithm)()
        left = int(announced) - hashing.SIZE
        proof = b""
        buffer = memoryview(bytearray(max(1, min(CHUNK, int(announced)))))
        for data in blocks_of(answer, self.where, buffer):
            if len(data) > left:
                proof += data[left:]
                data = data[:left]
            left -= len(data)
            if data:
                made.update(data)
                yield data
        if proof != made.digest():
            # The cluster remembers hashes: when asked again it is to look at the bytes themselves.
            self._bypass_hash_cache = True
            raise self._cut(path)
        if proven is not None:
            proven(proof)

    def open(self, path: str, facts: FileStat | None = None) -> SourceFile:
        handover = self.handover()
        if handover is not None:
            return handover.open(self.root + path, self.shown(path))
        return VerifiedOutgoing(self, path, self._facts(path))

    def _facts(self, path: str) -> FileStat:
        """To the nanosecond, and with the mode, which a walk does not tell."""
        answer = self._ask("GET", TRANSFER + "/file", {"path": self.root + path, "length": 0})
        whole(answer, self.where)
        said = answer.headers
        try:
            return int(said["x-pai-size"]), int(said["x-pai-mtime"]), int(said["x-pai-mode"], 8)
        except (KeyError, ValueError):
            raise self._strange() from None

    def create(self, path: str, outgoing: FileStat, key: str, *, replacing: bool = True) -> TargetFile:
        return MultipartUpload(self, path, outgoing, key, replacing=replacing)

    def handover(self) -> Handover | None:
        """The way through the kernel, where the cluster runs on this machine."""
        if self.over_http:
            return None
        with self._meeting:
            if self._met_by != os.getpid():
                # A fork has no part in its parent's conversation.
                self._handover, self._met_by = None, os.getpid()
            if sys.platform == "linux" and self._handover is None and is_same_machine(self.capabilities):
                from openpaisdk.storage.backends.fd_passing import connect

                self._handover = connect(self)
            self.over_http = self._handover is None
        return self._handover

    def free_bytes(self, path: str) -> int | None:
        found = self.capabilities.get("free")
        return found if isinstance(found, int) else None

    # -- packs ---------------------------------------------------------------------------------

    def send_pack(self, base: str, pack: bytes) -> list[tuple[str, PaiError]]:
        def send() -> dict[str, object]:
            return self._answer_of(
                self._ask("POST", TRANSFER + "/pack", {"path": self.root + base}, pack), "a pack of files"
            )

        return _problems(with_retries(send))

    def delete_all(self, base: str, names: list[str]) -> list[tuple[str, PaiError]]:
        if not self.capabilities.get("removes"):
            return super().delete_all(base, names)
        problems = []
        for start in range(0, len(names), COUNT):
            asked = json.dumps({"path": self.root + base, "names": names[start : start + COUNT]}).encode()

            def remove(asked: bytes = asked) -> dict[str, object]:
                return self._answer_of(self._ask("POST", TRANSFER + "/remove", {}, asked), "what to remove")

            problems += _problems(with_retries(remove))
        return problems

    def fetch_pack(self, base: str, names: list[str]) -> bytes:
        asked = json.dumps({"path": self.root + base, "names": names, "hash": self.algorithm}).encode()
        return with_retries(lambda: whole(self._ask("POST", TRANSFER + "/fetch", {}, asked), self.where))

    # -- the wire ------------------------------------------------------------------------------

    def _ask(
        self, method: str, path: str, values: dict[str, object], body: bytes | Body | None = None
    ) -> Response:
        try:
            return self.lines.transport(reading=method == "GET").request(
                method, self.rest_path + path, values=values, body=body, timeout=120
            )
        except InvalidParameters as e:
            # A proxy may cut what we send as well: then it is sent again.
            if e.code in ("CutPackError", "CutPartError", "IncompleteFileError"):
                raise ConnectionFailed(e.message) from None
            raise
        except NotFound as e:
            raise NotFound(e.message, code=e.code, hint=e.hint) from None

    def _answer_of(self, answer: Response, what: str) -> dict[str, object]:
        try:
            found = json.loads(whole(answer, self.where))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConnectionFailed(f"{self.where} gave no answer we understand about {what}.")
        return found


def is_same_machine(offer: dict[str, object]) -> bool:
    """Whether the cluster says it runs under the very kernel we run under."""
    if sys.platform == "linux" and offer.get("boot"):
        try:
            with open(BOOT_ID, encoding="ascii") as f:
                return f.read().strip() == offer["boot"]
        except OSError:
            pass
    return False


class VerifiedOutgoing(WebHdfsSource):
    """What was read of it was found right, so whoever writes it need not hash it again."""

    sums = False

    def __init__(self, backend: ClusterBackend, path: str, facts: FileStat):
        super().__init__(backend, path, facts)
        self._fast = backend
        self.longest_parts = backend.longest_parts
        self._proofs: dict[tuple[int, int], bytes] = {}

    def read(self, offset: int, length: int) -> Chunks:
        def keep(proof: bytes) -> None:
            self._proofs[offset, length] = proof

        if not length:
            keep(hashing.of_bytes(b"", self._fast.algorithm))
        return self._fast.read(self.path, offset, length, keep)

    def proves(self, algorithm: str) -> bool:
        return self._fast.algorithm == algorithm

    def proof(self, offset: int, length: int) -> bytes:
        return self._proofs.pop((offset, length))


class MultipartUpload(DescriptorTarget):
    """A large file on its way in: parts in any order, each with its hash; the server knows what it has."""

    def __init__(
        self, backend: ClusterBackend, path: str, outgoing: FileStat, key: str, *, replacing: bool = True
    ):
        super().__init__()
        self.backend = backend
        self.path = path
        self.what = backend.shown(path)
        self.size, self.mtime_ns, self.mode = outgoing
        self.in_order = self.size < 0
        self.algorithm = backend.algorithm
        self.part_bytes = part_bytes_of(self.size, backend.longest_parts)
        self.digests: dict[int, bytes] = {}
        self.about = {
            "path": backend.root + path,
            "size": self.size,
            "mtime": self.mtime_ns,
            "mode": self.mode,
            "key": key,
            "hash": self.algorithm,
            "partBytes": self.part_bytes,
            "overwrite": replacing,
        }
        self.handover = backend.handover() if self.size > 0 else None
        begun: dict[str, object] | None = None
        if self.handover is not None:
            self.fd, begun = self.handover.create(self.about)
        if begun is None:
            begun = with_retries(self._begin)
        self.id = str(begun["id"])
        have = begun.get("have")
        self.have: dict[int, str] = (
            {int(at): str(digest) for at, digest in have.items()} if isinstance(have, dict) else {}
        )

    def _begin(self) -> dict[str, object]:
        answer = self.backend._ask("POST", UPLOADS, {}, json.dumps(self.about).encode())
        return self.backend._answer_of(answer, self.what)

    def missing(self, longest: int = LONGEST_PARTS) -> list[Range]:
        left = []
        for at, length in parts(self.size, self.part_bytes):
            if at in self.have:
                self.digests[at] = bytes.fromhex(self.have[at])
            else:
                left.append((at, length))
        return left

    def put(
        self, offset: int, length: int, chunks: Callable[[], Chunks], source: SourceFile | None = None
    ) -> None:
        if self.fd >= 0:
            with_retries(lambda: self.write(offset, length, chunks(), source))
            return

        def send() -> None:
            fd = -1 if source is None else source.fileno()
            body = _WithDigest(offset, length, chunks, self.algorithm, fd)
            try:
                answer = self.backend._ask("PUT", f"{UPLOADS}/{self.id}", {"offset": offset}, body)
                whole(answer, self.backend.where)
            except NotFound:
                # Another copy of the same file has ended it; or it was cleaned up, or the disk was replaced.
                if not self._is_there(self.size):
                    raise ConnectionFailed(
                        f"The cluster forgot the upload of {self.what}.",
                        hint="Run the same command again.",
                    ) from None
            self.digests[offset] = body.digest

        with_retries(send)

    def mark(self, offset: int, length: int, digest: bytes) -> None:
        if self.handover is not None:
            self.handover.mark(self.id, offset, length, digest)
            self.digests[offset] = digest

    def finish(self, size: int) -> None:
        ordered = [self.digests[at] for at in sorted(self.digests)]
        said: dict[str, object] = {
            "size": size,
            "mtime": self.mtime_ns,
            "digest": hashing.combine(ordered, self.algorithm).hex(),
        }
        handover = self.handover if self.fd >= 0 else None
        self.close()
        asked = json.dumps(said).encode()

        def end() -> None:
            try:
                if handover is not None:
                    handover.finish(self.id, said)
                    return
                whole(self.backend._ask("POST", f"{UPLOADS}/{self.id}/finish", {}, asked), self.backend.where)
            except NotFound as e:
                # The answer to an earlier try may have been lost, or another copy of the same file ended it.
                if not self._is_there(size):
                    raise ConnectionFailed(e.message) from None
            except Conflict as e:
                if e.code != "StillOpenError":
                    raise
                raise Unavailable(
                    f"Another copy of the same file to {self.what} is under way.",
                    hint="Run the same command again when that one has ended.",
                ) from None

        with_retries(end)

    def _is_there(self, size: int) -> bool:
        there = self.backend.status(self.path)
        return there is not None and (there.size, there.mtime_ns // 10**6) == (size, self.mtime_ns // 10**6)

    def abandon(self) -> None:
        self.close()
        try:
            whole(self.backend._ask("DELETE", f"{UPLOADS}/{self.id}", {}), self.backend.where)
        except PaiError:
            pass


class _WithDigest(Body):
    """A part, and after its bytes their hash: it is made while they are sent."""

    __slots__ = ("algorithm", "digest", "make", "offset", "source")

    def __init__(self, offset: int, length: int, make: Callable[[], Chunks], algorithm: str, source: int):
        super().__init__(length + hashing.SIZE)
        self.offset = offset
        self.make = make
        self.algorithm = algorithm
        self.source = source if sys.platform == "linux" else -1
        self.digest = b""

    def chunks(self) -> Iterator[bytes]:
        made = hashing.hasher(self.algorithm)()
        for chunk in self.make():
            made.update(chunk)
            yield chunk  # type: ignore[misc]  # a socket takes views as well
        self.digest = made.digest()
        yield self.digest

    def send(self, sock: socket.socket) -> None:
        """From a file the kernel sends by itself what we have only looked at to hash it.

        Should it have changed in between, the cluster finds that bytes and hash do not belong together.
        """
        if self.source < 0:
            super().send(sock)
            return
        from openpaisdk.storage.backends.sendfile import send_range

        at, end = self.offset, self.offset + self.size - hashing.SIZE
        for chunk in self.chunks():
            # The last one is the hash, which is in no file.
            if at == end or not send_range(sock, self.source, at, len(chunk)):
                sock.sendall(chunk)
            at += len(chunk)


def _problems(answer: dict[str, object]) -> list[tuple[str, PaiError]]:
    found = answer.get("problems")
    told = found if isinstance(found, list) else []
    return [(str(each.get("name")), _refusal(each)) for each in told if isinstance(each, dict)]


def _refusal(said: dict[str, object]) -> PaiError:
    return PaiError(
        str(said.get("message") or "The cluster refused it."),
        code=str(said.get("code") or "") or None,
        hint=str(said.get("hint") or ""),
    )
