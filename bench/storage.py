"""File transfers, against `cp`, a bare Starlette route, `hdfscli`, a walk of the tree, and a bare ranged GET.

`PAI_BENCH_MB` sets the size of the large file. `python -m bench storage.GROUP` measures one of `GROUPS`.
"""

from __future__ import annotations

import http.client
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from bench.server import Server, free_port, wait_for_port
from bench.table import Row, limit_row, ms, ratio_row, sized, spread
from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.storage import Storage

SIZE = int(os.environ.get("PAI_BENCH_MB") or sized(1024, 8)) << 20
FILES = sized(10_000, 200)
HDFSCLI_FILES = sized(200, 100)
"""`hdfscli` needs more than a minute for all files: it uploads some, and files per second are compared."""
RUNS = sized(8, 2)
LARGE = "1 GiB" if SIZE == 1 << 30 else f"{SIZE >> 20} MiB"
MANY = f"{FILES:,}".replace(",", " ")
HOW = """\
storage: in each round every candidate runs once, after a warm-up round; each run starts after a sync, and
those of 1 GiB after as much memory was used and freed (the host reclaims free memory). Of each candidate the
faster half counts, by its median: a shared disk or host makes runs slower, never faster. The spread is that
of the counted runs. Neither cp nor pai waits until the bytes are on the disk."""
READS = sized(400, 5)
READ_BYTES = 64 << 10
BIN = Path(sys.executable).parent

BARE = """
    import sys, uvicorn
    from starlette.applications import Starlette
    from starlette.responses import FileResponse, Response
    from starlette.routing import Route

    async def up(request):
        with open(sys.argv[1] + "/bare", "wb") as f:
            async for chunk in request.stream():
                f.write(chunk)
        return Response()

    async def down(request):
        return FileResponse(sys.argv[1] + "/big")

    app = Starlette(routes=[Route("/up", up, methods=["PUT"]), Route("/down", down)])
    uvicorn.run(app, port=int(sys.argv[2]), log_level="error", loop="uvloop", http="httptools")
"""

RAW = """
import os, socket, sys
buffer = memoryview(bytearray(1 << 16))
connection = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
while got := connection.recv_into(buffer, 1 << 16, socket.MSG_WAITALL):
    os.write(fd, buffer[:got])
"""


def rows(group: str = "") -> list[Row]:
    folder = Path(tempfile.mkdtemp(prefix="pai-bench-storage-"))
    try:
        with Server() as server, BareServer(folder) as bare:
            setup = TransferSetup(folder, server, bare)
            return [
                row for name, measure in GROUPS.items() if name == (group or name) for row in measure(setup)
            ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class BareServer:
    """Starlette server without checks, as the reference."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port = free_port()

    def __enter__(self) -> BareServer:
        script = self.folder / "bare.py"
        script.write_text(textwrap.dedent(BARE))
        self.process = subprocess.Popen([sys.executable, str(script), str(self.folder), str(self.port)])
        wait_for_port(self.port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(20)


class TransferSetup:
    """Server, clients, a large file and a tree of small files; one method per group of rows."""

    def __init__(self, folder: Path, server: Server, bare: BareServer):
        self.folder = folder
        self.server = server
        self.bare = bare
        self.home = folder / "home"
        (self.home / ".openpai").mkdir(parents=True)
        entry = f"cluster_alias: b\n  pai_uri: {server.url}\n  user: {server.user}\n  token: {server.token}\n"
        (self.home / ".openpai/clusters.yaml").write_text("- " + entry)
        self.remote = f"/user/{server.user}"
        self.big = folder / "big"
        with self.big.open("wb") as f:
            block = os.urandom(1 << 20)
            for _ in range(SIZE >> 20):
                f.write(block)
        self.trees, self.last = 0, ""
        self.tree = folder / "tree"
        for i in range(FILES):
            if i % 100 == 0:
                (self.tree / f"d{i // 100:03}").mkdir(parents=True)
            (self.tree / f"d{i // 100:03}" / f"f{i:05}").write_bytes(os.urandom(4096))
        self.kernel = self.storage(over_http=False)
        self.http = self.storage(over_http=True)
        self.kernel.upload(str(self.big), f"{self.remote}/big")

    def storage(self, *, over_http: bool) -> Storage:
        server = self.server
        return Storage.of(
            ClusterClient("b", Endpoint(server.url, server.user, server.token)), over_http=over_http
        )

    # -- one large file ------------------------------------------------------------------------

    def same_machine(self) -> list[Row]:
        up, down, cp = in_turn(
            lambda: self.upload(self.kernel),
            lambda: self.download(self.kernel),
            self.cp,
        )
        return [
            speed(f"{LARGE} up, same machine / cp", up, cp, 0.8),
            speed(f"{LARGE} down, same machine / cp", down, cp, 0.8),
        ]

    def up_over_http(self) -> list[Row]:
        """The last reference is the limit of two processes, a socket and a disk, without HTTP or hashes."""
        ours, bare, hdfs, raw = in_turn(lambda: self.upload(self.http), self.bare_up, self.hdfs_up, self.raw)
        return [
            speed(f"{LARGE} up over HTTP, verified / a bare route", ours, bare, 0.8),
            speed(f"{LARGE} up over HTTP / hdfscli", ours, hdfs, 2),
            speed(f"{LARGE} up over HTTP / sendfile, socket, recv, write", ours, raw, 0.7),
        ]

    def down_over_http(self) -> list[Row]:
        ours, bare, hdfs, raw = in_turn(
            lambda: self.download(self.http), self.bare_down, self.hdfs_down, self.raw
        )
        return [
            speed(f"{LARGE} down over HTTP, verified / a bare file response", ours, bare, 0.8),
            speed(f"{LARGE} down over HTTP / hdfscli", ours, hdfs, 2),
            speed(f"{LARGE} down over HTTP / sendfile, socket, recv, write", ours, raw, 0.7),
        ]

    def raw(self) -> float:
        target = self.folder / "raw"

        def move() -> None:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = str(listener.getsockname()[1])
                child = subprocess.Popen([sys.executable, "-c", RAW, str(target), port])
                connection, _ = listener.accept()
                with connection, self.big.open("rb") as f:
                    connection.sendfile(f)
                if child.wait(120):
                    raise RuntimeError("the receiver failed")

        return self.timed_large(move, target)

    def upload(self, storage: Storage) -> float:
        taken = self.timed_large(lambda: storage.upload(str(self.big), f"{self.remote}/up"))
        storage.delete(f"{self.remote}/up")
        return taken

    def download(self, storage: Storage) -> float:
        target = self.folder / "down"
        return self.timed_large(lambda: storage.download(f"{self.remote}/big", str(target)), target)

    def cp(self) -> float:
        target = self.folder / "cp"
        return self.timed_large(lambda: call("cp", str(self.big), str(target)), target)

    def bare_up(self) -> float:
        """By `sendfile`, in this process: the least that a client can do."""

        def put() -> None:
            head = f"PUT /up HTTP/1.1\r\nHost: bare\r\nContent-Length: {SIZE}\r\n\r\n"
            connection = http.client.HTTPConnection("127.0.0.1", self.bare.port)
            connection.connect()
            with closing(connection), self.big.open("rb") as f:
                connection.sock.sendall(head.encode())
                connection.sock.sendfile(f)
                response = http.client.HTTPResponse(connection.sock, method="PUT")
                response.begin()
                if response.status != 200:
                    raise RuntimeError(f"the bare route answered {response.status}")

        return self.timed_large(put, self.folder / "bare")

    def bare_down(self) -> float:
        target = self.folder / "baredown"

        def get() -> None:
            connection, buffer = http.client.HTTPConnection("127.0.0.1", self.bare.port), bytearray(1 << 20)
            with closing(connection), target.open("wb", buffering=0) as f:
                connection.request("GET", "/down")
                response = connection.getresponse()
                while count := response.readinto(buffer):
                    f.write(memoryview(buffer)[:count])
            if target.stat().st_size != SIZE:
                raise RuntimeError(f"the bare route sent {target.stat().st_size} of {SIZE} bytes")

        return self.timed_large(get, target)

    def hdfs_up(self) -> float:
        client = self.hdfs()
        taken = self.timed_large(lambda: client.upload(f"{self.remote}/hup", str(self.big)))
        client.delete(f"{self.remote}/hup")
        return taken

    def hdfs_down(self) -> float:
        client, target = self.hdfs(), self.folder / "hdown"
        return self.timed_large(lambda: client.download(f"{self.remote}/big", str(target)), target)

    def hdfs(self):  # type: ignore[no-untyped-def]
        import requests
        from hdfs import Client

        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {self.server.token}"
        return Client(self.server.url, session=session)

    # -- many small files ----------------------------------------------------------------------

    def many_files(self) -> list[Row]:
        self.hdfs().makedirs(f"{self.remote}/h")
        subset = self.folder / "subset"
        for i in range(HDFSCLI_FILES // 100):
            shutil.copytree(self.tree / f"d{i:03}", subset / f"d{i:03}")
        up, hdfs, cp = in_turn(self.tree_up, lambda: self.hdfs_subset(subset), self.cp_tree)
        return [
            speed(f"{MANY} files of 4 KiB over HTTP / hdfscli", up, hdfs, 20),
            speed(f"{MANY} files of 4 KiB over HTTP / cp -r", up, cp, 0.25),
        ]

    def unchanged(self) -> list[Row]:
        self.tree_up()
        again, walk = in_turn(lambda: self.pai("sync", "--http", "tree", self.last), self.walk)
        return [times(f"sync of {MANY} unchanged files / a walk and python -c pass", again, walk, 5)]

    @property
    def url(self) -> str:
        return f"pai://b/0{self.remote}"

    def tree_up(self) -> float:
        """To a new target each time: for a minute after thousands of files were deleted, ext4 creates files
        at a third of its speed."""
        self.trees += 1
        self.last = f"{self.url}/tree{self.trees}"
        return self.pai("copy", "--http", "tree", self.last)

    def cp_tree(self) -> float:
        self.trees += 1
        return self.timed(lambda: call("cp", "-r", str(self.tree), str(self.folder / f"cp{self.trees}")))

    def hdfs_subset(self, subset: Path) -> float:
        self.trees += 1
        target = f"{self.remote}/h/subset{self.trees}"
        return self.timed(lambda: self.hdfs().upload(target, str(subset))) / HDFSCLI_FILES * FILES

    def pai(self, *arguments: str) -> float:
        environment = {**os.environ, "HOME": str(self.home)}
        return self.timed(lambda: call(str(BIN / "pai"), *arguments, cwd=self.folder, env=environment))

    def walk(self) -> float:
        def walk_tree() -> None:
            call(sys.executable, "-c", "pass")
            todo = [str(self.tree)]
            while todo:
                with os.scandir(todo.pop()) as found:
                    for item in found:
                        if item.is_dir():
                            todo.append(item.path)
                        else:
                            item.stat()

        return self.timed(walk_tree)

    # -- random reads --------------------------------------------------------------------------

    def random_reads(self) -> list[Row]:
        import fsspec

        os.environ["HOME"], before = str(self.home), os.environ["HOME"]
        try:
            fs = fsspec.filesystem("pai", http=True, skip_instance_cache=True)
            rng = random.Random(1)
            offsets = [rng.randrange(SIZE - READ_BYTES) for _ in range(READS)]
            url = urlsplit(self.server.url)
            bare = http.client.HTTPConnection(url.hostname or "", url.port)

            def ours() -> None:
                with fs.open(f"{self.url}/big") as f:
                    for at in offsets:
                        f.seek(at)
                        assert len(f.read(READ_BYTES)) == READ_BYTES

            def reference() -> None:
                for at in offsets:
                    parameters = f"op=OPEN&noredirect=false&offset={at}&length={READ_BYTES}"
                    path = f"/webhdfs/v1{self.remote}/big?{parameters}"
                    headers = {"Authorization": f"Bearer {self.server.token}"}
                    bare.request("GET", path, headers=headers)
                    response = bare.getresponse()
                    data = response.read()
                    if response.status in (307, 300):
                        bare.request(
                            "GET", "/" + response.headers["Location"].split("/", 3)[3], headers=headers
                        )
                        data = bare.getresponse().read()
                    assert len(data) == READ_BYTES

            a, b = in_turn(lambda: self.timed(ours), lambda: self.timed(reference))
        finally:
            os.environ["HOME"] = before
        return [speed(f"{READS} random reads of 64 KiB over pai:// / a bare ranged GET", a, b, 0.7)]

    def memory(self) -> list[Row]:
        self.tree_up()
        self.pai("sync", "--http", "tree", self.last)
        self.pai("copy", "--http", f"{self.url}/big", "down")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        return [limit_row("peak memory of pai above", [peak], at_most=100, show=lambda mb: f"{mb:.0f} MB")]

    def timed(self, action: Callable[[], object], created: Path | None = None) -> float:
        """Duration of an action. The file it ``created`` is removed at once, so the next sync need not write
        it."""
        os.sync()
        began = time.perf_counter()
        action()
        taken = time.perf_counter() - began
        if created is not None:
            created.unlink()
        return taken

    def timed_large(self, action: Callable[[], object], created: Path | None = None) -> float:
        """Duration of a large transfer, after as much memory was used and freed.

        The host of a virtual machine reclaims free memory and is slow to return it: whether a GiB finds free
        memory would decide more than the candidate.
        """
        with (self.folder / "memory").open("wb") as f:
            for _ in range(SIZE * 7 // 5 >> 20):
                f.write(bytes(1 << 20))
        (self.folder / "memory").unlink()
        return self.timed(action, created)


GROUPS: dict[str, Callable[[TransferSetup], list[Row]]] = {
    "same-machine": TransferSetup.same_machine,
    "up-over-http": TransferSetup.up_over_http,
    "down-over-http": TransferSetup.down_over_http,
    "many-files": TransferSetup.many_files,
    "unchanged": TransferSetup.unchanged,
    "random-reads": TransferSetup.random_reads,
    "memory": TransferSetup.memory,
}


def in_turn(*candidates: Callable[[], float]) -> list[list[float]]:
    """The faster half of each candidate's runs. The first one rotates: each affects the next."""
    seconds: list[list[float]] = [[] for _ in candidates]
    for number in range(RUNS + 1):
        pairs = list(zip(seconds, candidates, strict=True))
        first = number % len(candidates)
        for taken, run in pairs[first:] + pairs[:first]:
            taken.append(run())
    return [_faster(taken[1:]) for taken in seconds]


def _faster(seconds: list[float]) -> list[float]:
    return sorted(seconds)[: len(seconds) // 2]


def speed(what: str, ours: list[float], reference: list[float], at_least: float) -> Row:
    """Seconds as a ratio of speeds."""
    row = ratio_row(
        what, [1 / s for s in ours], [1 / s for s in reference], at_least=at_least, show=lambda v: ms(1 / v)
    )
    return replace(row, spread=max(spread(ours), spread(reference)))


def times(what: str, ours: list[float], reference: list[float], at_most: float) -> Row:
    row = ratio_row(what, ours, reference, at_most=at_most, show=ms)
    return replace(row, spread=max(spread(ours), spread(reference)))


def call(*command: str, **more: object) -> None:
    done = subprocess.run(command, capture_output=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.decode()}")
