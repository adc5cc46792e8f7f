"""Source files of a job: collected, packed into one tar archive, uploaded unless the cluster has it."""

from __future__ import annotations

import os
import stat

from openpaisdk.jobs.pack_cache import MIN_FILE_AGE_NS, PackManifest, load, save, stamp_of
from openpaisdk.storage.ignore import ALWAYS_IGNORED, Rule, is_ignored, read_rules, rules_above
from paiprotocol.errors import PaiError, UsageError
from paiprotocol.transfer import tar_writer
from pairuntime.transport.http1 import CHUNK_BYTES, Body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from openpaisdk.client import ClusterClient

MAX_TOTAL_BYTES = 100 << 20
MAX_FILES = 20_000
MAX_IN_MEMORY_BYTES = 8 << 20
MAX_LISTED_FILES = 10
"""How many of the largest files are listed when a folder is too large."""
TOO_LARGE = 413
"""HTTP status of a request with a body over the server's limit."""


class Member:
    """One file, folder or symbolic link of the archive."""

    __slots__ = ("full", "kind", "mode", "mtime", "name", "size", "stamp", "target")

    def __init__(
        self,
        name: str,
        full: str,
        kind: bytes,
        mode: int,
        size: int,
        mtime: int,
        target: str = "",
        stamp: str = "",
    ):
        self.stamp = stamp
        self.name = name
        self.full = full
        self.kind = kind
        self.mode = mode
        self.size = size
        self.mtime = mtime
        self.target = target

    @property
    def fingerprint(self) -> str:
        """Text that changes when the member's bytes in the archive change; empty if that cannot be known."""
        return f"{self.stamp}.{self.mode}.{self.target}" if self.stamp else ""

    def tar_chunks(self) -> Iterator[bytes]:
        yield tar_writer.header(
            self.name, kind=self.kind, mode=self.mode, size=self.size, mtime=self.mtime, target=self.target
        )
        if self.kind == tar_writer.FILE and self.size:
            yield from _content(self)
            if rest := tar_writer.padding(self.size):
                yield rest


class SourceArchive(Body):
    """Tar archive of the source files. ``ignored``: paths excluded by ignore files, to show to the user.

    ``key`` identifies the folder: files unchanged since its last archive are neither read nor uploaded again.
    """

    __slots__ = (
        "content",
        "count",
        "ignored",
        "key",
        "lengths",
        "members",
        "on_progress",
        "previous",
        "sha256",
    )

    def __init__(self, members: list[Member], ignored: list[str], key: str = ""):
        self.members = members
        self.ignored = ignored
        self.on_progress: Callable[[int], None] | None = None
        self.count = sum(m.kind != tar_writer.FOLDER for m in members)
        self.content: bytes | None = None
        self.lengths: list[int] = []
        self.key = key
        self.previous = load(key) if key else None
        if self.previous is not None and self._is_unchanged(self.previous):
            super().__init__(self.previous.size)
            self.sha256 = self.previous.sha256
            return
        self._pack()

    def save_manifest(self) -> None:
        """Save the manifest once a cluster has the archive, so that next time only changes are uploaded."""
        if self.key and self.lengths:
            save(self.key, PackManifest(self.sha256, self.size, self._member_table()))

    def _is_unchanged(self, last: PackManifest) -> bool:
        if len(last.members) != len(self.members):
            return False
        return all(last.member_range(m.name, m.fingerprint) is not None for m in self.members)

    def _pack(self) -> None:
        import hashlib

        digest = hashlib.sha256()
        size = 0
        in_memory: list[bytes] | None = []
        for m in (*self.members, None):
            before = size
            for chunk in m.tar_chunks() if m else (tar_writer.END,):
                digest.update(chunk)
                size += len(chunk)
                if in_memory is not None:
                    in_memory.append(chunk)
                    if size > MAX_IN_MEMORY_BYTES:
                        in_memory = None
            self.lengths.append(size - before)
        super().__init__(size)
        self.sha256 = digest.hexdigest()
        self.content = b"".join(in_memory) if in_memory is not None else None

    def _member_table(self) -> dict[str, list[object]]:
        table: dict[str, list[object]] = {}
        offset = 0
        for m, length in zip(self.members, self.lengths, strict=False):
            table[m.name] = [m.fingerprint, offset, length]
            offset += length
        return table

    def patch(self) -> Patch | None:
        """Patch from the previous archive; None if there is none or it saves less than half."""
        if self.previous is None or not self.lengths:
            return None
        patch = Patch(self, self.previous)
        return patch if patch.size < self.size // 2 else None

    def chunks(self) -> Iterator[bytes]:
        chunks = iter((self.content,)) if self.content is not None else self._tar_chunks()
        return chunks if self.on_progress is None else self._with_progress(chunks, self.on_progress)

    @staticmethod
    def _with_progress(chunks: Iterator[bytes], on_progress: Callable[[int], None]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            on_progress(len(chunk))

    def _tar_chunks(self) -> Iterator[bytes]:
        for m in self.members:
            yield from m.tar_chunks()
        yield tar_writer.END


class Patch(Body):
    """An archive as a patch of another one: ``copy OFFSET LENGTH`` lines, and ``data LENGTH`` lines followed
    by that many bytes.
    """

    __slots__ = ("base", "on_progress", "steps")

    def __init__(self, sources: SourceArchive, last: PackManifest):
        self.base = last.sha256
        self.on_progress = sources.on_progress
        self.steps: list[tuple[bytes, Member | None]] = []
        size = 0
        start = end = 0  # range of adjacent unchanged members in the previous archive
        for m, length in zip((*sources.members, None), sources.lengths, strict=True):
            span = last.member_range(m.name, m.fingerprint) if m else None
            if span is not None and span[1] == length and span[0] == end and start < end:
                end += length
                continue
            if start < end:
                size += self._add(b"copy %d %d\n" % (start, end - start), None)
                start = end = 0
            if span is not None and span[1] == length:
                start, end = span[0], span[0] + length
            else:
                size += self._add(b"data %d\n" % length, m) + length
        super().__init__(size)

    def _add(self, line: bytes, member: Member | None) -> int:
        self.steps.append((line, member))
        return len(line)

    def chunks(self) -> Iterator[bytes]:
        for line, member in self.steps:
            yield line
            if line.startswith(b"data"):
                for chunk in member.tar_chunks() if member else (tar_writer.END,):
                    yield chunk
                    if self.on_progress:
                        self.on_progress(len(chunk))


def collect(
    root: str,
    only: Sequence[str] = (),
    *,
    always: Sequence[str] = (),
    max_bytes: int = MAX_TOTAL_BYTES,
    connect: Callable[[], ClusterClient] | None = None,
    min_file_age_ns: int = MIN_FILE_AGE_NS,
) -> SourceArchive | None:
    """Files under ``root``, or only those in ``only``, without what ignore files exclude, and ``always``.

    A whole folder may have ``max_bytes``: more is seldom meant to travel. Files in ``only`` may have as much
    as the cluster takes, which is asked through ``connect`` if they have more than that.
    """
    walk = _SourceWalk(os.path.realpath(root), max_bytes, connect if only else None, min_file_age_ns)
    if only:
        for path in only:
            walk.add_path(path)
    else:
        walk.add_folder("", rules_above(walk.root))
    for path in always:
        walk.add_path(path)
    members = [walk.members_by_name[name] for name in sorted(walk.members_by_name)]
    return SourceArchive(members, walk.ignored, "\n".join((walk.root, *only))) if members else None


def send(
    cluster: ClusterClient, sources: SourceArchive, on_upload: Callable[[int], None] | None = None
) -> bool:
    """Upload the archive unless the cluster has it; returns whether anything was uploaded.

    For a folder uploaded before only the changes are sent. ``on_upload`` gets the number of bytes to send.
    """
    exists = cluster.has_sources(sources.sha256)
    if not exists:
        try:
            _put(cluster, sources, on_upload)
        except PaiError as e:
            limit = cluster.max_sources_bytes() if e.status == TOO_LARGE else None
            if limit is None:
                raise
            raise _over_limit(cluster, sources.members, limit, limit) from None
    sources.save_manifest()
    return not exists


def _put(cluster: ClusterClient, sources: SourceArchive, on_upload: Callable[[int], None] | None) -> None:
    patch = sources.patch()
    if patch is not None:
        if on_upload:
            on_upload(patch.size)
        if cluster.patch_sources(sources.sha256, patch.base, patch):
            return
    if on_upload:
        on_upload(sources.size)
    cluster.put_sources(sources.sha256, sources)


class _SourceWalk:
    def __init__(
        self,
        root: str,
        max_bytes: int,
        connect: Callable[[], ClusterClient] | None,
        min_file_age_ns: int,
    ):
        self._min_file_age_ns = min_file_age_ns
        self.root = root
        self.max_bytes = max_bytes
        self.connect = connect
        self.size = len(tar_writer.END)
        """Size of the archive, except for the long names in it."""
        self.members_by_name: dict[str, Member] = {}
        self.ignored: list[str] = []

    def add_path(self, path: str) -> None:
        """Add a path given by the user, even if an ignore file excludes it."""
        full = os.path.join(self.root, os.path.expanduser(path))
        name = os.path.relpath(
            os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full)), self.root
        )
        name = os.path.normpath(name)
        if name == "." or not os.path.basename(path.rstrip("/")).strip("."):
            name = os.path.relpath(os.path.realpath(full), self.root)
        if name.startswith(".."):
            raise UsageError(
                f"--sources {path}: it is outside of this folder, so it has no relative path in the job.",
                hint="Change to a folder that contains it, or copy it here.",
            )
        if not os.path.lexists(full):
            raise UsageError(f"--sources {path}: there is no such file or folder.")
        if name == ".":
            self.add_folder("", rules_above(self.root))
            return
        parts = name.split(os.sep)
        for i in range(1, len(parts)):  # parent folders, so that they keep their modes
            self.add("/".join(parts[:i]), os.path.join(self.root, *parts[:i]))
        inside = "/".join(parts)
        if self.add(inside, os.path.join(self.root, name)):
            rules = rules_above(self.root)
            for i in range(len(parts)):
                rules += read_rules(os.path.join(self.root, *parts[:i]), "".join(p + "/" for p in parts[:i]))
            self.add_folder(inside + "/", rules)

    def add_folder(self, base: str, rules: list[Rule]) -> None:
        folder = os.path.join(self.root, base)
        rules = rules + read_rules(folder, base)
        try:
            names = sorted(os.listdir(folder))
        except OSError as e:
            raise _unreadable(folder, e) from None
        for item in names:
            if item in ALWAYS_IGNORED:
                continue
            name, full = base + item, os.path.join(folder, item)
            is_folder = os.path.isdir(full) and not os.path.islink(full)
            if is_folder and _is_environment(full):
                continue  # works only in its own place; a job on this machine finds it there
            if rules and is_ignored(name, is_folder, rules):
                self.ignored.append(name + "/" if is_folder else name)
                continue
            if self.add(name, full):
                self.add_folder(name + "/", rules)

    def add(self, name: str, full: str) -> bool:
        """Add one path; returns whether it is a folder to descend into."""
        if name in self.members_by_name:
            return False
        try:
            status = os.lstat(full)
        except FileNotFoundError:
            return False  # deleted since it was listed
        except OSError as e:
            raise _unreadable(full, e) from None
        self.size += tar_writer.BLOCK
        mode, mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
        if stat.S_ISDIR(status.st_mode):
            self.members_by_name[name] = Member(
                name + "/", full, tar_writer.FOLDER, mode, 0, mtime, stamp="folder." + str(mtime)
            )
            return True
        if stat.S_ISLNK(status.st_mode):
            self.members_by_name[name] = Member(
                name, full, tar_writer.LINK, 0o777, 0, mtime, self._link(full), f"link.{mtime}"
            )
        elif stat.S_ISREG(status.st_mode):
            self.members_by_name[name] = Member(
                name,
                full,
                tar_writer.FILE,
                mode,
                status.st_size,
                mtime,
                stamp=stamp_of(status, self._min_file_age_ns),
            )
            self.size += status.st_size + -status.st_size % tar_writer.BLOCK
        self._check()
        return False

    def _link(self, full: str) -> str:
        """Target of a symbolic link; one that leads out of the folder is made absolute to stay valid."""
        target = os.readlink(full)
        resolved = os.path.normpath(os.path.join(os.path.dirname(full), target))
        if resolved == self.root or resolved.startswith(self.root + os.sep):
            return os.path.relpath(resolved, os.path.dirname(full)) if os.path.isabs(target) else target
        return resolved

    def _check(self) -> None:
        members = self.members_by_name.values()
        if len(members) > MAX_FILES:
            raise PaiError(
                f"This folder has more than {MAX_FILES} files, too many to upload with a job.",
                hint="Exclude some with a .paiignore file, select what is needed with --sources, pack them "
                "into one file, or use --no-sources.",
            )
        if self.size <= self.max_bytes:
            return
        if self.connect is None:
            raise PaiError(
                f"This folder has more than {megabytes(self.max_bytes)}, too much to upload without being "
                f"named{_list_largest(members, self.max_bytes)}.",
                hint="Name what is needed with --sources, exclude the rest with a .paiignore file, or use "
                "--no-sources. Data that several jobs read belongs on the storage (pai copy).",
            )
        cluster = self.connect()
        limit = cluster.max_sources_bytes()
        if limit is None or self.size > limit:
            raise _over_limit(cluster, members, limit, limit or self.max_bytes)
        self.max_bytes = limit


def _over_limit(
    cluster: ClusterClient, members: Iterable[Member], limit: int | None, max_bytes: int
) -> PaiError:
    """The error for more files than a cluster takes; ``limit`` is what it says, None for our own bound."""
    largest = max(members, key=lambda m: m.size)
    setting = (
        "" if limit is None else "The administrator can raise limits.sources-mb in the cluster's settings. "
    )
    return PaiError(
        f"The files have more than {megabytes(max_bytes)}, which is all that {cluster.alias} takes "
        f"with a job{_list_largest(members, max_bytes)}.",
        hint=f"{setting}The other way is the storage: pai copy {largest.name} pai://{cluster.alias}/0/ and "
        "read it from there in the job.",
    )


def _list_largest(members: Iterable[Member], max_bytes: int) -> str:
    largest = sorted(members, key=lambda m: m.size, reverse=True)[:MAX_LISTED_FILES]
    listed = [f"{m.name} ({megabytes(m.size)})" for m in largest if m.size * 200 > max_bytes]
    return f": {', '.join(listed)}" if listed else ""


def _is_environment(folder: str) -> bool:
    """Whether a folder is a virtual environment or a conda environment."""
    return any(os.path.exists(os.path.join(folder, mark)) for mark in ("pyvenv.cfg", "conda-meta"))


def _content(m: Member) -> Iterator[bytes]:
    """Content of a file, exactly as long as its header says: it may grow or shrink while it is read."""
    remaining = m.size
    try:
        with open(m.full, "rb") as f:
            while remaining and (data := f.read(min(remaining, CHUNK_BYTES * 4))):
                remaining -= len(data)
                yield data
    except OSError as e:
        raise _unreadable(m.full, e) from None
    while remaining:
        piece = min(remaining, CHUNK_BYTES)
        remaining -= piece
        yield b"\0" * piece


def _unreadable(path: str, e: OSError) -> PaiError:
    return PaiError(
        f"{path} cannot be read: {e.strerror}.",
        hint="Exclude it with a .paiignore file, or use --no-sources.",
    )


def megabytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MB" if size >= 1 << 20 else f"{size / 1024:.0f} kB"
