"""Packs of many files are written by processes: the same bytes, and nothing is left of an interrupted one."""

import json
import os
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from openpaisdk.data import open_pack
from openpaisdk.data.file_list import FileList
from openpaisdk.data.packer import PackOperation
from openpaisdk.data.shard_packer import ShardPacker
from openpaisdk.data.shard_process import ShardProcess
from openpaisdk.storage.transfer.executor import TransferProgress
from paiprotocol.errors import PaiError
from support.packed_data import contents, make_files, pack, packing
from support.paths import REPOSITORY

LARGE_BYTES = 4 << 30
PACK_UNTIL_KILLED = """
import sys, time
from pathlib import Path
from support.packed_data import packing
source, target = map(Path, sys.argv[1:])
operation = packing(source, target, first_files=1)
pids = [process.pid for process in operation._processes]
def report_when_writing(progress):
    if progress.bytes > 1 << 20 and any("pai-part" in path.name for path in target.iterdir()):
        print(*pids, flush=True)
        time.sleep(600)
operation.run(report_when_writing)
"""


PACK_WITH_OWN_PATH = """
import json, sys
sys.path += json.loads(sys.argv[1])
from pathlib import Path
from support.packed_data import packing
operation = packing(*map(Path, sys.argv[2:]), first_files=1)
assert len(operation._processes) == 2
operation.run()
"""


@pytest.fixture(name="source")
def source_fixture(tmp_path: Path) -> Path:
    return make_files(tmp_path / "source")


def packing_by_processes(source: Path, target: Path, *values, **options) -> PackOperation:
    """A folder of few files is packed as one of many is."""
    operation = packing(source, target, *values, first_files=1, **options)
    assert len(operation._processes) == 2
    return operation


def add_large_file(source: Path) -> None:
    """Its shard takes longer to write than a test takes to interrupt it."""
    with (source / "large").open("wb") as file:
        file.truncate(LARGE_BYTES)


def partial_files(target: Path) -> list[str]:
    return [path.name for path in target.iterdir() if "pai-part" in path.name]


def check_nothing_is_left(target: Path) -> None:
    assert not partial_files(target)
    assert not (target / "pack.json").exists()
    assert all(path.stat().st_size < LARGE_BYTES for path in target.iterdir())


@pytest.mark.parametrize("kind", [("tar", "none"), ("har", "none"), ("sequencefile", "block-deflate")])
def test_same_bytes_as_without_processes(source: Path, tmp_path: Path, kind) -> None:
    operation = packing_by_processes(source, tmp_path / "pack", kind)
    manifest = operation.run()
    assert len(manifest.shards) > 2 and operation.progress.files == manifest.records
    pack(source, tmp_path / "other", kind, jobs=1)
    assert contents(tmp_path / "pack") == contents(tmp_path / "other")
    assert dict(open_pack(tmp_path / "pack")) == contents(source)


def test_file_that_changes_meanwhile_is_an_error(source: Path, tmp_path: Path) -> None:
    operation = packing_by_processes(source, tmp_path / "pack")
    while not operation.files.is_complete:
        time.sleep(0.01)
    (source / "class1" / "sample001.bin").write_bytes(b"longer than it was when it was listed" * 10)
    with pytest.raises(PaiError, match=r"sample001\.bin changed while it was packed") as caught:
        operation.run()
    assert caught.value.code == "ChangedFileError" and "run the same pai pack again" in caught.value.hint
    check_nothing_is_left(tmp_path / "pack")


def test_killed_process_is_one_sentence_and_the_run_is_resumed(source: Path, tmp_path: Path) -> None:
    operation = packing_by_processes(source, tmp_path / "pack")
    for process in operation._processes:
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(PaiError, match=r"A process that packs files was killed by signal 9\.") as caught:
        operation.run()
    assert "run the same command again to resume" in caught.value.hint
    check_nothing_is_left(tmp_path / "pack")
    packing_by_processes(source, tmp_path / "pack").run()
    assert dict(open_pack(tmp_path / "pack")) == contents(source)


def test_process_that_cannot_start_is_an_error_with_a_way_out(
    source: Path, tmp_path: Path, monkeypatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        operation = packing_by_processes(source, tmp_path / "pack")
    with pytest.raises(PaiError, match=r"A process that packs files ended with status 1\.") as caught:
        operation.run()
    assert "pai pack --jobs 1" in caught.value.hint
    pack(source, tmp_path / "pack", jobs=1)
    assert dict(open_pack(tmp_path / "pack")) == contents(source)


def test_interrupted_run_leaves_no_partial_files(source: Path, tmp_path: Path) -> None:
    add_large_file(source)
    operation = packing_by_processes(source, tmp_path / "pack", shard_bytes=2_000)
    pids = [process.pid for process in operation._processes]

    def interrupt(progress: TransferProgress) -> None:
        if progress.bytes > 1 << 20 and partial_files(tmp_path / "pack"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        operation.run(interrupt)
    check_nothing_is_left(tmp_path / "pack")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_processes_end_with_the_one_that_started_them(source: Path, tmp_path: Path) -> None:
    add_large_file(source)
    command = [sys.executable, "-c", PACK_UNTIL_KILLED, source, tmp_path / "pack"]
    tests = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(tests)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as packer:
        assert packer.stdout is not None
        pids = packer.stdout.readline().split()
        packer.kill()
    assert len(pids) == 2
    deadline = time.monotonic() + 60
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    check_nothing_is_left(tmp_path / "pack")


def test_processes_import_from_where_the_packing_process_does(source: Path, tmp_path: Path) -> None:
    """A program may find openpaisdk only by a path that it added itself."""
    venv.create(tmp_path / "empty", symlinks=True)
    paths = [str(REPOSITORY / "src"), str(REPOSITORY / "tests"), *filter(None, sys.path)]
    command = [tmp_path / "empty" / "bin" / "python", "-c", PACK_WITH_OWN_PATH, json.dumps(paths)]
    done = subprocess.run(
        [*command, source, tmp_path / "pack"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert dict(open_pack(tmp_path / "pack")) == contents(source)


def started_pids(monkeypatch) -> list[int]:
    """The processes that are started from now on."""
    pids: list[int] = []
    start = ShardProcess.__init__

    def record(self: ShardProcess, packer: ShardPacker) -> None:
        start(self, packer)
        pids.append(self.pid)

    monkeypatch.setattr(ShardProcess, "__init__", record)
    return pids


def test_processes_that_are_not_needed_are_ended(source: Path, tmp_path: Path, monkeypatch) -> None:
    """They are started before it is known how many files there are."""
    pids = started_pids(monkeypatch)
    operation = packing(source, tmp_path / "pack", early_files=1, first_files=1000)
    assert len(pids) == 2 and not any(map(is_running, pids))
    operation.run()
    assert dict(open_pack(tmp_path / "pack")) == contents(source)


def test_error_of_the_listing_ends_the_processes(source: Path, tmp_path: Path, monkeypatch) -> None:
    pids = started_pids(monkeypatch)
    list_first = FileList.list_first

    def fail_late(self: FileList, count: int) -> None:
        list_first(self, count)
        if count > 1:
            raise PaiError("A folder cannot be read.")

    monkeypatch.setattr(FileList, "list_first", fail_late)
    with pytest.raises(PaiError, match="cannot be read"):
        packing(source, tmp_path / "pack", early_files=1, first_files=1000)
    assert len(pids) == 2 and not any(map(is_running, pids))


def is_running(pid: str | int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
