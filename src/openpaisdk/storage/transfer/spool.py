"""List of files that may exceed memory: the rest is spooled to an unnamed temporary file."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from openpaisdk.storage.file_info import FileStat

    Item = tuple[str, FileStat]

MAX_ITEMS_IN_MEMORY = 50_000


class Spool:
    """Paths with size, time and mode, in the order they were added. Read it when it is complete."""

    __slots__ = ("count", "file", "items", "largest", "max_in_memory", "size")

    def __init__(self, max_in_memory: int = MAX_ITEMS_IN_MEMORY) -> None:
        self.max_in_memory = max_in_memory
        self.items: list[Item] = []
        self.file: IO[bytes] | None = None
        self.count = 0
        self.size = 0
        self.largest: list[tuple[int, str]] = []

    def add(self, path: str, file_stat: FileStat) -> None:
        self.count += 1
        self.size += file_stat[0]
        if len(self.items) < self.max_in_memory:
            self.items.append((path, file_stat))
            return
        if self.file is None:
            import tempfile

            self.file = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - it lives as long as this list
        name = path.encode("utf-8", "surrogateescape").hex()
        self.file.write(f"{name} {file_stat[0]} {file_stat[1]} {file_stat[2]}\n".encode())
        if file_stat[0] > 1 << 20:
            self.largest.append((file_stat[0], path))
            if len(self.largest) > 1000:
                self.largest = sorted(self.largest, reverse=True)[:10]

    def top(self, count: int = 10) -> list[tuple[int, str]]:
        """The largest files."""
        return sorted(
            [*((file_stat[0], path) for path, file_stat in self.items), *self.largest], reverse=True
        )[:count]

    def __iter__(self) -> Iterator[Item]:
        yield from self.items
        if self.file is not None:
            self.file.seek(0)
            for line in self.file:
                name, size, mtime_ns, mode = line.split()
                path = bytes.fromhex(name.decode()).decode("utf-8", "surrogateescape")
                yield path, (int(size), int(mtime_ns), int(mode))

    def __len__(self) -> int:
        return self.count
