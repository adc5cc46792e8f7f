"""First process of a reader's machine: namespaces of its own for mounts, ports and processes.

Started by `support.reader` with the folder that becomes /home/alice. It ends when its standard input is
closed, and with it ends everything that runs on the machine.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

USER = "alice"
HOME = f"/home/{USER}"
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def main(folder: str) -> None:
    # /proc is still that of the machine outside, which knows this process by that number.
    outside_pid = Path("/proc/self").readlink().name
    _mount("-t", "proc", "proc", "/proc")
    _make_home(Path(folder))
    _make_user(Path(folder))
    _enable_loopback()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans become children of the first process
    print(outside_pid, flush=True)
    sys.stdin.read()


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _make_home(folder: Path) -> None:
    """Put the folder to /home/alice, beside the homes that are there: the checkout may be in one of them."""
    others, home = folder / "homes", Path("/home")
    others.mkdir()
    _mount("--rbind", str(home), str(others))
    inside = folder / "home"
    inside.mkdir()
    _mount("--bind", str(folder), str(folder))  # it may itself be below /home, which is covered next
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(home))
    place = Path(f"/proc/self/fd/{opened}")
    for other in (place / "homes").iterdir():
        if other.is_dir() and not other.is_symlink() and other.name != USER:
            (home / other.name).mkdir()
            subprocess.run(
                ["mount", "--rbind", str(place / "homes" / other.name), str(home / other.name)],
                check=True,
                pass_fds=[opened],
            )
    Path(HOME).mkdir()
    subprocess.run(["mount", "--bind", str(place / "home"), HOME], check=True, pass_fds=[opened])
    os.close(opened)


def _make_user(folder: Path) -> None:
    """Let the account of these processes have the reader's name. The first entry of a number counts.

    In a copy of all of /etc: a mount on the file alone goes when another test adds a user to the machine.
    """
    settings = folder / "etc"
    subprocess.run(["cp", "-a", "/etc", str(settings)], stderr=subprocess.DEVNULL, check=False)
    accounts = settings / "passwd"
    accounts.write_text(f"{USER}:x:0:0::{HOME}:/bin/bash\n" + accounts.read_text())
    _mount("--bind", str(settings), "/etc")


def _enable_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(s, _SIOCGIFFLAGS, request))
        fcntl.ioctl(s, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


if __name__ == "__main__":
    main(sys.argv[1])
