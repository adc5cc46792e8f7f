"""Mounts of network file systems by the kernel: NFS, and Azure Files over SMB. Linux only, and as root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

assert sys.platform == "linux"

from pairuntime.fuse.mount_point import MountError, detach  # noqa: E402 - for Linux only

_PROGRAM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_TIMEOUT_S = 60
# A server that does not answer gives errors, and not programs that nothing can end.
_COMMON_OPTIONS = "nosuid,nodev,soft"
_NFS_OPTIONS = "timeo=100,retrans=3"
_AZURE_HOST = "file.core.windows.net"


class KernelMount:
    """A file system for which the kernel needs a program of its own (``mount.nfs``, ``mount.cifs``)."""

    def __init__(
        self,
        file_system: str,
        package: str,
        source: str,
        options: str,
        secrets: dict[str, str] | None = None,
        *,
        program_path: str = _PROGRAM_PATH,
        timeout_s: float = _TIMEOUT_S,
    ):
        self._program_path = program_path
        self._timeout_s = timeout_s
        self._file_system = file_system
        self._package = package
        self._source = source
        self._options = options
        # Passed in the environment: everyone sees the command line.
        self._secrets = secrets or {}

    def mount(self, folder: str, *, is_read_only: bool) -> None:
        """Mount it at a folder; raises MountError."""
        if os.geteuid() != 0:
            raise MountError(
                f"Only root can mount {self._file_system}, and another account starts the tasks here.",
                "Run the cluster as root. On nodes of Slurm, an administrator can mount it for all, and "
                "add the folder as a storage of the type mount.",
            )
        program = f"mount.{self._file_system}"
        if shutil.which(program, path=self._program_path) is None:
            raise MountError(
                f"This machine cannot mount {self._file_system}: it has no program {program}.",
                f"An administrator has to install the package {self._package} on it.",
            )
        options = f"{_COMMON_OPTIONS},{self._options}" + (",ro" if is_read_only else "")
        command = ["mount", "-t", self._file_system, "-o", options, self._source, folder]
        process = subprocess.Popen(
            command,
            env={"PATH": self._program_path, "LANG": "C", **self._secrets},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            errors = process.communicate(timeout=self._timeout_s)[1]
        except subprocess.TimeoutExpired:
            # ``mount`` has started the program of the file system, which might still mount later.
            os.killpg(process.pid, signal.SIGKILL)
            detach(folder)
            raise MountError(f"The server of {self._source} does not answer.") from None
        if process.returncode:
            lines = errors.strip().splitlines() or [f"mount gave the exit status {process.returncode}"]
            raise MountError(f"{self._source}: {lines[0].rpartition(': ')[2].rstrip('.')}.")

    @staticmethod
    def unmount(folder: str) -> None:
        detach(folder)


def nfs_mount(data: dict[str, object], sub_folder: str) -> KernelMount:
    path = "/".join(filter(None, (str(data["path"]).rstrip("/"), sub_folder))) or "/"
    return KernelMount("nfs", "nfs-common", f"{data['server']}:{path}", _NFS_OPTIONS)


def azure_file_mount(data: dict[str, object], sub_folder: str, owner: tuple[int, int]) -> KernelMount:
    account = str(data["accountName"])
    source = "/".join(filter(None, (f"//{account}.{_AZURE_HOST}", str(data["shareName"]), sub_folder)))
    options = f"vers=3.1.1,serverino,username={account},uid={owner[0]},gid={owner[1]}"
    options += ",file_mode=0644,dir_mode=0755"
    return KernelMount("cifs", "cifs-utils", source, options, {"PASSWD": str(data.get("accountKey") or "")})
