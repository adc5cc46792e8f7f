"""``paddlecloud pfs ls``, ``rm`` and ``mkdir``: files and folders in the cloud."""

from __future__ import annotations

import sys
import time

from openpaisdk.output import print_notice
from openpaisdk.output.untrusted_text import printable
from openpaisdk.paddlecloud.connection import open_datacenter
from openpaisdk.paddlecloud.flags import Flag, FlagCommand
from openpaisdk.paddlecloud.pfs_client import NO_FILE, PfsClient
from openpaisdk.paddlecloud.pfs_path import check_below_root, check_pfs, datacenter_of
from paiprotocol.errors import NotFound, PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.paddlecloud.flags import Arguments

_IS_FOLDER = "can't del directory"
"""In the error of servers for a folder without ``-r``."""

LIST_FILES = FlagCommand(
    "pfs ls",
    "<path> ...",
    "list files",
    "paddlecloud pfs ls /pfs/datacenter1/home/user1\npaddlecloud pfs ls '/pfs/datacenter1/home/user1/*.log'",
    Flag("r", "also what is in the folders below"),
    count=(1, None),
    details="Time of the last change, d for folders or f for files, size, and path. Patterns are expanded.",
)
REMOVE = FlagCommand(
    "pfs rm",
    "<path> ...",
    "delete files and folders",
    "paddlecloud pfs rm /pfs/datacenter1/home/user1/old.log\n"
    "paddlecloud pfs rm -r /pfs/datacenter1/home/user1/job_word_emb/output",
    Flag("r", "delete folders with everything in them"),
    count=(1, None),
    details="Patterns are expanded. Your home itself is never deleted, only what is in it.",
)
MAKE_FOLDERS = FlagCommand(
    "pfs mkdir",
    "<path> ...",
    "create folders",
    "paddlecloud pfs mkdir /pfs/datacenter1/home/user1/data/train",
    count=(1, None),
    details="Missing folders above are created, too. A folder that exists is no error.",
)


def list_files(argv: list[str]) -> int:
    """``paddlecloud pfs ls [-r] <path> ...``"""
    args = LIST_FILES.parse(argv)
    pfs = _open(args)
    for word in args.positional:
        try:
            files = pfs.list(check_pfs(word), recursive=args.is_set("r"))
        except NotFound as e:
            if e.code != NO_FILE:
                raise
            raise PaiError(f"{word}: no such file or folder in the cloud.") from None
        sys.stdout.write(f"{printable(word)} :\n")
        width = max((len(str(file.size)) for file in files), default=0)
        for file in files:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(file.mtime_ns // 1_000_000_000))
            kind = "d" if file.is_folder else "f"
            sys.stdout.write(f"{when} {kind} {file.size:>{width}} {printable(file.path)}\n")
        sys.stdout.write("\n")
    return 0


def remove(argv: list[str]) -> int:
    """``paddlecloud pfs rm [-r] <path> ...``"""
    args = REMOVE.parse(argv)
    for word in args.positional:
        check_below_root(word)

    def remove_one(pfs: PfsClient, path: str) -> None:
        try:
            pfs.remove(path, recursive=args.is_set("r"))
        except PaiError as e:
            if _IS_FOLDER in e.message:
                raise PaiError(e.message, hint="Add -r to delete folders with everything in them.") from None
            raise

    return _change_each(args, "rm", remove_one)


def make_folders(argv: list[str]) -> int:
    """``paddlecloud pfs mkdir <path> ...``"""
    return _change_each(MAKE_FOLDERS.parse(argv), "mkdir", lambda pfs, path: pfs.make_folders([path]))


def _change_each(args: Arguments, verb: str, change: Callable[[PfsClient, str], None]) -> int:
    """Change one path after the other; each is printed when it is done. A wrong path changes nothing."""
    paths = [check_pfs(word) for word in args.positional]
    pfs = _open(args)
    for path in paths:
        change(pfs, path)
        sys.stdout.write(f"{verb} {printable(path)}\n")
    return 0


def _open(args: Arguments) -> PfsClient:
    return PfsClient(open_datacenter(datacenter_of(args.positional, args.text("datacenter")), print_notice))
