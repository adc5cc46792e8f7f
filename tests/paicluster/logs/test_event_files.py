"""Scalars of TensorBoard's event files: real, truncated and hostile files, both forms of values, limits."""

from __future__ import annotations

import io
import os
import random
import signal
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paicluster.logs import event_file_worker
from paicluster.logs.event_file_worker import EventMetrics, event_files_size, read_events
from paicluster.logs.event_files import Scalar, read_scalars
from support.event_files import event, field, record, simple, tensor, varint
from support.server_fixture import DEADLINE_S


def scalars(data: bytes) -> list[Scalar]:
    return list(read_scalars(io.BytesIO(data), len(data)))


def outputs(folder: Path) -> Path:
    made = folder / "work/.pai/output"
    made.mkdir(parents=True)
    return made


def worker_command(
    folder: Path, cpu_s: int = event_file_worker.MAX_CPU_S, wall_s: int = event_file_worker.MAX_WALL_S
) -> list[str]:
    return [sys.executable, "-m", event_file_worker.__name__, str(folder), "1000", str(cpu_s), str(wall_s)]


def in_worker(folder: Path, cpu_s: int = event_file_worker.MAX_CPU_S) -> subprocess.CompletedProcess[bytes]:
    command = worker_command(folder, cpu_s)
    return subprocess.run(command, input=b"[]", capture_output=True, check=False, timeout=120)


def test_values_in_both_forms() -> None:
    data = record(field(1, 1.0) + field(3, b"brain.Event:2"))
    data += event(1, simple("loss", 0.5), simple("rate", 2), time=5.5)
    forms = [
        tensor("float", field(1, 1), field(4, struct.pack("<f", 1.5))),
        tensor("packed", field(1, 1), field(5, struct.pack("<f", 2.5))),
        tensor("plain", field(1, 1), varint(5 << 3 | 5) + struct.pack("<f", 3.5)),
        tensor("double", field(1, 2), field(6, struct.pack("<d", 4.5))),
        tensor("int", field(1, 3), field(7, -3)),
        tensor("long", field(1, 9), field(10, varint(1 << 40))),
        tensor("half", field(1, 19), field(4, struct.pack("<e", 0.25))),
    ]
    data += event(-2, *forms)
    found = scalars(data)
    assert found[:2] == [Scalar("loss", 1, 5.5, 0.5), Scalar("rate", 1, 5.5, 2)]
    values = {one.tag: one.value for one in found[2:]}
    assert values == {
        "float": 1.5, "packed": 2.5, "plain": 3.5, "double": 4.5, "int": -3, "long": 1 << 40, "half": 0.25,
    }  # fmt: skip
    assert {one.step for one in found[2:]} == {-2}


def test_what_is_no_scalar_is_left_out() -> None:
    text = tensor("text", field(1, 7), field(8, b"words"))
    many = tensor("histogram", field(1, 1), field(4, struct.pack("<3f", 1, 2, 3)))
    image = field(1, b"image") + field(4, b"\x89PNG")
    assert scalars(event(1, text, many, image, simple("", 1), simple("loss", 1))) == [
        Scalar("loss", 1, 1.8e9, 1)
    ]


def test_a_truncated_file_has_what_is_before() -> None:
    data = event(1, simple("loss", 1)) + event(2, simple("loss", 2))
    for end in range(len(data)):
        assert [one.step for one in scalars(data[:end])] == ([1] if end >= len(data) // 2 else [])


def test_long_records_are_passed_by() -> None:
    image = record(field(5, field(1, b"x" * (2 << 20))))
    assert [one.step for one in scalars(image + event(3, simple("loss", 1)))] == [3]


@given(st.binary(max_size=200), st.randoms(use_true_random=False))
def test_any_bytes_end(noise: bytes, generator: random.Random) -> None:
    scalars(noise)
    scalars(record(noise) + event(1, simple("a", 1)))
    data = bytearray(event(1, simple("loss", 1), tensor("t", field(1, 1), field(4, b"1234"))) * 3)
    for _ in range(5):
        data[generator.randrange(len(data))] = generator.randrange(256)
    scalars(bytes(data))


def test_files_that_tensorboard_writes(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary import Writer
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder = outputs(tmp_path)
    writer = Writer(str(folder / "runs/train"))
    for step in range(300):
        writer.add_scalar("loss", 1 / (step + 1), step)
    writer.close()
    old = EventFileWriter(str(folder))
    value = Summary.Value(tag="accuracy", simple_value=0.5)
    old.add_event(Event(wall_time=9.0, step=7, summary=Summary(value=[value])))
    old.close()
    found = {one.name: one for one in read_events(tmp_path, 1000).series}
    loss, accuracy = found["tensorboard/runs/train/loss"], found["tensorboard/accuracy"]
    assert (loss.count, loss.last_step, loss.max, loss.max_step) == (300, 299, 1.0, 0)
    assert loss.steps == list(range(300))
    assert (accuracy.values, accuracy.times, accuracy.last_step) == ([0.5], [9.0], 7)
    done = in_worker(tmp_path)
    assert done.returncode == 0, done.stderr
    assert msgspec.json.decode(done.stdout, type=EventMetrics) == read_events(tmp_path, 1000)


def test_long_series_are_thinned(tmp_path: Path) -> None:
    data = b"".join(event(step, simple("loss", -5 if step == 777 else step % 7)) for step in range(20_000))
    (outputs(tmp_path) / "events.out.tfevents.1").write_bytes(data)
    (loss,) = read_events(tmp_path, 500).series
    assert (loss.count, loss.min, loss.min_step, loss.steps[-1]) == (20_000, -5, 777, 19_999)
    assert len(loss.steps) <= 500 and 777 in loss.steps


def test_links_pipes_and_other_files_are_not_read(tmp_path: Path) -> None:
    folder = outputs(tmp_path)
    secret = tmp_path / "secret.tfevents"
    secret.write_bytes(event(1, simple("secret", 1)))
    (folder / "link.tfevents").symlink_to(secret)
    os.link(secret, folder / "hard.tfevents")
    os.mkfifo(folder / "pipe.tfevents")
    (folder / "far").symlink_to(tmp_path)
    (folder / "model.pt").write_bytes(event(1, simple("model", 1)))
    assert event_files_size(tmp_path) == 0
    assert read_events(tmp_path, 100).series == []
    (tmp_path / "other/work/.pai").mkdir(parents=True)
    (tmp_path / "other/work/.pai/output").symlink_to(folder)
    (folder / "own.tfevents").write_bytes(event(1, simple("own", 1)))
    assert event_files_size(tmp_path / "other") == 0
    assert [one.name for one in read_events(tmp_path, 100).series] == ["tensorboard/own"]


@pytest.mark.slow
def test_a_file_that_takes_long_ends_the_worker(tmp_path: Path) -> None:
    data = b"".join(event(step, *(simple(f"m{at}", 1) for at in range(900))) for step in range(20))
    with (outputs(tmp_path) / "events.out.tfevents.1").open("wb") as file:
        for _ in range(100):
            file.write(data)
    done = in_worker(tmp_path, cpu_s=1)
    assert done.returncode != 0 and done.stdout == b""


def test_a_worker_that_only_waits_is_ended(tmp_path: Path) -> None:
    """Its input stays open: the server is gone, and another process has the pipe."""
    worker = subprocess.Popen(worker_command(tmp_path, wall_s=1), stdin=subprocess.PIPE)
    try:
        assert worker.wait(DEADLINE_S) == -signal.SIGALRM
    finally:
        worker.kill()
        worker.communicate()


def test_files_and_names_are_bounded(tmp_path: Path) -> None:
    folder = outputs(tmp_path)
    for number in range(6):
        data = event(1, *(simple(f"{number}-{at}", 1) for at in range(2)))
        (folder / f"{number}.tfevents").write_bytes(data)
    assert len(read_events(tmp_path, 100, max_files=3, max_names=5).series) == 5
    assert event_files_size(tmp_path, max_files=3) == 3 * len(data)


def test_entries_of_folders_are_bounded(tmp_path: Path) -> None:
    folder = outputs(tmp_path)
    data = event(1, simple("loss", 1))
    for number in range(300):
        (folder / f"{number:03}").mkdir()
        (folder / f"{number:03}/events.tfevents").write_bytes(data)
    # 300 folders, and of 20 of them their file.
    assert event_files_size(tmp_path, max_files=1000, max_entries=320) == 20 * len(data)
    assert event_files_size(tmp_path, max_files=1000) == 300 * len(data)
    # Not even the folders.
    assert event_files_size(tmp_path, max_entries=250) == 0


def test_folders_that_are_too_deep_are_not_read(tmp_path: Path) -> None:
    folder = outputs(tmp_path)
    for depth in range(event_file_worker.MAX_DEPTH + 2):
        (folder / f"{depth}.tfevents").write_bytes(event(1, simple("loss", depth)))
        folder /= "inner"
        folder.mkdir()
    names = [one.name for one in read_events(tmp_path, 100).series]
    assert names == [
        f"tensorboard/{'inner/' * depth}loss" for depth in range(event_file_worker.MAX_DEPTH + 1)
    ]


def test_one_file_is_open_at_a_time(tmp_path: Path) -> None:
    folder = outputs(tmp_path)
    for number in range(50):
        (folder / f"{number}.tfevents").write_bytes(event(1, simple("loss", number)))
    before = len(os.listdir("/proc/self/fd"))
    most = 0
    for file in event_file_worker.event_files(tmp_path):
        most = max(most, len(os.listdir("/proc/self/fd")) - before)
        os.close(file.fd)
    # It, and its folder.
    assert most == 2
    assert len(os.listdir("/proc/self/fd")) == before
