"""The node of the engines under test, for their rigs and for servers of their own, which import no rig."""

from __future__ import annotations

from paicluster.engines.interface import Node

NODE = Node("here", "127.0.0.1", cpu=2, memory_mb=1024)
