"""Remote launch on nodes without a shared file system: the batch script and the bundle it downloads."""

from __future__ import annotations

import os
import secrets
import shlex
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paicluster.engines.common import task_files
from pairuntime.slurm import bootstrap, node, server_connection, stale_folders

_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class RemoteLaunch:
    """How the tasks of a gang connect to the server: its URL, a ticket, and their folder on a node."""

    url: str
    root: Path
    ticket: str = field(repr=False)
    # CA certificates of the server, in addition to those of the node's system.
    ca_certificates: str = field(default="", repr=False)

    @classmethod
    def new(cls, url: str, node_folder: Path, ca_certificates: str = "") -> RemoteLaunch:
        # The name cannot be guessed, so no other process can have created the folder.
        root = node_folder / f"{stale_folders.PREFIX}{secrets.token_hex(8)}"
        return cls(url, root, secrets.token_urlsafe(32), ca_certificates)

    def of(self, component: int, rank: int) -> Path:
        """The folder of one of several tasks: each has its own, even on the same node."""
        return Path(f"{self.root}-{component}-{rank}")


def remote_batch_script(
    remote: RemoteLaunch, python: str, *, uid: str, archive: Path, folder: Path, alone: bool
) -> str:
    """Script of a remote launch. ``archive``, ``folder``: runtime and gang's folder below the root."""
    config = {
        "url": remote.url,
        "authority": remote.ca_certificates,
        "ticket": remote.ticket,
        "root": str(remote.root),
        "gang": uid,
        "archive": str(archive),
        "folder": str(folder),
        "alone": alone,
    }
    modules = (Path(str(module.__file__)).read_text() for module in (node, server_connection, bootstrap))
    text = "\n".join((*modules, f"main({config!r})\n"))
    # In a variable, not on a command line, which every user of a node can see.
    start = shlex.join([python, "-I", "-S", "-c", node.BOOTSTRAP_PROGRAM])
    return f"#!/bin/sh\nexport {node.BOOTSTRAP_VARIABLE}={shlex.quote(text)}\nexec {start}\n"


@dataclass(slots=True)
class SlurmLaunchBundle:
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
