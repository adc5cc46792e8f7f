"""Sweep: the array of a job whose values come from a file, or from a sample of a space."""

from __future__ import annotations

from openpaisdk.jobs.task_array import OPTION, RowArray, array_of
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from openpaisdk.jobs.task_array import TaskArray


_DRAWN = ("sample", "sample_seed")


def sweep_array(given: Mapping[str, Any]) -> RowArray:
    """The array of options, by keyword, with values of a file or a sample."""
    import os

    array, file = given.get("array"), given.get("array_file")
    sample, seed = given.get("sample"), given.get("sample_seed")
    if file and array:
        raise UsageError(
            f"{OPTION} and --array-file contradict each other: both give the values of the tasks.",
            hint="Add the values to the file as columns.",
        )
    if file and sample:
        raise UsageError(
            "--array-file and --sample contradict each other: the rows of the file are the tasks.",
            hint=f"Give the space of a sample with {OPTION}.",
        )
    if seed is not None and not sample:
        raise UsageError(
            "--sample-seed says which values --sample draws, and there is no --sample.",
            hint="Add --sample N, or leave --sample-seed out.",
        )
    if file:
        from openpaisdk.jobs.array_file import read_array_file

        return read_array_file(os.fspath(file))
    if not array:
        raise UsageError(
            "--sample draws values, and there is nothing to draw from.",
            hint=f"Give the space with {OPTION}, like {OPTION} 'lr=log(1e-5,1e-1)' {OPTION} 'layers=1..8'",
        )
    from openpaisdk.jobs.array_sample import sample_array
    from openpaisdk.jobs.option_values import whole_number

    return sample_array(array, sample, whole_number(seed or 0, 0, "sample_seed"))


def sweep_options(values: Any, limit: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of ``Job.sweep`` as those of ``Job.one_liner``, by keyword."""
    import os

    if "array" in options or "array_file" in options:
        raise UsageError("The values of a sweep are given once: leave array and array_file out.")
    if limit < 0:
        raise UsageError(f"limit is {limit}: it is how many tasks run at a time, and 0 for all.")
    is_file = isinstance(values, os.PathLike) or (isinstance(values, str) and "=" not in values)
    given = {**options, "array_file" if is_file else "array": values}
    drawn = {key: value for key in _DRAWN if (value := given.pop(key, None)) not in (None, 0)}
    array = sweep_array({**given, **drawn}) if is_file or drawn else array_of(values)
    array.limit = limit or array.limit
    return {**options, **dict.fromkeys(_DRAWN), "array": array}


def check_size(array: TaskArray, job: Mapping[str, object]) -> None:
    """Refuse rows with which the job has more text than a cluster accepts."""
    import json

    from paiprotocol.jobs.document import MAX_BYTES

    size = len(json.dumps(job)) if isinstance(array, RowArray) else 0
    if size > MAX_BYTES:
        fitting = int(array.count * MAX_BYTES / size)
        raise UsageError(
            f"With its {array.count} rows of values the job has {size / (1 << 20):.1f} MiB of text, and a "
            f"job may have {MAX_BYTES >> 20} MiB: about {fitting} rows fit.",
            hint="Submit several jobs, or let each task look up long values in a file by a short one.",
        )
