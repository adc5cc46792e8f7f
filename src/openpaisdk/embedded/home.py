"""Where the embedded cluster of this machine keeps its state.

A folder for each machine under ``~/.openpai/local``, since a home folder may be shared by many. Where the
home folder lies on a network file system (no safe locks, no safe database) the state goes to a local disk,
and ``location`` in the machine's folder says where.
"""

from __future__ import annotations

import os
import sys

from openpaisdk.config.paths import display_path, make_private, user_folder
from openpaisdk.errors import ConfigError
from openpaisdk.fileio.network_fs import network_type

POINTER = "location"
LOCAL_DISKS = ("/var/tmp", "/tmp")


def machine() -> str:
    """This machine's name, as a folder may be called."""
    if sys.platform == "win32":
        name = os.environ.get("COMPUTERNAME", "")
    else:
        name = os.uname().nodename
    kept = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".")
    return kept or "localhost"


def machine_folder() -> str:
    return os.path.join(user_folder(), "local", machine())


def find_home() -> str:
    """The state folder, whether or not it exists yet. Cheap: every command asks."""
    folder = machine_folder()
    try:
        with open(os.path.join(folder, POINTER), encoding="utf-8") as f:
            return f.read().strip() or folder
    except FileNotFoundError:
        return folder
    except OSError as e:
        raise ConfigError(f"{display_path(folder)} cannot be read: {e.strerror}.") from None


def make_home() -> str:
    """The state folder, made if it is not there yet: private, ours, on a local disk."""
    folder = machine_folder()
    home = find_home()
    try:
        if home == folder and not os.path.isdir(folder) and network_type(user_folder()):
            home = _on_local_disk() or folder
        _leave_to_owner(home)
        make_private(home)
        if home != folder:
            make_private(folder)
            with open(os.path.join(folder, POINTER), "w", encoding="utf-8") as f:
                f.write(home + "\n")
        _check_owner(home)
    except OSError as e:
        raise ConfigError(
            f"The cluster's folder {display_path(home)} cannot be made: {e.strerror}.",
            hint="It lies in your home folder; HOME says where that is.",
        ) from None
    return home


def work_folder(uid: str) -> str:
    """Where a task of this machine's cluster ran and left its files; empty when that is gone."""
    folder = os.path.join(find_home(), "tasks", uid[:2], uid, "work")
    return folder if uid and os.sep not in uid and os.path.isdir(folder) else ""


def _on_local_disk() -> str:
    """A folder of ours on a disk of this machine; one for each home folder: a user may have several."""
    if sys.platform != "win32":
        from zlib import crc32

        mark = f"{crc32(os.path.realpath(os.path.expanduser('~')).encode('utf-8', 'surrogateescape')):08x}"
        for disk in LOCAL_DISKS:
            if os.path.isdir(disk) and not network_type(disk):
                mine = os.path.join(disk, f"openpai-{os.getuid()}")
                os.makedirs(mine, mode=0o700, exist_ok=True)
                _check_owner(mine)
                return os.path.join(mine, mark)
    return ""


def _leave_to_owner(folder: str) -> None:
    """Under sudo HOME may still be somebody's: a folder that root made there would keep him out."""
    if sys.platform != "win32" and os.geteuid() == 0:
        folder = os.path.abspath(folder)
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        owner = os.lstat(folder).st_uid
        if owner and _has_account(owner):
            raise _foreign(folder)


def _has_account(uid: int) -> bool:
    """In a container a folder from outside may belong to a number that nobody there has."""
    if sys.platform != "win32":
        import pwd

        try:
            pwd.getpwuid(uid)
        except KeyError:
            return False
    return True


def _foreign(folder: str) -> ConfigError:
    return ConfigError(
        f"{display_path(folder)} belongs to another user, so the cluster's state cannot lie there.",
        hint="Under sudo, set HOME to root's own: sudo -H pai ...",
    )


def _check_owner(folder: str) -> None:
    """Anybody may make folders in /var/tmp: one that is not ours, or that others may enter, is not used."""
    if sys.platform != "win32":
        found = os.lstat(folder)
        if found.st_uid != os.geteuid():
            raise _foreign(folder)
        if found.st_mode & 0o077:
            os.chmod(folder, 0o700)
