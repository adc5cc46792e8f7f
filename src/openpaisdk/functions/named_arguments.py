"""Named arguments of many calls: all combinations of values, rows, or a sample of a space."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from openpaisdk.functions.function_job import check_arguments
from openpaisdk.functions.usage_errors import CallUsageError
from openpaisdk.jobs.array_sample import choices, read_sample, sample_of, space_of
from openpaisdk.jobs.option_values import whole_number

if TYPE_CHECKING:
    from openpaisdk.functions.function_job import Call

    Arguments = Mapping[str, Any] | Iterable[Mapping[str, Any]]


def calls_with(function: Callable[..., Any], arguments: Arguments, sample: int, seed: int) -> list[Call]:
    """A call of the function for each row of arguments. The values are those of the program, not texts."""
    if sample and not isinstance(arguments, Mapping):
        raise CallUsageError(
            "sample draws from a space, and arguments are rows already.",
            hint='Give values by name, like arguments={"lr": "log(1e-5,1e-1)", "layers": range(1, 9)}.',
        )
    if not sample and seed:
        raise CallUsageError("sample_seed says which values sample draws, and there is no sample.")
    rows: list[Any]
    if not isinstance(arguments, Mapping):
        rows = list(arguments)
    elif sample:
        rows = _sampled(arguments, sample, seed)
    else:
        values = [_values(name, items) for name, items in arguments.items()]
        rows = [dict(zip(arguments, row, strict=True)) for row in itertools.product(*values)]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise CallUsageError(
                f"Row {number} of arguments is {row!r}: give a dictionary of named arguments."
            )
        check_arguments(function, (), row)
    return [((), dict(row)) for row in rows]


def _sampled(arguments: Mapping[str, Any], sample: int, seed: int) -> list[dict[str, Any]]:
    spaces = {
        name: space_of(items, f"{name}={items}") if isinstance(items, str) else choices(_values(name, items))
        for name, items in arguments.items()
    }
    count, _ = read_sample(sample)
    drawn = sample_of(spaces, count, whole_number(seed, 0, "sample_seed"))
    return [dict(zip(drawn, row, strict=True)) for row in zip(*drawn.values(), strict=True)]


def _values(name: str, items: object) -> list[Any]:
    values = [] if isinstance(items, str | bytes) or not isinstance(items, Iterable) else list(items)
    if not values:
        raise CallUsageError(
            f"The values of {name} are {items!r}: give a list with one of them at least.",
            hint="A text like log(1e-5,1e-1) is a space, which needs sample=N."
            if isinstance(items, str)
            else "",
        )
    return values
