"""A running cluster, whatever it takes: found, started, or replaced by a newer one."""

from __future__ import annotations

from openpaisdk._version import __version__
from openpaisdk.embedded.handshake import Handshake, is_alive, read_handshake
from openpaisdk.embedded.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def ensure_running(*, tell: Callable[[str], None] | None = None, failed: str = "") -> Handshake:
    """The handshake of a running cluster of this machine, started if need be.

    ``failed`` is an address that has just refused us: its process may be on its way out, and is waited for.
    ``tell`` gets a sentence when something takes longer than a person expects.
    """
    found = find_running()
    if found and not _outdated(found) and found.url != failed:
        return found
    from openpaisdk.embedded.start import start

    return start(tell=tell, failed=failed)


def find_running() -> Handshake | None:
    """The cluster that runs now, or None. Starts nothing."""
    found = read_handshake(find_home())
    return found if found and is_alive(found) else None


def rediscover() -> Handshake | None:
    """For a follower whose connection broke: a cluster that died is started anew, a stopped one is not.

    A cluster that stops in good order takes its handshake with it; one that was killed leaves it behind.
    """
    found = read_handshake(find_home())
    if found is None:
        return None
    if is_alive(found):
        return found
    from openpaisdk.embedded.start import start

    return start()


def _outdated(found: Handshake) -> bool:
    if found.version == __version__:
        return False
    from openpaisdk.embedded.versions import is_older

    return is_older(found.version, __version__)
