"""Home of the embedded cluster: the folder of its state.

One folder per machine under ``~/.openpai/local``, since several machines may share a home folder. If the home
folder is on a network file system (no safe locks, no safe database), the state is on a local disk, and the
file ``location`` in the machine's folder holds its path.
"""

from __future__ import annotations

import os
import sys

from openpaisdk.config.paths import display_path, make_private, user_folder
from paiprotocol.errors import ConfigError

POINTER = "location"
LOCAL_DISKS = ("/var/tmp", "/tmp")


def network_type(path: str) -> str:
    """The type of the network file system that a path lies on; empty for a local one."""
    from pairuntime.local_files import network_fs

    return network_fs.network_type(path)


def machine_name() -> str:
    """This machine's name, made safe for a folder name."""
    if sys.platform == "win32":
        name = os.environ.get("COMPUTERNAME", "")
    else:
        name = os.uname().nodename
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".")
    return safe or "localhost"


def machine_folder() -> str:
    return os.path.join(user_folder(), "local", machine_name())


def find_home() -> str:
    """The home, whether or not it exists. Cheap: every command calls it."""
    folder = machine_folder()
    try:
        with open(os.path.join(folder, POINTER), encoding="utf-8") as f:
            return f.read().strip() or folder
    except FileNotFoundError:
        return folder
    except OSError as e:
        raise ConfigError(f"{display_path(folder)} cannot be read: {e.strerror}.") from None


def make_home() -> str:
    """The home, created if missing: private, owned by this user, on a local disk."""
    folder = machine_folder()
    home = find_home()
    try:
        if home == folder and not os.path.isdir(folder) and network_type(user_folder()):
            home = _on_local_disk() or folder
        _check_sudo(home)
        make_private(home)
        if home != folder:
            make_private(folder)
            with open(os.path.join(folder, POINTER), "w", encoding="utf-8") as f:
                f.write(home + "\n")
        _check_owner(home)
    except OSError as e:
        raise ConfigError(
            f"The cluster's folder {display_path(home)} cannot be created: {e.strerror}.",
            hint="It is in your home folder, which HOME names.",
        ) from None
    return home


def work_folder(uid: str) -> str:
    """Working folder of a task of the embedded cluster; empty if it was deleted."""
    folder = os.path.join(find_home(), "tasks", uid[:2], uid, "work")
    return folder if uid and os.sep not in uid and os.path.isdir(folder) else ""


def _on_local_disk() -> str:
    """A folder on a local disk; one per home folder, since a user may have several."""
    if sys.platform != "win32":
        from zlib import crc32

        suffix = f"{crc32(os.path.realpath(os.path.expanduser('~')).encode('utf-8', 'surrogateescape')):08x}"
        for disk in LOCAL_DISKS:
            if os.path.isdir(disk) and not network_type(disk):
                own = os.path.join(disk, f"openpai-{os.getuid()}")
                os.makedirs(own, mode=0o700, exist_ok=True)
                _check_owner(own)
                return os.path.join(own, suffix)
    return ""


def _check_sudo(folder: str) -> None:
    """Under sudo HOME may still be that of a user: a folder created by root would lock this user out."""
    if sys.platform != "win32" and os.geteuid() == 0:
        folder = os.path.abspath(folder)
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        owner = os.lstat(folder).st_uid
        if owner and _has_account(owner):
            raise _wrong_owner(folder)


def _has_account(uid: int) -> bool:
    """Whether a uid has an account: in a container, a mounted folder may belong to an unknown uid."""
    if sys.platform != "win32":
        import pwd

        try:
            pwd.getpwuid(uid)
        except KeyError:
            return False
    return True


def _wrong_owner(folder: str) -> ConfigError:
    return ConfigError(
        f"{display_path(folder)} belongs to another user, so the cluster's state cannot be stored there.",
        hint="Under sudo, set HOME to root's own: sudo -H pai ...",
    )


def _check_owner(folder: str) -> None:
    """Reject a folder of another user, and make it private: every user may create folders in /var/tmp."""
    if sys.platform != "win32":
        status = os.lstat(folder)
        if status.st_uid != os.geteuid():
            raise _wrong_owner(folder)
        if status.st_mode & 0o077:
            os.chmod(folder, 0o700)
