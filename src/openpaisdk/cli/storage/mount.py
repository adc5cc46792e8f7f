"""``pai mount`` and ``pai unmount``: a storage as a folder of this machine."""

from __future__ import annotations

import os
import signal
import sys
import time

from openpaisdk.cli.main import INTERRUPTED, run_program
from openpaisdk.cli.parser import command_parser
from openpaisdk.config.paths import display_path, make_private, user_folder
from openpaisdk.output import print_notice
from openpaisdk.storage.location import LOCAL, parse_location
from paiprotocol.errors import ConfigError, PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.storage.location import Location

_KIND = "pai"
LOG = "mount.log"
"""In the settings folder: what mounts in the background could not write."""
MAX_LOG_BYTES = 1 << 20
"""A mount that begins with a larger log starts a new one and keeps the old one as ``mount.log.1``."""


def mount(argv: list[str]) -> int:
    """``pai mount address folder``"""
    parser = command_parser(
        "mount",
        "pai mount pai://team/0/alice/data data\n"
        "pai mount --background --read-only pai://team/0/datasets /mnt/datasets\n"
        "pai unmount data",
        "Programs then use the files of the storage like any others. A file that a program writes is on the "
        "storage when the program has closed it; until then others see the old one. Unmounts at Ctrl-C or "
        "when the process ends. Needs Linux with FUSE, and root or the program fusermount.",
        cluster=False,
        output=False,
    )
    parser.add_argument(
        "--background",
        action="store_true",
        help="return as soon as it is mounted; ~/.openpai/mount.log has what could not be written later",
    )
    parser.add_argument("--read-only", action="store_true", help="let no program change the files")
    parser.add_argument(
        "address",
        help="the folder to mount: pai://<cluster>/<storage>/<path>, hdfs://..., s3://..., az://...",
    )
    parser.add_argument("folder", help="an empty folder of this machine")
    args = parser.parse(argv)
    location = parse_location(args.address)
    if location.kind == LOCAL:
        raise UsageError(
            f"{args.address} is a path on this machine; only a storage can be mounted.",
            hint="Write pai://<cluster>/<storage>/<path>, hdfs://HOST[:PORT]/path, s3://BUCKET/path or "
            "az://CONTAINER/path.",
        )
    if sys.platform == "linux":
        from pairuntime.fuse.mount_point import MountError, check_available, check_folder, run_in_background

        try:
            check_available()
            folder = check_folder(args.folder, "pai unmount")
        except MountError as e:
            raise UsageError(e.message, hint=e.hint) from None

        def run(on_mounted: Callable[[], None], report: Callable[[str], None]) -> int:
            return _serve(location, folder, args.read_only, on_mounted, report)

        if not args.background:
            return run(lambda: _announce(args.address, folder), _report)
        log = _open_log()
        try:
            status = run_in_background(
                lambda on_mounted: run_program("pai", [], lambda _: run(on_mounted, _report_with_time)), log
            )
        finally:
            os.close(log)
        if status == 0:
            _announce(args.address, folder)
        return status
    raise _needs_linux("mount")


if sys.platform == "linux":

    def _open_log() -> int:
        path = os.path.join(user_folder(), LOG)
        try:
            make_private(user_folder())
            if os.path.exists(path) and os.path.getsize(path) > MAX_LOG_BYTES:
                os.replace(path, path + ".1")
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as e:
            raise ConfigError(f"{display_path(path)} cannot be written: {e.strerror}.") from None

    def _report(sentence: str) -> None:
        print_notice(f"pai: {sentence}")

    def _report_with_time(sentence: str) -> None:
        print_notice(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}")

    def _serve(
        location: Location,
        folder: str,
        is_read_only: bool,
        on_mounted: Callable[[], None],
        report: Callable[[str], None],
    ) -> int:
        from openpaisdk.storage.catalog import StorageOpener
        from openpaisdk.storage.mount import StorageFileSystem
        from pairuntime.fuse.mount_point import Mount, MountError

        opener = StorageOpener(print_notice)
        if opener.is_job_address(location):
            is_read_only = True
            if location.path == "/":
                raise UsageError(f"{location.text} names no job.", hint="Write pai://<cluster>/jobs/JOB.")
        backend, path = opener.open(location)
        info = backend.status(path)
        if info is None:
            raise opener.not_found(location)
        if not info.is_folder:
            raise UsageError(f"{location.text} is a file; only a folder can be mounted.")
        files = StorageFileSystem(backend, path, is_read_only=is_read_only)
        try:
            mounted = Mount(files, folder, location.text, _KIND)
        except MountError as e:
            raise PaiError(e.message, hint=e.hint) from None
        stopped_by = mounted.serve(on_mounted, report)
        return INTERRUPTED if stopped_by == signal.SIGINT else 0


def _announce(address: str, folder: str) -> None:
    sys.stdout.write(f"Mounted {address} on {folder}\n")
    sys.stdout.flush()


def unmount(argv: list[str]) -> int:
    """``pai unmount folder``"""
    parser = command_parser(
        "unmount",
        "pai unmount data",
        "Files that programs have closed are complete on the storage. A folder that a program still uses "
        "stays mounted.",
        cluster=False,
        output=False,
    )
    parser.add_argument("folder", help="the folder that is mounted")
    args = parser.parse(argv)
    if sys.platform == "linux":
        from pairuntime.fuse.mount_point import MountError
        from pairuntime.fuse.mount_point import unmount as unmount_folder

        try:
            unmount_folder(args.folder)
        except MountError as e:
            raise UsageError(e.message, hint=e.hint) from None
        return 0
    raise _needs_linux("unmount")


def _needs_linux(command: str) -> UsageError:
    return UsageError(
        f"pai {command} needs Linux with FUSE; this machine has another system.",
        hint="Copy the files with pai copy, or read them in Python with fsspec.",
    )
