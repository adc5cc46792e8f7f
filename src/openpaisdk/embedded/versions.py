"""Comparison of versions. Client and server come from one package, so plain version numbers suffice."""

from __future__ import annotations


def key(version: str) -> tuple[tuple[int, ...], int, str]:
    """Sorts versions: 0.9 < 0.10.dev1 < 0.10rc1 < 0.10."""
    numbers: list[int] = []
    rest = version
    while rest:
        digits = ""
        while rest[:1].isdigit():
            digits, rest = digits + rest[0], rest[1:]
        if not digits:
            break
        numbers.append(int(digits))
        if rest[:1] != "." or not rest[1:2].isdigit():
            break
        rest = rest[1:]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    suffix = rest.lstrip(".-").partition("+")[0]
    rank = 2 if not suffix else 0 if suffix.startswith("dev") else 1
    return tuple(numbers), rank, suffix


def is_older(one: str, other: str) -> bool:
    return key(one) < key(other)
