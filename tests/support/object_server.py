"""A server with the few requests of S3 that read a bucket, and one that never answers."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class ObjectServer:
    """``objects`` by their key, all in the bucket that a client names. ``requests``: what clients asked for.

    While ``gate`` is not set, ranges of objects wait.
    """

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.requests: list[str] = []
        self.connections = 0
        self.gate = threading.Event()
        self.gate.set()
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                served.connections += 1
                super().setup()

            def finish(self) -> None:
                served.connections -= 1
                super().finish()

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                key = url.path.strip("/").partition("/")[2]
                served.requests.append(f"{self.command} {key}")
                if not key:
                    prefix = parse_qs(url.query).get("prefix", [""])[0]
                    return self._reply(200, served._listing(prefix))
                content = served.objects.get(key)
                if content is None:
                    return self._reply(404, b"")
                found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                if found is None:
                    return self._reply(200, content)
                served.gate.wait()
                start, end = int(found[1]), min(int(found[2]), len(content) - 1)
                more = {"Content-Range": f"bytes {start}-{end}/{len(content)}"}
                return self._reply(206, content[start : end + 1], more)

            do_HEAD = do_GET  # noqa: N815

            def _reply(self, status: int, body: bytes, more: dict[str, str] | None = None) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("ETag", '"one"')
                self.send_header("Last-Modified", "Tue, 03 Mar 2026 10:00:00 GMT")
                for name, value in (more or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _listing(self, prefix: str) -> bytes:
        objects = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(content)}</Size><ETag>one</ETag>"
            "<LastModified>2026-03-03T10:00:00Z</LastModified></Contents>"
            for key, content in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>".encode()

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
