"""Requests of PaddleCloud's Go client, byte for byte, and strict models of the replies that it can read.

The client reads keys without looking whether they exist: a reply without one, or with another type, ends it
with a panic. Here that is a `msgspec.ValidationError`.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

BOUNDARY = "8d7b0e5709d756e21e971ff4d9ac3b20"
T = TypeVar("T")


# -- what the client dereferences --------------------------------------------------------------------------


class _Named(msgspec.Struct):
    name: str


class _JobStatus(msgspec.Struct):
    active: int | None
    succeeded: int | None
    failed: int | None
    start_time: str | None
    completion_time: str | None


class _Job(msgspec.Struct):
    metadata: _Named
    status: _JobStatus


class Jobs(msgspec.Struct):
    items: list[_Job]
    terminating: list[str]


class _ReplicaStatus(msgspec.Struct):
    ready_replicas: int | None
    replicas: int


class _ReplicaSet(msgspec.Struct):
    metadata: _Named
    status: _ReplicaStatus


class Pservers(msgspec.Struct):
    items: list[_ReplicaSet]


class _Terminated(msgspec.Struct):
    exit_code: int | None
    message: str | None


class _ContainerState(msgspec.Struct):
    terminated: _Terminated | None


class _ContainerStatus(msgspec.Struct):
    state: _ContainerState


class _PodStatus(msgspec.Struct):
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
    start_time: str | None
    container_statuses: list[_ContainerStatus]

    def __post_init__(self) -> None:
        if not self.container_statuses:
            raise ValueError("the client reads the first container")


class _Pod(msgspec.Struct):
    metadata: _Named
    status: _PodStatus


class Workers(msgspec.Struct):
    items: list[_Pod]


class _Hard(msgspec.Struct):
    memory: str = msgspec.field(name="requests.memory")
    cpu: str = msgspec.field(name="requests.cpu")
    gpu: str = msgspec.field(name="alpha.kubernetes.io/nvidia-gpu")
    pods: str


class _QuotaStatus(msgspec.Struct):
    hard: _Hard


class _Quota(msgspec.Struct):
    status: _QuotaStatus


class Quotas(msgspec.Struct):
    items: list[_Quota]


class _SecretMetadata(msgspec.Struct):
    name: str
    creation_timestamp: str


class _Secret(msgspec.Struct):
    metadata: _SecretMetadata


class _Secrets(msgspec.Struct):
    items: list[_Secret]


class Registries(msgspec.Struct):
    msg: _Secrets


class Message(msgspec.Struct):
    msg: str


class Code(msgspec.Struct):
    code: int
    msg: str


class FileList(msgspec.Struct):
    msg: str
    items: list[str]


class FileAttr(msgspec.Struct):
    path: str = msgspec.field(name="Path")
    mod_time: int = msgspec.field(name="ModTime")
    size: int = msgspec.field(name="Size")
    is_dir: bool = msgspec.field(name="IsDir")


class ChunkMeta(msgspec.Struct, forbid_unknown_fields=True):
    offset: int
    checksum: str
    len: int


class LsReply(msgspec.Struct, forbid_unknown_fields=True):
    err: str
    results: list[FileAttr] | None


class StatReply(msgspec.Struct, forbid_unknown_fields=True):
    err: str
    results: FileAttr | None


class ChunkMetaReply(msgspec.Struct, forbid_unknown_fields=True):
    err: str
    results: ChunkMeta | None


class PathReply(msgspec.Struct, forbid_unknown_fields=True):
    path: str


class PathsReply(msgspec.Struct, forbid_unknown_fields=True):
    err: str
    results: list[PathReply] | None


class TouchReply(msgspec.Struct, forbid_unknown_fields=True):
    err: str
    results: PathReply | None


class EmptyReply(msgspec.Struct, forbid_unknown_fields=True):
    err: str
    results: None


# -- the wire ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RawReply:
    status_line: str
    headers: dict[str, str]
    body: bytes

    def decode(self, model: type[T]) -> T:
        """What the client reads of a reply that it accepts: 200, and that as "200 OK"."""
        assert self.status_line == "HTTP/1.1 200 OK", (self.status_line, self.body)
        return msgspec.json.decode(self.body, type=model)

    def json(self) -> Any:
        return json.loads(self.body)


def send_raw(address: tuple[str, int], request: bytes, *, half_close: bool = False) -> RawReply:
    """Send these bytes, read one response."""
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(request)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while b"\r\n\r\n" not in received:
            if not (data := connection.recv(65536)):
                break
            received += data
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        if headers.get("transfer-encoding") == "chunked":
            while not body.endswith(b"0\r\n\r\n"):
                body += connection.recv(65536)
            body = _unchunked(body)
        else:
            size = int(headers.get("content-length", 0))
            while len(body) < size and (data := connection.recv(65536)):
                body += data
        return RawReply(lines[0], headers, body)


def _unchunked(body: bytes) -> bytes:
    parts = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size, 16)
        parts, body = parts + body[:count], body[count + 2 :]
    return parts


def head(method: str, target: str, host: str, headers: dict[str, str], size: int | None) -> bytes:
    """Request line and headers in the order of Go's `net/http`."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "User-Agent: Go-http-client/1.1"]
    if size is not None:
        lines.append(f"Content-Length: {size}")
    lines += [f"{name}: {headers[name]}" for name in sorted(headers)]
    lines.append("Accept-Encoding: gzip")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@dataclass
class GoClient:
    """The client of one user. ``prefix`` is "/" for an endpoint that ends with a slash."""

    address: tuple[str, int]
    username: str
    password: str
    datacenter: str = "dc1"
    prefix: str = ""
    token: str = ""
    sent: list[bytes] = field(default_factory=list)

    @property
    def home(self) -> str:
        return f"/pfs/{self.datacenter}/home/{self.username}"

    def fetch_token(self) -> str:
        body = json.dumps({"password": self.password, "username": self.username}, separators=(",", ":"))
        reply = self._send("POST", "/api-token-auth/", body.encode(), {"Content-Type": "application/json"})
        assert reply.status_line == "HTTP/1.1 200 OK", (reply.status_line, reply.body)
        self.token = str(reply.json()["token"])
        return self.token

    def call(self, method: str, target: str, body: Any = None) -> RawReply:
        """A request with the token and, as the client sends it also with a GET, the type of JSON."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = {"Authorization": f"Token {self.token}", "Content-Type": "application/json"}
        return self._send(method, target, data, headers)

    def submit(self, name: str, /, **more: Any) -> RawReply:
        """All keys, in the order of the client's struct."""
        body = {
            "name": name,
            "jobPackage": "./package",
            "parallelism": 1,
            "cpu": 1,
            "gpu": 0,
            "memory": "64Mi",
            "pservers": 1,
            "pscpu": 1,
            "psmemory": "64Mi",
            "entry": "true",
            "topology": "",
            "datacenter": self.datacenter,
            "passes": 1,
            "image": "",
            "registry": "",
            "faulttolerant": False,
            "maxInstance": 1,
            "minInstance": 1,
        }
        return self.call("POST", "/api/v1/jobs/", {**body, **more})

    def kill(self, name: str) -> RawReply:
        return self.call("DELETE", "/api/v1/jobs/", {"jobname": name})

    def logs(self, name: str, n: int = 10, w: str = "") -> RawReply:
        return self.call("GET", f"/api/v1/logs?{urlencode({'jobname': name, 'n': n, 'w': w})}")

    # -- files -------------------------------------------------------------------------------------

    def put_file(self, path: str, data: bytes, filename: str = "train.py") -> RawReply:
        """The simple upload, which `submit` uses. The boundary is random, 30 bytes in hexadecimal."""
        boundary = "0f" * 30
        body = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        body += data + f"\r\n--{boundary}--\r\n".encode()
        headers = {
            "Authorization": f"Token {self.token}",
            "Content-Type": f"multipart/form-data; boundary={boundary}",
        }
        return self._send("POST", f"/api/v1/file/?path={quote(path, safe='')}", body, headers)

    def pfs(self, method: str, target: str, body: Any = None) -> RawReply:
        return self.call(method, f"/api/v1/pfs/{target}", body)

    def chunk_query(self, path: str, offset: int, size: int) -> str:
        return f"chunksize={size}&offset={offset}&path={quote(path, safe='')}"

    def chunk_meta(self, path: str, offset: int, size: int) -> RawReply:
        query = f"chunksize={size}&method=GetChunkMeta&offset={offset}&path={quote(path, safe='')}"
        return self.pfs("GET", f"chunks?{query}")

    def get_chunk(self, path: str, offset: int, size: int) -> RawReply:
        return self.pfs("GET", f"storage/chunks?{self.chunk_query(path, offset, size)}")

    def chunk_body(self, path: str, offset: int, data: bytes, size: int | None = None) -> bytes:
        query = self.chunk_query(path, offset, len(data) if size is None else size)
        return (
            (
                f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="chunk"; filename="{query}"\r\n'
                "Content-Type: application/octet-stream\r\n\r\n"
            ).encode()
            + data
            + f"\r\n--{BOUNDARY}--\r\n".encode()
        )

    def post_chunk(self, path: str, offset: int, data: bytes) -> RawReply:
        return self.post_chunk_body(self.chunk_body(path, offset, data))

    def post_chunk_body(self, body: bytes, boundary: str = BOUNDARY, **more: Any) -> RawReply:
        headers = {
            "Authorization": f"Token {self.token}",
            "Content-Type": f"multipart/form-data; boundary={boundary}",
        }
        return self._send("POST", "/api/v1/pfs/storage/chunks", body, headers, **more)

    def _send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: dict[str, str],
        *,
        announced: int | None = None,
    ) -> RawReply:
        """``announced``: a Content-Length that is not that of the body, which then ends early."""
        size = announced if announced is not None else None if body is None else len(body)
        host = f"{self.address[0]}:{self.address[1]}"
        request = head(method, self.prefix + target, host, headers, size) + (body or b"")
        self.sent.append(request)
        return send_raw(self.address, request, half_close=announced is not None)
