"""Shortages: what a job asks for and the nodes or its virtual cluster do not have, as sentences for users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paicluster.scheduler.placement import NodeCapacity, best_fit, place_tasks
from paicluster.scheduler.resource_requests import ResourceRequest, Resources

_RESOURCE_NAMES = ("cpu", "memory", "nvidia.com/gpu")
_UNITS = (("core", "cores"), ("MB of memory", "MB of memory"), ("GPU", "GPUs"))


def explain_shortage(nodes: Sequence[NodeCapacity], request: ResourceRequest) -> str:
    """Which resources the nodes lack, as OpenPAI words it, and both numbers; empty if the job fits."""
    words = _shortage_words(nodes, request)
    return " ".join(filter(None, (words, _node_numbers(nodes, request)))) if words else ""


class Misfit(NamedTuple):
    """Why a job can never start: the pending reason, and only its numbers."""

    reason: str
    numbers: str


def never_fits(
    nodes: Sequence[NodeCapacity], vc: str, capacity: Resources, request: ResourceRequest
) -> Misfit | None:
    """Why a job could not start even if these nodes were empty; None if it could.

    ``capacity``: the most that its virtual cluster can have.
    """
    # The virtual cluster often has less than the nodes: its numbers tell more.
    numbers = compare(request, capacity, f"the virtual cluster {vc} has at most {{}}")
    if len(place_tasks([node.copy() for node in nodes], request)) < (request.tasks if request.gang else 1):
        words = _shortage_words(nodes, request)
        numbers = numbers or _node_numbers(nodes, request)
        return Misfit(f"{words} {numbers}".strip(), numbers or words)
    if not numbers:
        return None
    words = f"The job requests more resources than the virtual cluster {vc} can have."
    return Misfit(f"{words} {numbers}", numbers)


def compare(request: ResourceRequest, available: Resources, has: str) -> str:
    """Requested and available amount of each resource that does not suffice; empty if all do.

    ``has`` says what is available, with ``{}`` for the amounts.
    """
    lacking = [
        (asked, amount, unit)
        for asked, amount, unit in zip(request.minimum, available, _UNITS, strict=True)
        if asked > amount
    ]
    if not lacking:
        return ""
    asked = " and ".join(show_amount(asked, unit) for asked, _, unit in lacking)
    amounts = " and ".join(show_amount(max(0, amount), unit) for _, amount, unit in lacking)
    return f"{'The job' if request.gang else 'A task'} asks for {asked}; {has.format(amounts)}."


def _node_numbers(nodes: Sequence[NodeCapacity], request: ResourceRequest) -> str:
    """What the largest task asks for and the most that a node has; else the sums of all tasks and nodes."""
    if not nodes:
        return ""
    free = "" if all(node.free == node.total for node in nodes) else " free"
    for role in request.roles:
        for number, (asked, unit) in enumerate(zip(role.each, _UNITS, strict=True)):
            most = max(node.free[number] for node in nodes)
            if asked > most:
                has = f"no node has more than {show_amount(max(0, most), unit)}{free}"
                return f"A task asks for {show_amount(asked, unit)}; {has}."
    total = Resources()
    for node in nodes:
        total = total.plus(node.free)
    return compare(request, total, f"all nodes together have {{}}{free}")


def show_amount(number: int, unit: tuple[str, str]) -> str:
    """A number with its unit, singular or plural."""
    return f"{number} {unit[0] if number == 1 else unit[1]}"


def _shortage_words(nodes: Sequence[NodeCapacity], request: ResourceRequest) -> str:
    """As OpenPAI words it: ``0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.``"""
    candidates = [node.copy() for node in nodes]
    for role in request.roles:
        for _ in range(role.instances):
            node = best_fit(candidates, role)
            if node is None:
                return _shortages(candidates, role.each)
            node.allocate(role.each)
    return ""


def _shortages(nodes: Sequence[NodeCapacity], each: Resources) -> str:
    counts: dict[str, int] = {}
    for node in nodes:
        for name, requested, free in zip(_RESOURCE_NAMES, each, node.free, strict=True):
            if requested > free:
                counts[name] = counts.get(name, 0) + 1
    parts = ", ".join(f"{count} Insufficient {name}" for name, count in counts.items())
    return (
        f"0/{len(nodes)} nodes are available: {parts}." if parts else f"0/{len(nodes)} nodes are available."
    )
