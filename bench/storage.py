"""Moving files: against `cp`, a bare Starlette route, `hdfscli`, a walk of the tree, and a bare ranged GET.

`PAI_BENCH_MB` makes the large file smaller. Everything is removed afterwards. `python -m bench storage.GROUP`
measures one of `GROUPS`.
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
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from bench.server import Server
from bench.table import Row, limit_row, ms, ratio_row, spread
from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.storage import Storage

SIZE = int(os.environ.get("PAI_BENCH_MB", "1024")) << 20
COUNT = 10_000
SOME = 200
"""`hdfscli` needs more than a minute for all of them: it gets some, and is compared by files a second."""
RUNS = 8
HOW = """\
storage: rounds in which each runs once, in turn, after one that does not count; every run after a sync, and
those of 1 GiB after as much memory was used and freed (a host takes back what is free). Of
each the faster half counts, by its median: a disk and a host that others use make runs slower, never faster.
The spread is that of the runs that count. Neither cp nor we wait until the bytes are on the disk."""
READS = 400
PIECE = 64 << 10
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
line = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
while got := line.recv_into(buffer, 1 << 16, socket.MSG_WAITALL):
    os.write(fd, buffer[:got])
"""


def rows(group: str = "") -> list[Row]:
    folder = Path(tempfile.mkdtemp(prefix="pai-bench-storage-"))
    try:
        with Server() as server, BareServer(folder) as bare:
            desk = Desk(folder, server, bare)
            return [
                row for name, measure in GROUPS.items() if name == (group or name) for row in measure(desk)
            ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class BareServer:
    """What Starlette does when nobody checks anything."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port = _free_port()

    def __enter__(self) -> BareServer:
        script = self.folder / "bare.py"
        script.write_text(textwrap.dedent(BARE))
        self.process = subprocess.Popen([sys.executable, str(script), str(self.folder), str(self.port)])
        until = time.monotonic() + 20
        while True:
            try:
                http.client.HTTPConnection("127.0.0.1", self.port, timeout=1).connect()
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
            else:
                return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(20)


class Desk:
    def __init__(self, folder: Path, server: Server, bare: BareServer):
        self.folder = folder
        self.server = server
        self.bare = bare
        self.home = folder / "home"
        (self.home / ".openpai").mkdir(parents=True)
        entry = f"cluster_alias: b\n  pai_uri: {server.url}\n  user: {server.user}\n  token: {server.token}\n"
        (self.home / ".openpai/clusters.yaml").write_text("- " + entry)
        self.there = f"/user/{server.user}"
        self.big = folder / "big"
        with self.big.open("wb") as f:
            block = os.urandom(1 << 20)
            for _ in range(SIZE >> 20):
                f.write(block)
        self.trees, self.last = 0, ""
        self.tree = folder / "tree"
        for i in range(COUNT):
            if i % 100 == 0:
                (self.tree / f"d{i // 100:03}").mkdir(parents=True)
            (self.tree / f"d{i // 100:03}" / f"f{i:05}").write_bytes(os.urandom(4096))
        self.kernel = self.storage(over_http=False)
        self.http = self.storage(over_http=True)
        self.kernel.upload(str(self.big), f"{self.there}/big")

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
            speed("1 GiB up, same machine / cp", up, cp, 0.8),
            speed("1 GiB down, same machine / cp", down, cp, 0.8),
        ]

    def up_over_http(self) -> list[Row]:
        """The last is what two processes, a socket and a disk can do here at all: no HTTP and no hashes."""
        ours, bare, hdfs, raw = in_turn(lambda: self.upload(self.http), self.bare_up, self.hdfs_up, self.raw)
        return [
            speed("1 GiB up over HTTP, verified / a bare route", ours, bare, 0.8),
            speed("1 GiB up over HTTP / hdfscli", ours, hdfs, 2),
            speed("1 GiB up over HTTP / sendfile, a socket, recv and write", ours, raw, 0.7),
        ]

    def down_over_http(self) -> list[Row]:
        ours, bare, hdfs, raw = in_turn(
            lambda: self.download(self.http), self.bare_down, self.hdfs_down, self.raw
        )
        return [
            speed("1 GiB down over HTTP, verified / a bare file response", ours, bare, 0.8),
            speed("1 GiB down over HTTP / hdfscli", ours, hdfs, 2),
            speed("1 GiB down over HTTP / sendfile, a socket, recv and write", ours, raw, 0.7),
        ]

    def raw(self) -> float:
        target = self.folder / "raw"

        def move() -> None:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                where = str(listener.getsockname()[1])
                child = subprocess.Popen([sys.executable, "-c", RAW, str(target), where])
                line, _ = listener.accept()
                with line, self.big.open("rb") as f:
                    line.sendfile(f)
                if child.wait(120):
                    raise RuntimeError("the other end failed")

        return self.timed_large(move, target)

    def upload(self, storage: Storage) -> float:
        taken = self.timed_large(lambda: storage.upload(str(self.big), f"{self.there}/up"))
        storage.delete(f"{self.there}/up")
        return taken

    def download(self, storage: Storage) -> float:
        target = self.folder / "down"
        return self.timed_large(lambda: storage.download(f"{self.there}/big", str(target)), target)

    def cp(self) -> float:
        target = self.folder / "cp"
        return self.timed_large(lambda: call("cp", str(self.big), str(target)), target)

    def bare_up(self) -> float:
        url = f"http://127.0.0.1:{self.bare.port}/up"
        return self.timed_large(
            lambda: call("curl", "-sf", "-H", "Expect:", "-T", str(self.big), url), self.folder / "bare"
        )

    def bare_down(self) -> float:
        url = f"http://127.0.0.1:{self.bare.port}/down"
        target = self.folder / "baredown"
        return self.timed_large(lambda: call("curl", "-sf", "-o", str(target), url), target)

    def hdfs_up(self) -> float:
        client = self.hdfs()
        taken = self.timed_large(lambda: client.upload(f"{self.there}/hup", str(self.big)))
        client.delete(f"{self.there}/hup")
        return taken

    def hdfs_down(self) -> float:
        client, target = self.hdfs(), self.folder / "hdown"
        return self.timed_large(lambda: client.download(f"{self.there}/big", str(target)), target)

    def hdfs(self):  # type: ignore[no-untyped-def]
        import requests
        from hdfs import Client

        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {self.server.token}"
        return Client(self.server.url, session=session)

    # -- many small ones -----------------------------------------------------------------------

    def many_files(self) -> list[Row]:
        self.hdfs().makedirs(f"{self.there}/h")
        some = self.folder / "some"
        for i in range(SOME // 100):
            shutil.copytree(self.tree / f"d{i:03}", some / f"d{i:03}")
        up, hdfs, cp = in_turn(self.tree_up, lambda: self.hdfs_some(some), self.cp_tree)
        return [
            speed("10 000 files of 4 KiB over HTTP / hdfscli", up, hdfs, 20),
            speed("10 000 files of 4 KiB over HTTP / cp -r", up, cp, 0.25),
        ]

    def unchanged(self) -> list[Row]:
        self.tree_up()
        again, walk = in_turn(lambda: self.pai("sync", "--http", "tree", self.last), self.walk)
        return [times("10 000 unchanged files again / a walk and python -c pass", again, walk, 5)]

    @property
    def url(self) -> str:
        return f"pai://b/0{self.there}"

    def tree_up(self) -> float:
        """To a new place each time: for a minute after thousands of files were deleted, ext4 makes new ones
        at a third of its speed."""
        self.trees += 1
        self.last = f"{self.url}/tree{self.trees}"
        return self.pai("copy", "--http", "tree", self.last)

    def cp_tree(self) -> float:
        self.trees += 1
        return self.timed(lambda: call("cp", "-r", str(self.tree), str(self.folder / f"cp{self.trees}")))

    def hdfs_some(self, some: Path) -> float:
        self.trees += 1
        target = f"{self.there}/h/some{self.trees}"
        return self.timed(lambda: self.hdfs().upload(target, str(some))) / SOME * COUNT

    def pai(self, *words: str) -> float:
        environment = {**os.environ, "HOME": str(self.home)}
        return self.timed(lambda: call(str(BIN / "pai"), *words, cwd=self.folder, env=environment))

    def walk(self) -> float:
        def look() -> None:
            call(sys.executable, "-c", "pass")
            todo = [str(self.tree)]
            while todo:
                with os.scandir(todo.pop()) as found:
                    for item in found:
                        if item.is_dir():
                            todo.append(item.path)
                        else:
                            item.stat()

        return self.timed(look)

    # -- reading here and there ----------------------------------------------------------------

    def random_reads(self) -> list[Row]:
        import fsspec

        os.environ["HOME"], before = str(self.home), os.environ["HOME"]
        try:
            fs = fsspec.filesystem("pai", http=True, skip_instance_cache=True)
            dice = random.Random(1)
            places = [dice.randrange(SIZE - PIECE) for _ in range(READS)]
            where = urlsplit(self.server.url)
            bare = http.client.HTTPConnection(where.hostname or "", where.port)

            def ours() -> None:
                with fs.open(f"{self.url}/big") as f:
                    for at in places:
                        f.seek(at)
                        assert len(f.read(PIECE)) == PIECE

            def reference() -> None:
                for at in places:
                    path = f"/webhdfs/v1{self.there}/big?op=OPEN&noredirect=false&offset={at}&length={PIECE}"
                    headers = {"Authorization": f"Bearer {self.server.token}"}
                    bare.request("GET", path, headers=headers)
                    answer = bare.getresponse()
                    data = answer.read()
                    if answer.status in (307, 300):
                        bare.request(
                            "GET", "/" + answer.headers["Location"].split("/", 3)[3], headers=headers
                        )
                        data = bare.getresponse().read()
                    assert len(data) == PIECE

            a, b = in_turn(lambda: self.timed(ours), lambda: self.timed(reference))
        finally:
            os.environ["HOME"] = before
        return [speed(f"{READS} random reads of 64 KiB over pai:// / a bare ranged GET", a, b, 0.7)]

    def memory(self) -> list[Row]:
        self.tree_up()
        self.pai("sync", "--http", "tree", self.last)
        self.pai("copy", "--http", f"{self.url}/big", "down")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        return [limit_row("memory of any pai above", [peak], at_most=100, show=lambda mb: f"{mb:.0f} MB")]

    def timed(self, action: Callable[[], object], made: Path | None = None) -> float:
        """What it ``made`` is removed at once: bytes that are gone need not go to the disk before a run."""
        os.sync()
        began = time.perf_counter()
        action()
        taken = time.perf_counter() - began
        if made is not None:
            made.unlink()
        return taken

    def timed_large(self, action: Callable[[], object], made: Path | None = None) -> float:
        """A virtual machine's host takes free memory back, and is slow to give it again: whether a GiB finds
        some that is still there would decide more than who brings it. So more than that is used and freed
        before each run, whoever runs.
        """
        with (self.folder / "memory").open("wb") as f:
            for _ in range(SIZE * 7 // 5 >> 20):
                f.write(bytes(1 << 20))
        (self.folder / "memory").unlink()
        return self.timed(action, made)


GROUPS: dict[str, Callable[[Desk], list[Row]]] = {
    "same-machine": Desk.same_machine,
    "up-over-http": Desk.up_over_http,
    "down-over-http": Desk.down_over_http,
    "many-files": Desk.many_files,
    "unchanged": Desk.unchanged,
    "random-reads": Desk.random_reads,
    "memory": Desk.memory,
}


def in_turn(*contestants: Callable[[], float]) -> list[list[float]]:
    """The faster half of the runs of each. Who begins changes, for each leaves the machine to the next."""
    seconds: list[list[float]] = [[] for _ in contestants]
    for number in range(RUNS + 1):
        all_of_them = list(zip(seconds, contestants, strict=True))
        first = number % len(contestants)
        for taken, run in all_of_them[first:] + all_of_them[:first]:
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
