"""Data sets under a real torch DataLoader: eight workers, forked and spawned, read every record once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.packed_data import pack
from support.third_party_clients import torch

pytestmark = [pytest.mark.slow, pytest.mark.service]

COUNT = 400
PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader
from openpaisdk.data import Records, RecordStream


def length(key, content):
    return int(key.partition(".")[0]), len(content)


def main():
    url, method = sys.argv[1:]
    options = dict(batch_size=7, num_workers=8, multiprocessing_context=method)
    for data in (RecordStream(url, shuffle=True, decode=length), Records(url, decode=length)):
        loader = DataLoader(data, shuffle=isinstance(data, Records), **options)
        seen = [pair for numbers, sizes in loader for pair in zip(numbers.tolist(), sizes.tolist())]
        assert sorted(seen) == [(i, i) for i in range(400)], len(seen)
        assert seen != sorted(seen)
        print(type(data).__name__, len(data))


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_every_record_once(tmp_path: Path, method: str) -> None:
    (tmp_path / "source").mkdir()
    for i in range(COUNT):
        (tmp_path / "source" / f"{i:04}.bin").write_bytes(bytes(i))
    pack(tmp_path / "source", tmp_path / "pack", shard_bytes=100_000)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py", str(tmp_path / "pack"), method],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(torch())},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"RecordStream {COUNT}", f"Records {COUNT}"]
