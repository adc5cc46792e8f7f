"""The embedded cluster's life: where its state lies, its start, its handshake, its upgrade, its end.

The cluster is a process of its own, started detached; nothing of it is imported here. Every command looks at
the handshake file, so that look (``handshake``, ``home``) stays small; ``start`` is loaded when needed.
"""

from openpaisdk.local.handshake import Handshake, is_alive, read_handshake
from openpaisdk.local.home import find_home
from openpaisdk.local.ready import ready

__all__ = ["Handshake", "find_home", "is_alive", "read_handshake", "ready"]
