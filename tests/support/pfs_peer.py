"""PaddleCloud's chunk protocol over files in memory, for tests of what the client sends and of faults."""

import hashlib
import json
import re
from urllib.parse import parse_qs, unquote

from support.http_peer import Peer, Request, reply

BOUNDARY = b"8d7b0e5709d756e21e971ff4d9ac3b20"


class PfsPeer(Peer):
    """A server with a few files. ``spoil`` may change the bytes of a chunk that arrives."""

    def __init__(self):
        super().__init__(self._respond)
        self.files: dict[str, bytearray] = {}
        self.folders: set[str] = set()
        self.sent: list[tuple[str, int, int]] = []
        """Path, offset and length of the chunks that arrived."""
        self.fetched: list[tuple[str, int, int]] = []
        self.spoil = lambda data: data
        self.before_chunk = lambda: None
        self.can_rename = False
        """Whether it has the method `mv`, as our own server does and PaddleCloud's does not."""

    def _respond(self, request: Request) -> bytes | None:
        values = {k: v[0] for k, v in parse_qs(request.target.partition("?")[2]).items()}
        if request.path == "/api-token-auth/":
            return reply({"token": "t" * 40})
        if request.path == "/api/v1/pfs/files":
            return self._files(request, values)
        if request.path == "/api/v1/pfs/chunks":
            data = self._range(values)
            return _ok({"offset": int(values["offset"]), "checksum": _md5(data), "len": len(data)})
        if request.path == "/api/v1/pfs/storage/chunks":
            return self._store(request) if request.method == "POST" else self._fetch(values)
        if request.path == "/api/v1/file/":
            content = request.body.partition(b"\r\n\r\n")[2].rpartition(b"\r\n--")[0]
            self.files[unquote(values["path"])] = bytearray(content)
            return reply({"msg": ""})
        return reply({"code": 404, "msg": f"no {request.path}"}, 404)

    def _files(self, request: Request, values: dict[str, str]) -> bytes:
        if request.method != "GET":
            values = json.loads(request.body)
        method, path = values["method"], values.get("path", values.get("arg"))
        if method == "stat":
            if path in self.folders or path in self.files:
                return _ok(self._entry(path))
            return reply({"err": f"stat {path}: no such file or directory", "results": None})
        if method == "touch":
            if len(self.files.get(path, b"")) != values["filesize"] or path not in self.files:
                self.files[path] = bytearray(values["filesize"])
            return _ok({"path": path})
        if method == "mkdir":
            self.folders.update(path)
            return _ok([{"path": p} for p in path])
        if method == "rm":
            for one in path:
                self.files.pop(one, None)
            return _ok([{"path": p} for p in path])
        if method == "mv" and self.can_rename:
            if path not in self.files:
                return reply({"err": f"rename {path}: no such file or directory", "results": None})
            self.files[values["dest"]] = self.files.pop(path)
            return _ok({"path": values["dest"]})
        if method != "ls":
            return reply({"err": "", "results": None}, 405)
        found = [p for p in (*self.folders, *self.files) if p.startswith(path + "/")]
        if values["r"] == "false":
            found = [p for p in found if "/" not in p[len(path) + 1 :]]
        return _ok([self._entry(p) for p in sorted(found)] or None)

    def _entry(self, path: str) -> dict[str, object]:
        size = len(self.files.get(path, b""))
        return {
            "Path": path,
            "ModTime": 1_500_000_000_000_000_000,
            "Size": size,
            "IsDir": path in self.folders,
        }

    def _range(self, values: dict[str, str]) -> bytes:
        offset = int(values["offset"])
        return bytes(self.files[values["path"]][offset : offset + int(values["chunksize"])])

    def _store(self, request: Request) -> bytes | None:
        if len(request.body) < int(request.headers["content-length"]):
            return None
        self.before_chunk()
        head, _, rest = request.body.partition(b"\r\n\r\n")
        place = parse_qs(re.search(rb'name="chunk"; filename="([^"]*)"', head)[1].decode())
        data = rest.removesuffix(b"\r\n--" + BOUNDARY + b"--\r\n")
        path, offset = place["path"][0], int(place["offset"][0])
        assert len(data) == int(place["chunksize"][0])
        self.sent.append((path, offset, len(data)))
        self.files[path][offset : offset + len(data)] = self.spoil(data)
        return _ok(None)

    def _fetch(self, values: dict[str, str]) -> bytes:
        self.before_chunk()
        data = self._range(values)
        self.fetched.append((values["path"], int(values["offset"]), len(data)))
        head = b"--" + BOUNDARY + b'\r\nContent-Disposition: form-data; name="chunk"; filename="x"\r\n\r\n'
        tail = b"\r\n--" + BOUNDARY + b"--\r\n" + b'{"err":"","results":null}\n'
        return reply(head + self.spoil(data) + tail)


def _ok(results: object) -> bytes:
    return reply({"err": "", "results": results})


def _md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()
