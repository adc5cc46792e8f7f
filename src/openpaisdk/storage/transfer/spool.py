"""A list that may be longer than memory: what is too much lies in a file that nobody else sees."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from openpaisdk.storage.file_info import FileStat

    Item = tuple[str, FileStat]

IN_MEMORY = 50_000


class Spool:
    """Paths with their facts, in the order they were added. Read once it is complete."""

    __slots__ = ("count", "file", "held", "largest", "size")

    def __init__(self) -> None:
        self.held: list[Item] = []
        self.file: IO[bytes] | None = None
        self.count = 0
        self.size = 0
        self.largest: list[tuple[int, str]] = []

    def add(self, path: str, facts: FileStat) -> None:
        self.count += 1
        self.size += facts[0]
        if len(self.held) < IN_MEMORY:
            self.held.append((path, facts))
            return
        if self.file is None:
            import tempfile

            self.file = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - it lives as long as this list
        name = path.encode("utf-8", "surrogateescape").hex()
        self.file.write(f"{name} {facts[0]} {facts[1]} {facts[2]}\n".encode())
        if facts[0] > 1 << 20:
            self.largest.append((facts[0], path))
            if len(self.largest) > 1000:
                self.largest = sorted(self.largest, reverse=True)[:10]

    def top(self, count: int = 10) -> list[tuple[int, str]]:
        """The largest of them."""
        return sorted([*((facts[0], path) for path, facts in self.held), *self.largest], reverse=True)[:count]

    def __iter__(self) -> Iterator[Item]:
        yield from self.held
        if self.file is not None:
            self.file.seek(0)
            for line in self.file:
                name, size, mtime_ns, mode = line.split()
                path = bytes.fromhex(name.decode()).decode("utf-8", "surrogateescape")
                yield path, (int(size), int(mtime_ns), int(mode))

    def __len__(self) -> int:
        return self.count
