"""The files that travel with a job: found, packed into one tar, and sent unless the cluster has them."""

from __future__ import annotations

import os
import stat

from openpaisdk.client.wire import CHUNK, Body
from openpaisdk.errors import PaiError, UsageError
from openpaisdk.jobs import tar
from openpaisdk.storage.ignore import NEVER, Rule, is_ignored, read_rules, rules_above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from openpaisdk.client import Cluster

SIZE_CAP = 100 << 20
COUNT_CAP = 20_000
IN_MEMORY = 8 << 20
NAMED = 10
"""How many of the largest files are named when a folder is too large."""


class Member:
    """One file, folder or link on its way into the tar."""

    __slots__ = ("full", "kind", "mode", "mtime", "name", "size", "target")

    def __init__(self, name: str, full: str, kind: bytes, mode: int, size: int, mtime: int, target: str = ""):
        self.name = name
        self.full = full
        self.kind = kind
        self.mode = mode
        self.size = size
        self.mtime = mtime
        self.target = target


class Sources(Body):
    """What travels. ``left_out`` names what an ignore file kept back, for the person to see."""

    __slots__ = ("count", "left_out", "members", "sha256", "watch", "whole")

    def __init__(self, members: list[Member], left_out: list[str]):
        import hashlib

        self.members = members
        self.left_out = left_out
        self.watch: Callable[[int], None] | None = None
        self.count = sum(m.kind != tar.FOLDER for m in members)
        digest = hashlib.sha256()
        size = 0
        kept: list[bytes] | None = []
        for chunk in self._packed():
            digest.update(chunk)
            size += len(chunk)
            if kept is not None:
                kept.append(chunk)
                if size > IN_MEMORY:
                    kept = None
        super().__init__(size)
        self.sha256 = digest.hexdigest()
        self.whole = b"".join(kept) if kept is not None else None

    def chunks(self) -> Iterator[bytes]:
        pieces = iter((self.whole,)) if self.whole is not None else self._packed()
        return pieces if self.watch is None else self._watched(pieces, self.watch)

    @staticmethod
    def _watched(pieces: Iterator[bytes], watch: Callable[[int], None]) -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            watch(len(piece))

    def _packed(self) -> Iterator[bytes]:
        for m in self.members:
            yield tar.header(m.name, kind=m.kind, mode=m.mode, size=m.size, mtime=m.mtime, target=m.target)
            if m.kind == tar.FILE and m.size:
                yield from _content(m)
                if rest := tar.padding(m.size):
                    yield rest
        yield tar.END


def collect(root: str, only: Sequence[str] = (), *, cap: int = SIZE_CAP) -> Sources | None:
    """What lies under ``root``, or only the named paths in it, less what ignore files keep back."""
    walk = _Walk(os.path.realpath(root), cap)
    if only:
        for path in only:
            walk.named(path)
    else:
        walk.folder("", rules_above(walk.root))
    members = [walk.found[name] for name in sorted(walk.found)]
    return Sources(members, walk.left_out) if members else None


def send(cluster: Cluster, sources: Sources) -> bool:
    """Give the cluster the tar unless it has it; says whether it had to travel."""
    if cluster.has_sources(sources.sha256):
        return False
    cluster.put_sources(sources.sha256, sources)
    return True


class _Walk:
    def __init__(self, root: str, cap: int):
        self.root = root
        self.cap = cap
        self.size = 0
        self.found: dict[str, Member] = {}
        self.left_out: list[str] = []

    def named(self, path: str) -> None:
        """A path a person named: taken even if an ignore file speaks against it."""
        full = os.path.join(self.root, os.path.expanduser(path))
        name = os.path.relpath(
            os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full)), self.root
        )
        name = os.path.normpath(name)
        if name == "." or not os.path.basename(path.rstrip("/")).strip("."):
            name = os.path.relpath(os.path.realpath(full), self.root)
        if name.startswith(".."):
            raise UsageError(
                f"--sources {path}: it lies outside of this folder, and files keep their place in it.",
                hint="Go to a folder that holds it, or copy it here.",
            )
        if not os.path.lexists(full):
            raise UsageError(f"--sources {path}: there is no such file or folder.")
        if name == ".":
            self.folder("", rules_above(self.root))
            return
        parts = name.split(os.sep)
        for i in range(1, len(parts)):  # the folders on the way, so that they keep their modes
            self.add("/".join(parts[:i]), os.path.join(self.root, *parts[:i]))
        inside = "/".join(parts)
        if self.add(inside, os.path.join(self.root, name)):
            rules = rules_above(self.root)
            for i in range(len(parts)):
                rules += read_rules(os.path.join(self.root, *parts[:i]), "".join(p + "/" for p in parts[:i]))
            self.folder(inside + "/", rules)

    def folder(self, base: str, rules: list[Rule]) -> None:
        here = os.path.join(self.root, base)
        rules = rules + read_rules(here, base)
        try:
            names = sorted(os.listdir(here))
        except OSError as e:
            raise _unreadable(here, e) from None
        for item in names:
            if item in NEVER:
                continue
            name, full = base + item, os.path.join(here, item)
            is_folder = os.path.isdir(full) and not os.path.islink(full)
            if is_folder and _is_environment(full):
                continue  # it works only where it was made, and the job finds it there
            if rules and is_ignored(name, is_folder, rules):
                self.left_out.append(name + "/" if is_folder else name)
                continue
            if self.add(name, full):
                self.folder(name + "/", rules)

    def add(self, name: str, full: str) -> bool:
        """Take one path; says whether it is a folder to go into."""
        if name in self.found:
            return False
        try:
            found = os.lstat(full)
        except FileNotFoundError:
            return False  # gone since it was listed
        except OSError as e:
            raise _unreadable(full, e) from None
        mode, mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
        if stat.S_ISDIR(found.st_mode):
            self.found[name] = Member(name + "/", full, tar.FOLDER, mode, 0, mtime)
            return True
        if stat.S_ISLNK(found.st_mode):
            self.found[name] = Member(name, full, tar.LINK, 0o777, 0, mtime, self._link(full))
        elif stat.S_ISREG(found.st_mode):
            self.found[name] = Member(name, full, tar.FILE, mode, found.st_size, mtime)
            self.size += found.st_size
        self._check()
        return False

    def _link(self, full: str) -> str:
        """A link that leads out of the folder is made absolute: elsewhere it would lead elsewhere."""
        target = os.readlink(full)
        leads = os.path.normpath(os.path.join(os.path.dirname(full), target))
        if leads == self.root or leads.startswith(self.root + os.sep):
            return os.path.relpath(leads, os.path.dirname(full)) if os.path.isabs(target) else target
        return leads

    def _check(self) -> None:
        if self.size <= self.cap and len(self.found) <= COUNT_CAP:
            return
        how = (
            "Leave some out with a .paiignore file, name what is needed with --sources, or use --no-sources."
        )
        if len(self.found) > COUNT_CAP:
            raise PaiError(
                f"This folder holds more than {COUNT_CAP} files, too many to travel with a job.", hint=how
            )
        largest = sorted(self.found.values(), key=lambda m: m.size, reverse=True)[:NAMED]
        named = ", ".join(f"{m.name} ({megabytes(m.size)})" for m in largest if m.size * 200 > self.cap)
        raise PaiError(
            f"This folder holds more than {megabytes(self.cap)}, too much to travel with a job: {named}.",
            hint=how,
        )


def _is_environment(folder: str) -> bool:
    """A virtual environment, or one of conda's."""
    return any(os.path.exists(os.path.join(folder, mark)) for mark in ("pyvenv.cfg", "conda-meta"))


def _content(m: Member) -> Iterator[bytes]:
    """Exactly as many bytes as the head promised: a file may grow or shrink while it is read."""
    left = m.size
    try:
        with open(m.full, "rb") as f:
            while left and (data := f.read(min(left, CHUNK * 4))):
                left -= len(data)
                yield data
    except OSError as e:
        raise _unreadable(m.full, e) from None
    while left:
        piece = min(left, CHUNK)
        left -= piece
        yield b"\0" * piece


def _unreadable(path: str, e: OSError) -> PaiError:
    return PaiError(
        f"{path} cannot be read: {e.strerror}.",
        hint="Leave it out with a .paiignore file, or use --no-sources.",
    )


def megabytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MB" if size >= 1 << 20 else f"{size / 1024:.0f} kB"
