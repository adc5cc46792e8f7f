"""Launch bundle as a tar that is generated while it is sent."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paicluster.engines.common import task_files

_CHUNK = 1 << 18


@dataclass(slots=True)
class TarBundle:
    """Tar with the files that one process on a node needs, generated while it is sent."""

    # By the path below the root: the content, or the file to read it from.
    _parts: list[tuple[str, bytes | Path]] = field(default_factory=list)
    _folders: list[str] = field(default_factory=list)

    def add(self, name: Path, content: bytes | Path) -> None:
        self._parts.append((str(name), content))

    def add_folder(self, name: Path) -> None:
        self._folders.append(str(name))

    def add_tree(self, name: Path, folder: Path) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.add(name / path.relative_to(folder), path)

    def add_work(self, name: Path) -> None:
        """Add a task's working folder, as every engine creates it."""
        for path in (name, name / task_files.PAI_FOLDER, name / task_files.OUTPUT_FOLDER):
            self.add_folder(path)

    def chunks(self) -> Iterator[bytes]:
        for name in self._folders:
            header = tarfile.TarInfo(name)
            header.type, header.mode = tarfile.DIRTYPE, 0o700
            yield header.tobuf()
        for name, content in self._parts:
            header = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                header.size, header.mode = len(content), 0o600
                yield header.tobuf() + content + _padding(len(content))
                continue
            with content.open("rb") as f:
                status = os.fstat(f.fileno())
                header.size = status.st_size
                # Only the owner's permissions, whatever they are here.
                header.mode = status.st_mode & 0o700
                yield header.tobuf()
                while chunk := f.read(_CHUNK):
                    yield chunk
                yield _padding(status.st_size)
        yield bytes(2 * tarfile.BLOCKSIZE)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)
