"""Finds the running embedded cluster; starts or upgrades it if needed."""

from __future__ import annotations

from openpaisdk._version import __version__
from openpaisdk.embedded.handshake import Handshake, is_alive, is_listening, read_handshake
from openpaisdk.embedded.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def ensure_running(*, notify: Callable[[str], None] | None = None, failed: str = "") -> Handshake:
    """The handshake of the running embedded cluster, which is started if needed.

    ``failed`` is an address that just refused a connection: its process may be exiting, and is waited for.
    The next server has the same address if it can.
    ``notify`` is called with a message before a step that takes long.
    """
    found = find_running()
    if found and not _is_outdated(found) and (found.url != failed or is_listening(found)):
        return found
    from openpaisdk.embedded.start import start

    return start(notify=notify, failed=failed)


def find_running() -> Handshake | None:
    """The running cluster, or None. Starts nothing."""
    found = read_handshake(find_home())
    return found if found and is_alive(found) else None


def rediscover() -> Handshake | None:
    """For a follower that lost its connection: restarts a cluster that crashed, but not one that was stopped.

    A regular stop removes the handshake file; a killed server leaves it behind.
    """
    found = read_handshake(find_home())
    if found is None:
        return None
    if is_alive(found):
        return found
    from openpaisdk.embedded.start import start

    return start()


def _is_outdated(found: Handshake) -> bool:
    if found.version == __version__:
        return False
    from openpaisdk.embedded.versions import is_older

    return is_older(found.version, __version__)
