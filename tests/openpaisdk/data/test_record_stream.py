"""Data sets for training: every record once per epoch, in an order that can be repeated and resumed."""

import multiprocessing
import os
import pickle
import shutil
import threading
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import pytest

from openpaisdk.data import Records, RecordStream, open_pack
from openpaisdk.data.errors import DamagedShard
from openpaisdk.data.pack_reader import Pack
from openpaisdk.data.record_cache import RecordCache
from openpaisdk.storage.backends.local import LocalSource
from paiprotocol.errors import PaiError, UsageError
from support.packed_data import contents, make_files, pack

COUNT = 500


@pytest.fixture(scope="module", name="packed")
def packed_fixture(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    (folder / "source").mkdir()
    for i in range(COUNT):
        (folder / "source" / f"{i:05}.txt").write_text(f"record {i}")
    pack(folder / "source", folder / "pack", shard_bytes=100_000)
    return folder / "pack"


def keys(stream) -> list[str]:
    return [key for key, _ in stream]


def all_keys() -> list[str]:
    return [f"{i:05}.txt" for i in range(COUNT)]


def test_without_shuffle_records_come_in_order(packed: Path) -> None:
    stream = RecordStream(packed)
    assert list(stream) == [(f"{i:05}.txt", f"record {i}".encode()) for i in range(COUNT)]
    assert len(stream) == COUNT


def test_shuffled_epochs_differ_and_can_be_repeated(packed: Path) -> None:
    stream = RecordStream(packed, shuffle=True, seed=3)
    first = keys(stream)
    assert sorted(first) == all_keys() and first != all_keys()
    assert keys(stream) == first == keys(RecordStream(packed, shuffle=True, seed=3))
    stream.set_epoch(1)
    second = keys(stream)
    assert sorted(second) == all_keys() and second != first
    assert keys(RecordStream(packed, shuffle=True, seed=4)) != first
    # Neighbours in the pack are not neighbours in the epoch.
    numbers = [int(key[:5]) for key in first]
    assert sum(abs(a - b) == 1 for a, b in pairwise(numbers)) < COUNT / 10


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_ranks_share_the_records_without_overlap_or_loss(packed: Path, ranks: int, shuffle: bool) -> None:
    parts = [
        keys(RecordStream(packed, shuffle=shuffle, rank=rank, world_size=ranks)) for rank in range(ranks)
    ]
    assert Counter(key for part in parts for key in part) == Counter(all_keys())
    assert max(map(len, parts)) - min(map(len, parts)) < COUNT / ranks / 4


def test_even_gives_every_rank_the_same_number(packed: Path) -> None:
    streams = [RecordStream(packed, shuffle=True, even=True, rank=rank, world_size=3) for rank in range(3)]
    parts = [keys(stream) for stream in streams]
    assert len({len(part) for part in parts}) == 1 and len(parts[0]) == len(streams[0])
    assert max(Counter(key for part in parts for key in part).values()) == 1


def test_rank_comes_from_the_environment(packed: Path, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert keys(RecordStream(packed)) == keys(RecordStream(packed, rank=1, world_size=2))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("seen", [0, 1, 137, COUNT - 1])
def test_epoch_is_resumed_from_a_state(packed: Path, seen: int, shuffle: bool) -> None:
    whole = keys(RecordStream(packed, shuffle=shuffle, seed=5, epoch=2))
    stream = RecordStream(packed, shuffle=shuffle, seed=5, epoch=2)
    begun = [key for key, _ in islice(stream, seen)]
    resumed = RecordStream(packed, shuffle=shuffle)
    resumed.load_state_dict(pickle.loads(pickle.dumps(stream.state_dict())))
    assert begun + keys(resumed) == whole
    assert keys(resumed) == whole  # the next iteration begins at the first record


def test_stream_pickled_by_version_0_5_is_read(packed: Path) -> None:
    state = RecordStream(packed).__getstate__()
    state["_left"] = state.pop("_remaining")
    stream = RecordStream.__new__(RecordStream)
    stream.__setstate__(state)
    assert stream.state_dict()["records"] == COUNT and keys(stream) == all_keys()


def test_state_of_another_data_set_or_share_is_refused(packed: Path) -> None:
    stream = RecordStream(packed)
    with pytest.raises(UsageError, match="a data set with 7 records; this one has 500"):
        stream.load_state_dict({**stream.state_dict(), "records": 7})
    with pytest.raises(UsageError, match="2 reading processes; now there are 1"):
        stream.load_state_dict(RecordStream(packed, rank=0, world_size=2).state_dict())


def test_wrong_rank_is_refused(packed: Path) -> None:
    with pytest.raises(UsageError, match="rank 2 is not one of 2 ranks"):
        RecordStream(packed, rank=2, world_size=2)
    with pytest.raises(UsageError, match="given together"):
        RecordStream(packed, rank=2)


def test_decode_makes_the_items(packed: Path) -> None:
    stream = RecordStream(packed, decode=lambda key, content: (int(key[:5]), len(content)))
    assert next(iter(stream)) == (0, len("record 0"))
    records = Records(packed, decode=lambda key, content: content.decode())
    assert records[3] == "record 3" and records[-1] == f"record {COUNT - 1}" and len(records) == COUNT
    assert records.__getitems__([4, 2, 2]) == ["record 4", "record 2", "record 2"]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("bad", [0, 7, COUNT - 1])
def test_state_after_an_error_of_decode_resumes_at_that_record(packed: Path, bad: int, shuffle: bool) -> None:
    whole = keys(RecordStream(packed, shuffle=shuffle, seed=5))

    def decode(key: str, content: bytes) -> str:
        if key == whole[bad]:
            raise ValueError(key)
        return key

    stream = RecordStream(packed, decode=decode, shuffle=shuffle, seed=5)
    begun = []
    with pytest.raises(ValueError, match=whole[bad]):
        begun.extend(stream)
    assert stream.state_dict()["position"] == len(begun) == bad
    resumed = RecordStream(packed, shuffle=shuffle)
    resumed.load_state_dict(stream.state_dict())
    assert begun + keys(resumed) == whole


def test_plain_folder_is_a_data_set(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / f"{i:02}.txt").write_text(str(i))
    assert [content for _, content in RecordStream(tmp_path)] == [str(i).encode() for i in range(20)]
    assert Records(tmp_path)[7] == ("07.txt", b"7")


@pytest.fixture(name="remote")
def remote_fixture(monkeypatch) -> None:
    """Files are read as those of a storage elsewhere: by threads, not by the kernel in the background."""
    monkeypatch.setattr(LocalSource, "fileno", lambda self: -1)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.usefixtures("remote")
def test_records_are_read_ahead_over_several_connections(packed: Path, monkeypatch, shuffle: bool) -> None:
    """The first four reads wait for each other: with fewer at a time the stream would stand still."""
    together = threading.Barrier(4, timeout=90)
    read_run = Pack.read_run
    begun = []

    def read(self, run):
        begun.append(run)
        if len(begun) <= 4:
            together.wait()
        return read_run(self, run)

    monkeypatch.setattr(Pack, "read_run", read)
    assert sorted(keys(RecordStream(packed, connections=4, shuffle=shuffle))) == all_keys()
    assert len(begun) > 4


@pytest.mark.usefixtures("remote")
def test_abandoned_iteration_leaves_no_threads(packed: Path) -> None:
    before = threading.active_count()
    iterator = iter(RecordStream(packed, shuffle=True))
    next(iterator)
    assert threading.active_count() > before
    iterator.close()
    assert threading.active_count() == before


def test_order_does_not_depend_on_where_the_pack_is(packed: Path, request) -> None:
    here = keys(RecordStream(packed, shuffle=True, seed=6))
    request.getfixturevalue("remote")
    assert keys(RecordStream(packed, shuffle=True, seed=6)) == here


def test_shard_that_becomes_shorter_during_an_epoch_is_an_error(packed: Path, tmp_path: Path) -> None:
    """What is missing must not be what an earlier read left in memory."""
    shutil.copytree(packed, tmp_path / "pack")
    stream = RecordStream(tmp_path / "pack")
    iterator = iter(stream)
    assert next(iterator)[0] == "00000.txt"
    shard = max((tmp_path / "pack").glob("*.tar"))
    os.truncate(shard, shard.stat().st_size // 2)
    with pytest.raises(DamagedShard, match=rf"{shard.name}"):
        list(iterator)
    assert stream.state_dict()["position"] < COUNT


@pytest.mark.parametrize("shuffle", [False, True])
def test_damaged_record_ends_an_epoch_with_its_name(packed: Path, tmp_path: Path, shuffle: bool) -> None:
    shutil.copytree(packed, tmp_path / "pack")
    shard = tmp_path / "pack" / open_pack(packed).names[0]
    data = shard.read_bytes()
    shard.write_bytes(data.replace(b"record 17\0", b"record 71\0"))
    stream = RecordStream(tmp_path / "pack", shuffle=shuffle)
    begun: list[str] = []
    with pytest.raises(DamagedShard, match=rf"{shard.name}, record 17 at byte {data.index(b'record 17')}: "):
        begun.extend(key for key, _ in stream)
    assert stream.state_dict()["position"] == len(begun)
    assert begun == keys(RecordStream(packed, shuffle=shuffle))[: len(begun)] and "00017.txt" not in begun


@pytest.mark.parametrize("kind", [("sequencefile", "block-deflate"), ("har", "none"), ("tfrecord", "none")])
def test_every_format_is_a_data_set(tmp_path: Path, kind) -> None:
    source = make_files(tmp_path / "source")
    pack(source, tmp_path / "pack", kind)
    expected = contents(source)
    assert dict(RecordStream(tmp_path / "pack", shuffle=True)) == expected
    assert list(RecordStream(tmp_path / "pack")) == list(open_pack(tmp_path / "pack"))


def _keys_of(records: Records, numbers: list[int], out) -> None:
    out.put([key for key, _ in records.__getitems__(numbers)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_open_records_work_in_other_processes(packed: Path, method: str) -> None:
    records = Records(packed)
    assert records[0][0] == "00000.txt"  # files and threads are open
    context = multiprocessing.get_context(method)
    out = context.Queue()
    process = context.Process(target=_keys_of, args=(records, [5, 6], out))
    process.start()
    assert out.get(timeout=60) == ["00005.txt", "00006.txt"]
    process.join(60)
    assert process.exitcode == 0


# -- cache ---------------------------------------------------------------------------------------


def test_cached_records_need_no_storage(packed: Path, tmp_path: Path, monkeypatch) -> None:
    stream = RecordStream(packed, shuffle=True, cache_folder=tmp_path / "cache")
    first = list(stream)
    monkeypatch.setattr("openpaisdk.data.pack_reader.Pack.read_run", lambda *_: pytest.fail("read again"))
    assert list(stream) == first


def test_damaged_cache_entries_are_read_again(packed: Path, tmp_path: Path) -> None:
    stream = RecordStream(packed, cache_folder=tmp_path / "cache")
    first = list(stream)
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    assert list(stream) == first


def test_records_never_get_the_keys_of_others(packed: Path, monkeypatch) -> None:
    read_run = Pack.read_run
    monkeypatch.setattr(Pack, "read_run", lambda self, run: read_run(self, run)[1:])
    with pytest.raises(PaiError, match=r"has 14 records at number 0, and not 15\."):
        list(RecordStream(packed))


def test_cache_stays_below_its_size(tmp_path: Path) -> None:
    cache = RecordCache(str(tmp_path), 100_000)
    for i in range(50):
        cache.put(str(i), b"x" * 10_000)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 100_000
    assert cache.get("49") == b"x" * 10_000 and cache.get("0") is None
    cache.put("large", b"x" * 200_000)
    assert cache.get("large") is None


def test_unwritable_cache_is_no_error(packed: Path, tmp_path: Path) -> None:
    cache = RecordCache(str(tmp_path / "cache"), 1000)
    (tmp_path / "cache").rmdir()
    cache.put("a", b"x")
    assert cache.get("a") is None
