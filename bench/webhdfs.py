"""WebHDFS upload and download, against a bare route that streams to a file and a bare file response."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from bench.server import Server
from bench.table import Row, alternate, limit_row, ratio_row, sized

_SIZE = sized(1 << 30, 4 << 20)
_LARGE = sized("1 GiB", "4 MiB")
_BLOCK = os.urandom(1 << 20)
_FILE = "/webhdfs/v1/user/{}/bench"

_BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import FileResponse, Response
from starlette.routing import Route

async def put(request):
    with open(sys.argv[1], "wb") as file:
        async for part in request.stream():
            file.write(part)
    return Response(status_code=201)

async def get(request):
    return FileResponse(sys.argv[1])

routes = [Route("/file", put, methods=["PUT"]), Route("/file", get)]
app = Starlette(routes=routes)
uvicorn.run(app, fd=int(sys.argv[2]), http="httptools", loop="uvloop", log_level="warning")
"""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listener, Server() as server:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        bare = subprocess.Popen(
            [sys.executable, "-c", _BARE, str(Path(folder) / "file"), str(listener.fileno())],
            pass_fds=[listener.fileno()],
        )
        try:
            bare_address = f"127.0.0.1:{listener.getsockname()[1]}"
            return _rows(server, bare_address)
        finally:
            bare.terminate()
            bare.wait()


def _rows(server: Server, bare_address: str) -> list[Row]:
    ours, path = urlsplit(server.url).netloc, _FILE.format(server.user)
    memory: list[float] = []

    def upload() -> float:
        rate = _put(ours, f"{path}?op=CREATE&data=true&overwrite=true", server.headers)
        memory.append(_peak_memory_mb(server))
        return rate

    sent = alternate(upload, lambda: _put(bare_address, "/file", {}), 5)
    fetched = alternate(
        lambda: _get(ours, f"{path}?op=OPEN&data=true", server.headers),
        lambda: _get(bare_address, "/file", {}),
        5,
    )
    memory.append(_peak_memory_mb(server))
    return [
        ratio_row(f"WebHDFS: upload of {_LARGE} / a bare route to a file", *sent, at_least=0.8, show=_rate),
        ratio_row(
            f"WebHDFS: download of {_LARGE} / a bare file response", *fetched, at_least=0.8, show=_rate
        ),
        limit_row(
            "WebHDFS: peak memory of the server", memory[-1:], at_most=100, show=lambda mb: f"{mb:.0f} MB"
        ),
    ]


def _put(address: str, path: str, headers: dict[str, str]) -> float:
    """Upload; bytes per second."""
    os.sync()
    connection = http.client.HTTPConnection(address, timeout=120)
    began = time.perf_counter()
    connection.putrequest("PUT", path)
    for name, value in {**headers, "Content-Length": str(_SIZE)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    for _ in range(_SIZE // len(_BLOCK)):
        connection.sock.sendall(_BLOCK)
    response = connection.getresponse()
    response.read()
    connection.close()
    if response.status != 201:
        raise RuntimeError(f"{path}: {response.status}")
    return _SIZE / (time.perf_counter() - began)


def _get(address: str, path: str, headers: dict[str, str]) -> float:
    """Download; bytes per second."""
    os.sync()
    connection = http.client.HTTPConnection(address, timeout=120)
    began = time.perf_counter()
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    buffer = bytearray(1 << 20)
    got = 0
    while count := response.readinto(buffer):
        got += count
    connection.close()
    if got != _SIZE:
        raise RuntimeError(f"{path}: {got} bytes")
    return _SIZE / (time.perf_counter() - began)


def _peak_memory_mb(server: Server) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.0f} MB/s"
