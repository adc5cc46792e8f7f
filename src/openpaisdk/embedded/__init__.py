"""Lifecycle of the embedded cluster: home folder, start, handshake, upgrade, stop.

The cluster is a detached process; ``paicluster`` is never imported here. Every command reads the handshake
file, so ``handshake`` and ``home`` stay small; ``start`` is imported when needed. Imports only ``config``,
``paiprotocol`` and `pairuntime.local_files`.
"""

from openpaisdk.embedded.ensure_running import ensure_running
from openpaisdk.embedded.handshake import Handshake, is_alive, read_handshake
from openpaisdk.embedded.home import find_home

__all__ = ["Handshake", "ensure_running", "find_home", "is_alive", "read_handshake"]
