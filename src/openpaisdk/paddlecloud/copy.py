"""``paddlecloud pfs cp``: upload and download files and folders."""

from __future__ import annotations

import os
import posixpath
import sys

from openpaisdk.output import print_notice
from openpaisdk.paddlecloud.connection import open_datacenter
from openpaisdk.paddlecloud.flags import Flag, FlagCommand
from openpaisdk.paddlecloud.pfs_client import PfsClient, PfsFile
from openpaisdk.paddlecloud.pfs_path import base_name, check_pfs, datacenter_of, has_glob, is_pfs
from openpaisdk.paddlecloud.progress_step import ProgressStep
from paiprotocol.errors import PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.paddlecloud.flags import Arguments
    from openpaisdk.paddlecloud.paddlecloud_client import PaddleCloudClient

    Download = tuple[str, list[tuple[PfsFile, str]], list[str]]
    """What the user wrote, the files with their targets, and the folders to create."""


def _chunk_bytes(text: str) -> int:
    from openpaisdk.jobs.option_values import whole_number
    from openpaisdk.paddlecloud.chunk_transfer import MAX_CHUNK_BYTES, MIN_CHUNK_BYTES

    size = whole_number(text, MIN_CHUNK_BYTES >> 10) << 10
    if size > MAX_CHUNK_BYTES:
        raise UsageError(f"A chunk has at most {MAX_CHUNK_BYTES >> 10} kB.")
    return size


COPY = FlagCommand(
    "pfs cp",
    "<source> ... <destination>",
    "upload or download files and folders",
    "paddlecloud pfs cp -r ./job_word_emb/data /pfs/datacenter1/home/user1/job_word_emb\n"
    "paddlecloud pfs cp /pfs/datacenter1/home/user1/job_word_emb/output ./output\n"
    "paddlecloud pfs cp '/pfs/datacenter1/home/user1/*.log' .",
    Flag("r", "upload folders with everything in them"),
    Flag("v", "say how many files and chunks were sent"),
    Flag(
        "chunksize",
        "size of the chunks in kB, 4 to 32768 (default: 4096)",
        "KB",
        default=0,
        read=_chunk_bytes,
    ),
    count=(2, None),
    details="""\
A path that begins with /pfs/ is in the cloud; either all sources are there or the destination is.
Only chunks that differ are sent, so the same command continues an interrupted one.
A folder is copied into the destination under its own name, or onto it if it has that name already;
with / at the end of the source, its content is copied. The cloud expands patterns: quote them.""",
)
RESUME_HINT = "Interrupted. The same command continues the copy: only chunks that are missing are sent."


def copy(argv: list[str]) -> int:
    """``paddlecloud pfs cp [-r] <source> ... <destination>``"""
    args = COPY.parse(argv)
    *sources, destination = args.positional
    in_cloud = [is_pfs(path) for path in sources]
    try:
        if is_pfs(destination) and not any(in_cloud):
            return _upload(args, sources, destination)
        if not is_pfs(destination) and all(in_cloud):
            return _download(args, sources, destination)
    except KeyboardInterrupt:
        print_notice(RESUME_HINT)
        raise
    if is_pfs(destination):
        raise UsageError(
            "Files cannot be copied from the cloud to the cloud.", hint="Download them, then upload them."
        )
    raise UsageError(
        "Either all sources or the destination must be in the cloud.",
        hint="Paths in the cloud begin with /pfs/; use cp for files of this machine.",
    )


# -- upload ------------------------------------------------------------------------------------


def _upload(args: Arguments, sources: list[str], destination: str) -> int:
    from openpaisdk.paddlecloud.local_tree import collect_file, collect_folder
    from openpaisdk.paddlecloud.tree_upload import TreeUpload

    target = check_pfs(destination)
    for source in sources:
        if not os.path.exists(source):
            raise UsageError(f"{source}: no such file or folder.", hint="Nothing was uploaded.")
        if os.path.isdir(source) and not args.is_set("r"):
            raise UsageError(f"{source} is a folder.", hint="Add -r to upload it with everything in it.")
    client = open_datacenter(datacenter_of([target], args.text("datacenter")), print_notice)
    there = PfsClient(client).stat(target)
    is_folder = destination.endswith("/") or len(sources) > 1 or (there is not None and there.is_folder)
    for source in sources:
        upload = TreeUpload(client, args.number("chunksize"))
        with ProgressStep(f"Uploading {source}") as step:
            if os.path.isdir(source):
                tree = collect_folder(source)
                step.progress.total = tree.size
                path = _folder_target(source, target, len(sources) > 1)
                upload.put_tree(tree, path, step.progress)
                skipped = tree.skipped
            else:
                file = collect_file(source)
                step.progress.total = file.size
                path = f"{target}/{file.name}" if is_folder else target
                existing = there if path == target else upload.pfs.stat(path)
                upload.put_file(file, path, existing, step.progress)
                skipped = None
        if skipped:
            print_notice(f"Not uploaded: {skipped}")
        if args.is_set("v"):
            report = upload.report
            _print_counts(report.files, report.sent_files, report.chunks, report.sent_chunks)
    return 0


def _folder_target(source: str, destination: str, is_one_of_many: bool) -> str:
    """Target of a folder. The same command has the same target when it is repeated."""
    name = base_name(os.path.abspath(source)) if not is_pfs(source) else base_name(source)
    if source.endswith("/") or (base_name(destination) == name and not is_one_of_many):
        return destination
    return f"{destination.rstrip('/')}/{name}"


# -- download ----------------------------------------------------------------------------------


def _download(args: Arguments, sources: list[str], destination: str) -> int:
    client = open_datacenter(datacenter_of(sources, args.text("datacenter")), print_notice)
    pfs = PfsClient(client)
    files = [(source, file) for source in sources for file in _expand(pfs, source)]
    is_folder = destination.endswith("/") or len(files) > 1 or os.path.isdir(destination)
    if is_folder and os.path.exists(destination) and not os.path.isdir(destination):
        raise UsageError(f"{destination} is a file, so several files cannot be copied there.")
    plans = [
        _plan_download(pfs, source, file, destination, is_folder, len(files) > 1) for source, file in files
    ]
    for plan in plans:
        _fetch(args, client, plan)
    return 0


def _expand(pfs: PfsClient, path: str) -> list[PfsFile]:
    """Files and folders of a path or a pattern. A path that exists is not read as a pattern."""
    checked = check_pfs(path)
    exact = pfs.stat(checked)
    if exact is not None:
        return [PfsFile(checked, exact.is_folder, exact.size, exact.mtime_ns)]
    if not has_glob(checked):
        raise PaiError(f"{path}: no such file or folder in the cloud.")
    from fnmatch import fnmatchcase

    parts = checked.split("/")[1:]
    first = next(at for at, part in enumerate(parts) if has_glob(part))
    files = [PfsFile("/" + "/".join(parts[:first]), True, 0, 0)]
    for part in parts[first:]:
        files = [
            PfsFile(posixpath.normpath(item.path), item.is_folder, item.size, item.mtime_ns)
            for folder in files
            if folder.is_folder
            for item in pfs.list(folder.path)
            if fnmatchcase(base_name(item.path), part)
            and (part.startswith(".") or not base_name(item.path).startswith("."))
        ]
    if not files:
        raise PaiError(f"{path}: no file in the cloud matches this pattern.")
    return files


def _plan_download(
    pfs: PfsClient, source: str, file: PfsFile, destination: str, is_folder: bool, is_one_of_many: bool
) -> Download:
    name = base_name(file.path)
    if not file.is_folder:
        from openpaisdk.paddlecloud.local_tree import check_parent

        target = os.path.join(destination, name) if is_folder else destination
        check_parent(target)
        return file.path, [(file, target)], []
    path = source if source.endswith("/") else file.path
    root = _folder_target(path, destination, is_one_of_many) or "/"
    folders = [root]
    files = []
    for item in pfs.list(file.path, recursive=True):
        relative = posixpath.relpath(item.path, file.path)
        parts = relative.split("/")
        if ".." in parts or relative == "." or any("\\" in part for part in parts if os.sep == "\\"):
            raise PaiError(f"The datacenter listed {item.path!r} in {file.path}, where it cannot be.")
        target = os.path.join(root, *parts)
        if item.is_folder:
            folders.append(target)
        else:
            item.path = posixpath.normpath(item.path)
            files.append((item, target))
    return file.path, files, folders


def _fetch(args: Arguments, client: PaddleCloudClient, plan: Download) -> None:
    import threading

    from openpaisdk.paddlecloud.chunk_transfer import (
        DEFAULT_CHUNK_BYTES,
        MAX_THREADS,
        TransferCount,
        download,
    )
    from openpaisdk.paddlecloud.worker_threads import share_work

    source, files, folders = plan
    chunk_bytes = args.number("chunksize") or DEFAULT_CHUNK_BYTES
    counts: list[TransferCount] = []
    lock = threading.Lock()
    with ProgressStep(f"Downloading {source}") as step:
        step.progress.total = sum(file.size for file, _ in files)
        for folder in folders:
            os.makedirs(folder, exist_ok=True)

        def advance(length: int) -> None:
            with lock:
                step.progress.advance(length)

        def fetch(own: PfsClient, item: tuple[PfsFile, str]) -> None:
            file, target = item
            if os.path.isdir(target):
                raise PaiError(f"{target} is a folder, so no file can be copied there.")
            counts.append(download(own, file, target, chunk_bytes=chunk_bytes, advance=advance))

        # Requests for small files mostly wait for the server; a large file has threads for its chunks.
        small = [item for item in files if item[0].size <= chunk_bytes]
        pfs = PfsClient(client)
        clients = [pfs, *(pfs.with_own_connection() for _ in range(min(MAX_THREADS, len(small)) - 1))]
        try:
            share_work(small, clients, fetch)
        finally:
            for own in clients[1:]:
                own.close()
        for item in files:
            if item[0].size > chunk_bytes:
                fetch(pfs, item)
    if args.is_set("v"):
        sent_files = sum(bool(count.sent) for count in counts)
        chunks, sent = sum(count.chunks for count in counts), sum(count.sent for count in counts)
        _print_counts(len(files), sent_files, chunks, sent)


def _print_counts(files: int, sent_files: int, chunks: int, sent_chunks: int) -> None:
    sys.stdout.write(f"  {sent_files} of {files} files, {sent_chunks} of {chunks} chunks sent\n")
