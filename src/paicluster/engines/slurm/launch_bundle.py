"""What travels to nodes that see nothing of our files: the batch script, and what that fetches from us."""

from __future__ import annotations

import os
import secrets
import shlex
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paicluster.engines.common import task_files
from pairuntime.slurm import bootstrap, stale_folders

_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class RemoteLaunch:
    """How the tasks of a gang reach us, by which right, and the folder that is theirs on a node."""

    url: str
    root: Path
    ticket: str = field(repr=False)
    # The certificates by which they know us, beside those that their system trusts.
    authority: str = field(default="", repr=False)

    @classmethod
    def new(cls, url: str, node_folder: Path, authority: str = "") -> RemoteLaunch:
        # Nobody can be there before: the name cannot be guessed.
        root = node_folder / f"{stale_folders.PREFIX}{secrets.token_hex(8)}"
        return cls(url, root, secrets.token_urlsafe(32), authority)

    def of(self, component: int, rank: int) -> Path:
        """The folder of one task of several: whoever else is on its node has another."""
        return Path(f"{self.root}-{component}-{rank}")


def batch_script(
    carried: RemoteLaunch, python: str, *, uid: str, archive: Path, folder: Path, alone: bool
) -> str:
    """``archive`` and ``folder``, of the runtime and the gang, are those below the root."""
    told = {
        "url": carried.url,
        "authority": carried.authority,
        "ticket": carried.ticket,
        "root": str(carried.root),
        "gang": uid,
        "archive": str(archive),
        "folder": str(folder),
        "alone": alone,
    }
    text = f"{Path(bootstrap.__file__).read_text()}\n\nmain({told!r})\n"
    # In a variable, not on a command line: everybody on a node sees those.
    start = shlex.join([python, "-I", "-S", "-c", bootstrap.START])
    return f"#!/bin/sh\nexport {bootstrap.TEXT}={shlex.quote(text)}\nexec {start}\n"


@dataclass(slots=True)
class SlurmLaunchBundle:
    """A tar with what one process on a node needs, made while it is sent."""

    # By the name below the root there: the words, or the file that has them.
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
        """A task's working folder, as every engine makes it."""
        for one in (name, name / task_files.PAI_FOLDER, name / task_files.OUTPUT_FOLDER):
            self.add_folder(one)

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
                found = os.fstat(f.fileno())
                header.size = found.st_size
                # The owner's rights alone, whoever may have it here.
                header.mode = found.st_mode & 0o700
                yield header.tobuf()
                while chunk := f.read(_CHUNK):
                    yield chunk
                yield _padding(found.st_size)
        yield bytes(2 * tarfile.BLOCKSIZE)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)
