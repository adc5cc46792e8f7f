"""A large file to S3 and back, against s3fs; on a SeaweedFS of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from bench.table import Row, alternate, ratio_row, sized, skipped_row

_TESTS = Path(__file__).parents[1] / "tests"
SIZE = sized(1 << 30, 20 << 20)
_S3FS = "import sys, s3fs; getattr(s3fs.S3FileSystem(), sys.argv[1])(sys.argv[2], sys.argv[3])"
HOW = "cloud: both sides are whole commands, with their imports and connections, against one SeaweedFS."


def rows() -> list[Row]:
    if find_spec("s3fs") is None:
        return [skipped_row("cloud", "s3fs is missing")]
    sys.path.insert(0, str(_TESTS))
    from support.cloud_servers import seaweedfs

    with tempfile.TemporaryDirectory(prefix="pai-bench-") as name:
        folder = Path(name)
        for each in ("server", "home"):
            (folder / each).mkdir()
        with seaweedfs(folder / "server") as server:
            environment = {**os.environ, **server.env, "HOME": str(folder / "home")}
            return [upload(folder, server.url, environment), download(folder, server.url, environment)]


def upload(folder: Path, url: str, environment: dict[str, str]) -> Row:
    large = folder / "large"
    with large.open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
    numbers = iter(range(1000))

    def ours() -> float:
        return _speed(["pai", "copy", str(large), f"{url}/ours-{next(numbers)}"], environment)

    def reference() -> float:
        target = f"{url}/theirs-{next(numbers)}"
        return _speed([sys.executable, "-c", _S3FS, "put", str(large), target], environment)

    speeds = alternate(ours, reference, 5)
    return ratio_row(f"{SIZE >> 20} MiB to S3 / s3fs.put", *speeds, at_least=1, show=_megabytes_per_s)


def download(folder: Path, url: str, environment: dict[str, str]) -> Row:
    back = folder / "back"

    def ours() -> float:
        back.unlink(missing_ok=True)
        return _speed(["pai", "copy", f"{url}/ours-0", str(back)], environment)

    def reference() -> float:
        back.unlink(missing_ok=True)
        return _speed([sys.executable, "-c", _S3FS, "get", f"{url}/ours-0", str(back)], environment)

    speeds = alternate(ours, reference, 5)
    return ratio_row(f"{SIZE >> 20} MiB from S3 / s3fs.get", *speeds, at_least=1, show=_megabytes_per_s)


def _speed(command: list[str], environment: dict[str, str]) -> float:
    program = str(Path(sys.executable).parent / command[0]) if command[0] == "pai" else command[0]
    began = time.perf_counter()
    subprocess.run([program, *command[1:]], env=environment, check=True, capture_output=True)
    return SIZE / (time.perf_counter() - began)


def _megabytes_per_s(value: float) -> str:
    return f"{value / 1e6:.0f} MB/s"
