"""Process that serves one storage of a task as a folder. The supervisor of the task starts it.

The first line of its standard input is the request, with the credentials; it answers `mounted`, or with the
sentence for the task's log. It unmounts when the input ends, and ignores the signals by which schedulers end
all processes of a task: what the task writes when it gets them must still arrive. Linux only.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from functools import partial

from openpaisdk.storage.catalog import bucket_path
from openpaisdk.storage.cloud import SAMBA, open_storage
from paiprotocol.errors import ConfigError, PaiError
from pairuntime.supervisor.storage_mounts import FILES_LOST_STATUS, MOUNTED

assert sys.platform == "linux"

# ruff: noqa: E402 - these are for Linux only
from openpaisdk.storage.kernel_mount import azure_file_mount, nfs_mount
from openpaisdk.storage.mount import StorageFileSystem
from pairuntime.fuse.mount_point import Mount, MountError, check_available

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from openpaisdk.storage.backends.base import Backend

# By which it tells itself that the input has ended. No scheduler sends it.
_STOP_SIGNAL = signal.SIGRTMIN
_IGNORED_SIGNALS = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
)
_MAX_REPORTS = 100
"""Reports about files that could not be written. A program that ignores this many ignores all."""


class MountRequest:
    """What is mounted where: ``data`` is OpenPAI's description of the storage, with its credentials."""

    def __init__(self, fields: dict[str, object]):
        data = fields["data"]
        assert isinstance(data, dict)
        self.kind = str(fields["kind"])
        self.name = str(fields["name"])
        self.data: dict[str, object] = data
        # Folder of the storage that is the root of the mount, for a storage that users do not share.
        self.sub_folder = str(fields.get("sub_folder") or "")
        self.is_read_only = bool(fields.get("read_only"))
        self.folder = str(fields["folder"])
        self.shown_at = str(fields["shown_at"])
        owner = fields["owner"]
        assert isinstance(owner, list)
        self.owner = int(owner[0]), int(owner[1])


def main() -> int:
    for signum in _IGNORED_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    request = MountRequest(json.loads(sys.stdin.buffer.readline()))
    reports = Reports()
    try:
        serve = _mount(request, reports)
    except MountError as e:
        return _fail(e.message, e.hint)
    except ConfigError as e:
        return _fail(e.message, e.hint)
    except PaiError as e:
        # The hints of the backend are for the owner of the credentials, not for the user of the job.
        return _fail(e.message, "An administrator of the cluster has to check the storage.")
    serve()
    return FILES_LOST_STATUS if reports.count else 0


def _mount(request: MountRequest, reports: Reports) -> Callable[[], object]:
    """Mount a storage. The result serves it until the input ends, and unmounts it."""
    by_kernel = None
    if request.kind == "nfs":
        by_kernel = nfs_mount(request.data, request.sub_folder)
    elif request.kind == "azurefile":
        by_kernel = azure_file_mount(request.data, request.sub_folder, request.owner)
    if by_kernel is not None:
        by_kernel.mount(request.folder, is_read_only=request.is_read_only)
        return partial(_wait_for_signal, partial(by_kernel.unmount, request.folder))
    check_available()
    mounted = Mount(
        StorageFileSystem(_open(request), "/", is_read_only=request.is_read_only),
        request.folder,
        f"{request.kind}:{request.name}",
        "pai",
        request.owner,
        request.shown_at,
    )
    return partial(mounted.serve, _tell_mounted, reports, (_STOP_SIGNAL,))


def _open(request: MountRequest) -> Backend:
    """The storage; an error if it cannot be reached with these credentials."""
    options = {key: value for key, value in request.data.items() if isinstance(value, str)}
    is_share = request.kind == SAMBA
    backend = open_storage(
        request.kind,
        request.shown_at,
        request.sub_folder if is_share else bucket_path(request.data, request.sub_folder),
        endpoint_url=options.get("address" if is_share else "endpointUrl", ""),
        options=options,
        read_only=request.is_read_only,
    )
    if request.sub_folder and is_share and not request.is_read_only:
        backend.make_folder("/")
    backend.is_empty("/")
    return backend


def _wait_for_signal(unmount: Callable[[], None]) -> None:
    stopped = threading.Event()
    signal.signal(_STOP_SIGNAL, lambda *_: stopped.set())
    _tell_mounted()
    stopped.wait()
    unmount()


def _fail(message: str, hint: str | None) -> int:
    sys.stdout.write(" ".join(filter(None, (message, hint))) + "\n")
    return 1


def _tell_mounted() -> None:
    # Only now: this process handles the signal by which the end of its input stops it.
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    os.write(1, MOUNTED)


def _stop_at_end_of_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), _STOP_SIGNAL)


class Reports:
    """Writes reports about lost files to the standard error, which the task's log gets; not without end."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, sentence: str) -> None:
        self.count += 1
        if self.count <= _MAX_REPORTS:
            sys.stderr.write(f"{sentence}\n")
        elif self.count == _MAX_REPORTS + 1:
            sys.stderr.write("More files could not be written.\n")
        sys.stderr.flush()


def run() -> NoReturn:
    """Run the process to its end."""
    exit_status = main()
    sys.stdout.flush()
    # Threads of the kernel's requests and of the storage's library may be waiting for something.
    os._exit(exit_status)


if __name__ == "__main__":
    run()
