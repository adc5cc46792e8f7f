"""Finds the running embedded cluster; starts or upgrades it if needed."""

from __future__ import annotations

from openpaisdk.embedded.handshake import Handshake, is_alive, is_listening, read_handshake
from openpaisdk.embedded.home import find_home
from paiprotocol._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def ensure_running(*, notify: Callable[[str], None] | None = None, failed: str = "") -> Handshake:
    """The handshake of the running embedded cluster, which is started if needed.

    ``failed`` is an address that just refused a connection: its process may be exiting, and is waited for.
    The next server has the same address if it can.
    ``notify`` is called with a message before a step that takes long.
    """
    handshake = find_running()
    if handshake and not _is_outdated(handshake) and (handshake.url != failed or is_listening(handshake)):
        return handshake
    from openpaisdk.embedded.start import start

    return start(notify=notify, failed=failed)


def find_running() -> Handshake | None:
    """The running cluster, or None. Starts nothing."""
    handshake = read_handshake(find_home())
    return handshake if handshake and is_alive(handshake) else None


def rediscover() -> Handshake | None:
    """For a follower that lost its connection: restarts a cluster that crashed, but not one that was stopped.

    A regular stop removes the handshake file; a killed server leaves it behind.
    """
    handshake = read_handshake(find_home())
    if handshake is None:
        return None
    if is_alive(handshake):
        return handshake
    from openpaisdk.embedded.start import start

    return start()


def _is_outdated(handshake: Handshake) -> bool:
    if handshake.version == __version__:
        return False
    from openpaisdk.embedded.versions import is_older

    return is_older(handshake.version, __version__)
