"""Types of settings that the sections of engines share with other sections of a cluster's file."""

from __future__ import annotations

from typing import Any

from paiprotocol.jobs.schema_nodes import Int, Node, Text

NAME = Text(pattern=r"[A-Za-z0-9_]+", form="a name of letters, digits and _")


class Number(Node):
    """A number of 0 or more, or within limits, whole or not."""

    expected = "a number of 0 or more"

    def __init__(self, doc: str = "", *, minimum: float = 0, maximum: float | None = None):
        super().__init__(doc)
        self._minimum = minimum
        self._maximum = 1e12 if maximum is None else maximum
        if maximum is not None:
            self.expected = f"a number from {minimum:g} to {maximum:g}"

    def accepts(self, value: Any) -> bool:
        return type(value) in (int, float) and self._minimum <= value <= self._maximum


RESOURCES: dict[str, Node] = {
    "gpus": Int("GPUs.", minimum=0),
    "cpus": Int("Cores.", minimum=0),
    "memory-mb": Int("Memory.", minimum=0),
}
