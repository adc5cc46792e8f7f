"""A large file to S3 and back, against s3fs and the aws command; on a SeaweedFS of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bench.table import Row, alternate, ratio_row, sized, skipped_row

_TESTS = Path(__file__).parents[1] / "tests"
SIZE = sized(1 << 30, 20 << 20)
# Room for all the uploads: space of objects that were deleted is not free at once.
VOLUMES = 100
_S3FS = "import sys, s3fs; getattr(s3fs.S3FileSystem(), sys.argv[1])(sys.argv[2], sys.argv[3])"
HOW = "cloud: both sides are whole commands, with their imports and connections, against one SeaweedFS."


def rows() -> list[Row]:
    if find_spec("s3fs") is None:
        return [skipped_row("cloud", "s3fs is missing")]
    sys.path.insert(0, str(_TESTS))
    from support.cloud_servers import seaweedfs
    from support.third_party_clients import aws_command

    with tempfile.TemporaryDirectory(prefix="pai-bench-") as name:
        folder = Path(name)
        for each in ("server", "home"):
            (folder / each).mkdir()
        with seaweedfs(folder / "server", VOLUMES) as server:
            machine = Machine(
                server.url, {**os.environ, **server.env, "HOME": str(folder / "home")}, aws_command()
            )
            return [*uploads(folder, machine), *downloads(folder, machine)]


@dataclass
class Machine:
    """The bucket, and the environment and the folder of the aws command that reach it."""

    url: str
    environment: dict[str, str]
    aws: Path

    def pai(self, *words: str) -> float:
        return self._speed([str(Path(sys.executable).parent / "pai"), *words])

    def s3fs(self, method: str, source: str, target: str) -> float:
        return self._speed([sys.executable, "-c", _S3FS, method, source, target])

    def aws_cp(self, source: str, target: str) -> float:
        command = [sys.executable, "-m", "awscli", "s3", "cp", "--only-show-errors", source, target]
        return self._speed(command, PYTHONPATH=str(self.aws))

    def _speed(self, command: list[str], **more: str) -> float:
        began = time.perf_counter()
        subprocess.run(command, env={**self.environment, **more}, check=True, capture_output=True)
        return SIZE / (time.perf_counter() - began)


def uploads(folder: Path, machine: Machine) -> list[Row]:
    large = folder / "large"
    with large.open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
    numbers = iter(range(1000))

    def target(name: str) -> str:
        return f"{machine.url}/{name}-{next(numbers)}"

    return _rows(
        f"{SIZE >> 20} MiB to S3",
        lambda: machine.pai("copy", str(large), target("ours")),
        {
            "s3fs.put": lambda: machine.s3fs("put", str(large), target("s3fs")),
            "aws s3 cp": lambda: machine.aws_cp(str(large), target("aws")),
        },
    )


def downloads(folder: Path, machine: Machine) -> list[Row]:
    source, back = f"{machine.url}/ours-0", folder / "back"

    def fresh() -> str:
        back.unlink(missing_ok=True)
        return str(back)

    return _rows(
        f"{SIZE >> 20} MiB from S3",
        lambda: machine.pai("copy", source, fresh()),
        {
            "s3fs.get": lambda: machine.s3fs("get", source, fresh()),
            "aws s3 cp": lambda: machine.aws_cp(source, fresh()),
        },
    )


def _rows(what: str, ours: Callable[[], float], references: dict[str, Callable[[], float]]) -> list[Row]:
    rows = []
    for name, reference in references.items():
        speeds = alternate(ours, reference, 5)
        rows.append(ratio_row(f"{what} / {name}", *speeds, at_least=1, show=_megabytes_per_s))
    return rows


def _megabytes_per_s(value: float) -> str:
    return f"{value / 1e6:.0f} MB/s"
