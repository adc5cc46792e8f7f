"""The embedded cluster's life: where its state lies, its start, its handshake, its upgrade, its end.

The cluster is a process of its own, started detached; nothing of it is imported here. Every command looks at
the handshake file, so that look (``handshake``, ``home``) stays small; ``start`` is loaded when needed.
"""

from openpaisdk.embedded.ensure_running import ensure_running
from openpaisdk.embedded.handshake import Handshake, is_alive, read_handshake
from openpaisdk.embedded.home import find_home

__all__ = ["Handshake", "ensure_running", "find_home", "is_alive", "read_handshake"]
