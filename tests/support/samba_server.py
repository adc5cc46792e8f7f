"""A real smbd on this machine, with one account, a share for it, and one for guests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.cli_user import until
from support.external_services import debian
from support.ports import free_ports

PASSWORD = "samba-secret-7"


@dataclass
class SambaServer:
    """``address`` is that of the share, which is the folder ``folder``; another one is for guests."""

    address: str
    folder: Path
    guest_address: str
    guest_folder: Path
    username: str = "root"
    password: str = PASSWORD


@pytest.fixture(scope="session", name="samba_server")
def samba_server_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SambaServer]:
    """One smbd for all tests of the group `cloud`. It needs root: it changes to the account of its client."""
    debian(["samba"], commands=["smbd", "smbpasswd"])
    home = tmp_path_factory.mktemp("samba")
    share, guests, state = home / "share", home / "guests", home / "state"
    for folder in (share, guests, state):
        folder.mkdir()
    (port,) = free_ports(1)
    folders = "".join(
        f"{name} directory = {state}\n" for name in ("private", "lock", "state", "cache", "pid")
    )
    config = home / "smb.conf"
    config.write_text(
        f"[global]\nsmb ports = {port}\ninterfaces = 127.0.0.1\nbind interfaces only = yes\n"
        f"server role = standalone server\nlog file = {home}/log\nload printers = no\ndisable spoolss = yes\n"
        f"passdb backend = tdbsam:{state}/passdb.tdb\n{folders}ncalrpc dir = {state}\n"
        f"map to guest = Bad User\n[data]\npath = {share}\nread only = no\n"
        f"[guests]\npath = {guests}\nread only = no\nguest ok = yes\nforce user = root\n"
    )
    words = f"{PASSWORD}\n{PASSWORD}\n"
    subprocess.run(
        ["smbpasswd", "-c", str(config), "-s", "-a", "root"], input=words, text=True, check=True, timeout=60
    )
    with (home / "out").open("wb") as out:
        command = ["smbd", "--foreground", "--no-process-group", f"--configfile={config}"]
        # Of its own: it passes SIGTERM on to its whole session.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True
        )
        try:
            until(lambda: _accepts(port))
            server = f"//127.0.0.1:{port}"
            yield SambaServer(f"{server}/data", share, f"{server}/guests", guests)
        finally:
            process.terminate()
            process.wait()


def _accepts(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
