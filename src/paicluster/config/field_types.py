"""Field types that several sections of a cluster's file share, those of the engines among them."""

from __future__ import annotations

from typing import Any

from openpaisdk.protocol.schema_nodes import Int, Node, Text

NAME = Text(pattern=r"[A-Za-z0-9_]+", form="a name of letters, digits and _")


class Number(Node):
    """A number of 0 or more, whole or not."""

    expected = "a number of 0 or more"

    def accepts(self, value: Any) -> bool:
        return type(value) in (int, float) and 0 <= value < 1e12


RESOURCES: dict[str, Node] = {
    "gpus": Int("GPUs.", minimum=0),
    "cpus": Int("Cores.", minimum=0),
    "memory-mb": Int("Memory.", minimum=0),
}
