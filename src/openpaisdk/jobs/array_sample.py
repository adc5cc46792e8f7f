"""Sample of a space of values: ``log(1e-5,1e-1)``, ``1..8``, ``adam|sgd``, or any list of ``--array``.

A value follows from the seed, the name of its variable and the number of its row alone, and only from whole
numbers and decimals: it is the same with every Python and on every platform. A larger sample begins with
the smaller one, and another variable changes no value of the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from openpaisdk.jobs.task_array import (
    OPTION,
    RowArray,
    checked_name,
    read_options,
    split_limit,
    values_from,
)
from paiprotocol.errors import UsageError
from paiprotocol.jobs.limits import MAX_TASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Draw = Callable[[int], Any]

SAMPLE_OPTION = "--sample"
_BITS = 64
_DIGITS = 6
"""Significant digits of a real number: more say nothing, and make names of files long."""
_PRECISION = 28
_MAX_LENGTH = 40
"""Characters of a number."""
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_LOG = re.compile(rf"log\(\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\)")
_SPAN = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})")
_COUNT = re.compile(r"[0-9]{1,9}")
_WHOLE = re.compile(r"[-+]?[0-9]+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def read_sample(value: object) -> tuple[int, int]:
    """The number of rows, and how many run at a time (0: all): ``20``, ``"20"`` or ``"20%4"``."""
    count, limit = split_limit(str(value), str(value), SAMPLE_OPTION)
    if isinstance(value, bool) or not _COUNT.fullmatch(count) or not 1 <= int(count) <= MAX_TASKS:
        raise UsageError(
            f"{SAMPLE_OPTION} {value}: use the number of tasks, from 1 to {MAX_TASKS}, or 20%4 for 4 at a "
            "time."
        )
    return int(count), limit


def sample_array(array: Any, sample: object, seed: int) -> RowArray:
    """The array of a sample; ``array``: the space, as texts of ``--array`` or values by name."""
    count, limit = read_sample(sample)
    if isinstance(array, Mapping):
        spaces = {
            checked_name(str(name), f"{OPTION} {name}"): space_of(values, f"{name}={values}")
            for name, values in array.items()
        }
    else:
        texts = [array] if isinstance(array, (str, int)) else array
        sources, of_values = read_options([str(text) for text in texts])
        if limit and of_values and limit != of_values:
            raise UsageError(f"{SAMPLE_OPTION} and {OPTION}: the limits after % contradict each other.")
        limit = limit or of_values
        spaces = {name: space_of(values, text) for name, (values, text) in sources.items()}
    drawn = sample_of(spaces, count, seed)
    return RowArray({name: [str(value) for value in values] for name, values in drawn.items()}, limit)


def sample_of(spaces: Mapping[str, Draw], count: int, seed: int) -> dict[str, list[Any]]:
    """So many values of each space, by name. They may repeat."""
    from hashlib import sha256

    def number(name: str, row: int) -> int:
        digest = sha256(f"{seed}\0{name}\0{row}".encode()).digest()
        return int.from_bytes(digest[: _BITS // 8], "big")

    return {name: [draw(number(name, row)) for row in range(count)] for name, draw in spaces.items()}


def space_of(values: object, text: str) -> Draw:
    """The space of one variable: a text as in the option, or the choices of a program."""
    if isinstance(values, str):
        source = values.strip()
        if found := _LOG.fullmatch(source):
            return _real(found[1], found[2], text, is_log=True)
        if found := _SPAN.fullmatch(source):
            ends = found[1], found[2]
            return _whole(*ends, text) if all(map(_WHOLE.fullmatch, ends)) else _real(*ends, text)
        if source.startswith("log("):
            raise UsageError(
                f"{OPTION} {text}: this is no range of numbers.",
                hint="Write log(LOW,HIGH), like log(1e-5,1e-1).",
            )
        return choices(values_from(values, text, "|" if "|" in _QUOTED.sub("", values) else ","))
    return choices(values_from(values, text))


def choices(values: Sequence[Any]) -> Draw:
    """One of these values, all as likely."""
    return lambda number: values[number * len(values) >> _BITS]


def _whole(low: str, high: str, text: str) -> Draw:
    _check_ends(low, high, text)
    first, last = int(low), int(high)
    if last < first:
        raise _empty_range(low, high, text)
    return lambda number: first + (number * (last - first + 1) >> _BITS)


def _real(low: str, high: str, text: str, *, is_log: bool = False) -> Draw:
    """Real numbers in a range; ``is_log``: each order of magnitude is as likely."""
    from decimal import Context, Decimal

    _check_ends(low, high, text)
    # The functions of decimals are rounded correctly everywhere; those of floats are the C library's.
    context = Context(prec=_PRECISION)
    first, last = Decimal(low), Decimal(high)
    if last <= first:
        raise _empty_range(low, high, text)
    if is_log and float(first) <= 0:
        raise UsageError(f"{OPTION} {text}: the ends of a range by orders of magnitude are above 0.")
    begin, end = (context.ln(first), context.ln(last)) if is_log else (first, last)
    width = context.subtract(end, begin)

    def draw(number: int) -> float:
        share = context.divide(Decimal(number), Decimal(1 << _BITS))
        value = context.add(begin, context.multiply(share, width))
        value = context.exp(value) if is_log else value
        rounded = Context(prec=_DIGITS).plus(value)
        return float(min(max(rounded, first), last))

    return draw


def _check_ends(low: str, high: str, text: str) -> None:
    """Refuse numbers that no program can have."""
    for end in (low, high):
        if len(end) > _MAX_LENGTH or abs(float(end)) == float("inf"):
            raise UsageError(f"{OPTION} {text[:_MAX_LENGTH]}: a number is too large, or too long.")


def _empty_range(low: str, high: str, text: str) -> UsageError:
    return UsageError(
        f"{OPTION} {text}: there is no number between {low} and {high}.",
        hint="Write the smaller number first: 1..8, 0.1..0.5, log(1e-5,1e-1).",
    )
