"""Mounts of network file systems by the kernel, by programs that stand for those of the machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.cli_user import until

if sys.platform != "linux":
    pytest.skip("Linux only", allow_module_level=True)

from openpaisdk.storage import kernel_mount
from pairuntime.fuse.mount_point import MountError

# As the real one, it starts the program of the file system, which waits for the server.
MOUNT = '#!/bin/sh\nmount.nfs "$@"\n'
MOUNT_NFS = "#!/bin/sh\necho $$ > {pids}\nsleep 600\n"


def test_nothing_goes_on_after_a_server_did_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    for name, text in {"mount": MOUNT, "mount.nfs": MOUNT_NFS.format(pids=pids)}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    detached: list[str] = []
    monkeypatch.setattr(kernel_mount, "detach", detached.append)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    programs = f"{tmp_path}:/usr/bin:/bin"
    mount = kernel_mount.KernelMount(
        "nfs", "nfs-common", "fileserver:/export", "soft", program_path=programs, timeout_s=1
    )
    with pytest.raises(MountError, match="The server of fileserver:/export does not answer"):
        mount.mount(str(tmp_path / "folder"), is_read_only=False)
    assert detached == [str(tmp_path / "folder")]
    until(lambda: not is_running(int(pids.read_text())))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
