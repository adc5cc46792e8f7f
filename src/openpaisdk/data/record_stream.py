"""Data sets for training: ``RecordStream`` (iterable) and ``Records`` (map-style).

Both work with ``torch.utils.data.DataLoader`` and without torch, which is never imported here.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import lru_cache, partial
from itertools import islice
from operator import length_hint
from struct import Struct

from openpaisdk.data.folder_records import FolderRecords
from openpaisdk.data.pack_reader import Pack
from openpaisdk.data.record_cache import RecordCache
from openpaisdk.data.record_order import WINDOW_RUNS, EpochOrder, Share
from paiprotocol.errors import PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from typing import Any

    from openpaisdk.data.record_order import Window
    from openpaisdk.data.record_source import RecordRun, RecordSource

    Columns = tuple[list[str], list[bytes]]
    """Keys and contents of the same records."""
    Decode = Callable[[str, bytes], Any]

RUN_BYTES = 1 << 20
MAX_RUN_RECORDS = 1024
RUNS_PER_PROCESS = 32
"""Small data sets are divided into shorter runs, so that every process gets its share."""
_LENGTH = Struct("<Q")


def open_records(url: str | os.PathLike[str]) -> RecordSource:
    """The records of a pack, of a shard, or of a plain folder of files."""
    url = os.fspath(url)
    try:
        return Pack(url)
    except UsageError as e:
        if "is not a pack" not in e.message:
            raise
    return FolderRecords(url)


class Records:
    """Map-style data set: ``records[i]`` is the pair of key and content, or what ``decode`` makes of it.

    >>> records = Records("pai://team/0/alice/images.pack", decode=lambda key, data: (label(key), data))
    >>> loader = torch.utils.data.DataLoader(records, batch_size=64, shuffle=True, num_workers=8)
    """

    def __init__(self, url: str | os.PathLike[str], *, decode: Decode | None = None, connections: int = 4):
        self._source = open_records(url)
        self._decode = decode
        self._connections = connections
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, number: int) -> Any:
        if number < 0:
            number += len(self)
        return self._decoded(number, self._source.read(number))

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """A batch, read over several connections; torch's DataLoader calls this."""
        contents = self._threads().map(self._source.read, numbers)
        return [self._decoded(number, content) for number, content in zip(numbers, contents, strict=True)]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_pool": None}

    def _threads(self) -> ThreadPoolExecutor:
        # Threads do not survive a fork.
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), ThreadPoolExecutor(self._connections, "records")
        return self._pool[1]

    def _decoded(self, number: int, content: bytes) -> Any:
        key = self._source.key(number)
        return (key, content) if self._decode is None else self._decode(key, content)


class RecordStream:
    """Iterable data set: the records of one epoch in this process's order.

    Each process (rank and DataLoader worker) gets its own share; together they get every record once.
    ``set_epoch`` changes the order. ``state_dict`` and ``load_state_dict`` resume in the middle of an epoch.

    >>> stream = RecordStream("pai://team/0/alice/images.pack", shuffle=True, seed=1)
    >>> for key, content in stream: ...
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        decode: Decode | None = None,
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        even: bool = False,
        connections: int = 4,
        cache_folder: str | os.PathLike[str] | None = None,
        cache_bytes: int = 10 << 30,
    ):
        """``rank``, ``world_size``: by default those of torch.distributed or of the task's environment.

        ``even``: every process gets the same number of records; a few are left out of each epoch.
        ``cache_folder``: records that were read once are kept there, up to ``cache_bytes``.
        """
        if (rank is None) != (world_size is None):
            raise UsageError("rank and world_size must be given together.")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise UsageError(f"rank {rank} is not one of {world_size} ranks.")
        self._source = open_records(url)
        self._decode = decode
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = epoch
        self._rank = (rank, world_size) if rank is not None and world_size is not None else None
        self._even = even
        self._connections = max(1, connections)
        self._cache = None if cache_folder is None else (os.fspath(cache_folder), cache_bytes)
        self._known_runs: tuple[int, list[RecordRun]] | None = None
        """For that many processes."""
        # The position in the epoch: the end of the window that is handed out, and what is left of it.
        self._window_end = 0
        self._remaining: Iterator[bytes] = iter(())
        # Where the next iteration begins; set by load_state_dict.
        self._resume_at = 0
        _register_with_torch()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_known_runs": None, "_window_end": self._position, "_remaining": iter(())}

    def __setstate__(self, state: dict[str, object]) -> None:
        # Pickled by version 0.5, it has another name for what remains.
        self.__dict__.update(state, _remaining=iter(()))
        _register_with_torch()

    def __len__(self) -> int:
        """Records of this rank in an epoch, by all its DataLoader workers together."""
        rank, ranks = self._rank or distributed_rank()
        workers = self._workers()[1]
        orders = [self._order(Share(rank * workers + worker, ranks * workers)) for worker in range(workers)]
        return sum(order.shortest() if self._even else len(order) for order in orders)

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch, with another order, at its first record."""
        self._epoch = epoch
        self._begin_at(0)

    def state_dict(self) -> dict[str, object]:
        """Where this process is in its epoch. Valid for the same number of ranks and workers."""
        return {
            "epoch": self._epoch,
            "seed": self._seed,
            "position": self._position,
            "parts": self._share().parts,
            "records": len(self._source),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["records"] != len(self._source):
            raise UsageError(
                f"The state is of a data set with {state['records']} records; "
                f"this one has {len(self._source)}."
            )
        if state["parts"] != self._share().parts:
            raise UsageError(
                f"The state is of {state['parts']} reading processes; now there are {self._share().parts}.",
                hint="Resume with the same number of ranks and DataLoader workers.",
            )
        self._epoch, self._seed = state["epoch"], state["seed"]
        self._begin_at(state["position"])

    def _begin_at(self, position: int) -> None:
        self._window_end = self._resume_at = position
        self._remaining = iter(())

    @property
    def _position(self) -> int:
        """How many records of the epoch the caller has."""
        return self._window_end - length_hint(self._remaining)

    def __iter__(self) -> Iterator[Any]:
        order = self._order(self._share())
        total = order.shortest() if self._even else len(order)
        position, self._resume_at = self._resume_at, 0
        if position >= total:
            position = 0  # a finished epoch is begun again
        with closing(self._windows(order, position)) as windows:
            for keys, contents in windows:
                contents = contents[: total - position]
                position += len(contents)
                remaining = iter(contents)
                self._window_end, self._remaining = position, remaining
                # Without a step of this function for each record, which would also keep the item.
                if self._decode is None:
                    yield from zip(keys, remaining, strict=False)
                else:
                    yield from map(partial(_decode_next, self._decode, remaining), keys, contents)
                # Nothing refers to the records here when the next window is read.
                del contents, remaining
                self._remaining = iter(())
                if position == total:
                    return

    # -- reading ---------------------------------------------------------------------------------

    def _windows(self, order: EpochOrder, skip: int) -> Generator[Columns, None, None]:
        """The records of one window after the other, in their order.

        While a window is handed out, the next one is read. Without a shuffle windows are short, and there is
        one more for every connection.
        """
        cache = None if self._cache is None else RecordCache(*self._cache)
        pool = ThreadPoolExecutor(self._connections, "record-stream")

        def load(runs: list[RecordRun]) -> Columns:
            keys: list[str] = []
            contents: list[bytes] = []
            for run in runs:
                run_keys, run_contents = self._source.run_keys(run), self._read(run, cache)
                if len(run_keys) != len(run_contents):
                    # All that follow would have the keys of others.
                    raise PaiError(
                        f"{self._source.url} has {len(run_contents)} records at number {run.first}, and not "
                        f"{len(run_keys)}."
                    )
                keys += run_keys
                contents += run_contents
            return keys, contents

        def begin(window: Window) -> tuple[list[int], list[Callable[[], Columns]]]:
            """Begin to read a window; returns the order of its records, and functions that return them."""
            runs = order.runs[window.start : window.end]
            if cache is None and all(map(self._source.read_soon, runs)):
                return window.order, [partial(load, runs)]
            # Few reads of several runs: each is handed to a thread and awaited.
            step = -(-len(runs) // self._connections)
            reads = [pool.submit(load, runs[i : i + step]) for i in range(0, len(runs), step)]
            return window.order, [read.result for read in reads]

        _keep_freed_memory()
        coming = map(begin, order.windows(skip))
        begun = deque(islice(coming, 1 if self._shuffle else self._connections))
        try:
            while begun:
                numbers, reads = begun.popleft()
                begun.extend(islice(coming, 1))
                keys, contents = _joined(reads)
                yield [keys[number] for number in numbers], [contents[number] for number in numbers]
                # Freed together, in the order of their addresses: the allocator has half as much to do as
                # with the order in which they were handed out.
                del reads, contents
        finally:
            pool.shutdown(cancel_futures=True)

    def _read(self, run: RecordRun, cache: RecordCache | None) -> list[bytes]:
        if cache is None:
            return self._source.read_run(run)
        identity = self._source.run_identity(run)
        cached = cache.get(identity)
        if cached is not None:
            return _split(cached)
        contents = self._source.read_run(run)
        cache.put(identity, b"".join(_LENGTH.pack(len(content)) + content for content in contents))
        return contents

    def _order(self, share: Share) -> EpochOrder:
        return EpochOrder(
            self._runs(share.parts), share, shuffle=self._shuffle, seed=self._seed, epoch=self._epoch
        )

    def _runs(self, parts: int) -> list[RecordRun]:
        if self._known_runs is None or self._known_runs[0] != parts:
            records = max(1, len(self._source) // (parts * RUNS_PER_PROCESS))
            self._known_runs = parts, self._source.runs(RUN_BYTES, min(records, MAX_RUN_RECORDS))
        return self._known_runs[1]

    def _share(self) -> Share:
        rank, ranks = self._rank or distributed_rank()
        worker, workers = self._workers()
        return Share(rank * workers + worker, ranks * workers)

    def _workers(self) -> tuple[int, int]:
        """Number of this DataLoader worker, and how many there are."""
        torch_data = sys.modules.get("torch.utils.data")
        info = torch_data.get_worker_info() if torch_data is not None else None
        return (0, 1) if info is None else (info.id, info.num_workers)


def distributed_rank() -> tuple[int, int]:
    """Rank and number of ranks: of torch.distributed if it is in use, else of the task's environment."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if rank.isdecimal() and size.isdecimal() and int(rank) < int(size):
        return int(rank), int(size)
    return 0, 1


def _register_with_torch() -> None:
    """Let DataLoader take a RecordStream for an iterable data set: it asks for torch's own class."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None:
        torch_data.IterableDataset.register(RecordStream)


def _joined(reads: list[Callable[[], Columns]]) -> Columns:
    keys: list[str] = []
    contents: list[bytes] = []
    for read in reads:
        some_keys, some_contents = read()
        keys += some_keys
        contents += some_contents
    return keys, contents


@lru_cache
def _keep_freed_memory() -> None:
    """Let the C library keep the memory of one window for the next one.

    GNU's gives freed memory back to the kernel unless it has seen a larger block freed, and new memory costs
    more than what is read into it: the kernel clears it page by page. Nothing of the block is ever touched.
    """
    bytes(WINDOW_RUNS * RUN_BYTES)


def _decode_next(decode: Decode, remaining: Iterator[bytes], key: str, content: bytes) -> Any:
    """The decoded record. If ``decode`` fails, the record remains: a saved state resumes at it."""
    item = decode(key, content)
    next(remaining)
    return item


def _split(data: bytes) -> list[bytes]:
    contents = []
    at = 0
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        contents.append(data[at : at + size])
        at += size
    return contents
