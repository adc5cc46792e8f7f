"""Array of independent tasks: how many, how many at a time, and the values that each of them gets.

The values of a task follow from its index: the last variable changes fastest. One shell command per variable
sets it, so the job stays small however many tasks it has, and every OpenPAI cluster can run it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from openpaisdk.jobs.command import as_text
from paiprotocol.errors import UsageError
from paiprotocol.jobs.limits import MAX_TASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    ArrayOption = int | str | Sequence[str] | Mapping[str, object]

OPTION = "--array"
_RESERVED_PREFIX = "PAI_"
_RANGE = re.compile(r"([0-9]+)-([0-9]+)(?::([0-9]+))?")
_LIMIT = re.compile(r"%([0-9]+)\s*\Z")
_OPENED = "opening single quote"


class TaskArray:
    """Tasks of an array. ``limit``: how many run at a time, 0 for all; ``variables``: values by name."""

    __slots__ = ("count", "limit", "variables")

    def __init__(self, count: int, limit: int = 0, variables: Mapping[str, Sequence[str]] | None = None):
        self.count = count
        self.limit = limit
        self.variables = {name: list(values) for name, values in (variables or {}).items()}

    def values_of(self, index: int) -> dict[str, str]:
        """The value of each variable in the task with this index."""
        values_by_name: dict[str, str] = {}
        for name in reversed(self.variables):
            values = self.variables[name]
            index, position = divmod(index, len(values))
            values_by_name[name] = values[position]
        return {name: values_by_name[name] for name in self.variables}

    def label(self, index: int) -> str:
        """The values of a task for display: ``lr=0.1 seed=3``."""
        from paiprotocol.jobs.problems import shorten

        return " ".join(f"{name}={shorten(value)}" for name, value in self.values_of(index).items())

    def export_commands(self) -> list[str]:
        """Shell commands that set the variables of the task they run in."""
        from shlex import quote

        commands = []
        stride = 1
        for name in reversed(self.variables):
            values = self.variables[name]
            cases = "".join(f"\n{i}) export {name}={quote(value)} ;;" for i, value in enumerate(values))
            commands.append(f"case $((PAI_TASK_INDEX / {stride} % {len(values)})) in{cases}\nesac")
            stride *= len(values)
        return commands[::-1]

    def fill_placeholders(self, line: str) -> str:
        """A shell line with each ``{name}`` replaced by a reference that suits the quotes around it.

        ``${name}`` and ``\\{name}`` belong to the shell and stay.
        """
        if not self.variables:
            return line
        placeholder = re.compile(r"(?<!\$)\{(" + "|".join(self.variables) + r")\}")
        out: list[str] = []
        quotes = ""
        i = 0
        while i < len(line):
            if match := placeholder.match(line, i):
                i = match.end()
                if quotes == '"':
                    out.append(f"${{{match[1]}}}")
                    continue
                if quotes and out[-1] == _OPENED:
                    out.pop()
                elif quotes:
                    out.append("'")
                out.append(f'"${match[1]}"')
                if quotes and line[i : i + 1] == "'":
                    quotes, i = "", i + 1
                elif quotes:
                    out.append(_OPENED)
                continue
            used = 2 if line[i] == "\\" and quotes != "'" else 1
            text = line[i : i + used]
            if text in ("'", '"') and quotes in ("", text):
                quotes = "" if quotes else text
                text = _OPENED if quotes == "'" else text
            out.append(text)
            i += used
        return "".join("'" if text == _OPENED else text for text in out)


def read_arrays(texts: Sequence[str]) -> TaskArray:
    """The array of all ``--array`` options: ``100``, ``100%8``, or values by name, of which all combinations
    run (``lr=0.1,0.01 seed=1-3``).
    """
    if len(texts) == 1 and "=" not in texts[0]:
        return _counted(texts[0])
    variables: dict[str, list[str]] = {}
    limits: set[int] = set()
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals:
            raise UsageError(
                f"{OPTION} {text}: a number of tasks and values of tasks contradict each other.",
                hint=f"Write repetitions as values, too: {OPTION} run=1-{text if text.isdecimal() else 3}",
            )
        if limit := _LIMIT.search(values):
            values = values[: limit.start()]
            limits.add(_positive(limit[1], text))
        if name in variables:
            raise UsageError(
                f"{OPTION} {text}: {name} is given twice.", hint="Put all its values into one option."
            )
        variables[_checked_name(name, text)] = list(_values(values, text))
    if len(limits) > 1:
        raise UsageError(f"{OPTION}: the limits after % contradict each other: give one.")
    return _product(variables, limits.pop() if limits else 0)


def array_of(option: ArrayOption) -> TaskArray:
    """The array of a value in a program or a job file: a number, texts of the option, or values by name."""
    if isinstance(option, bool) or not option:
        raise UsageError(f"array={option!r}: use a number of tasks, or values by name.")
    if isinstance(option, int):
        return _counted(str(option))
    if isinstance(option, str):
        return read_arrays([option])
    if not isinstance(option, Mapping):
        return read_arrays([str(text) for text in option])
    variables = {}
    for name, values in option.items():
        text = f"{name}={values}"
        items = list(_values(values, text)) if isinstance(values, str) else _texts(values, text)
        variables[_checked_name(str(name), text)] = items
    return _product(variables, 0)


def array_of_job(config: Mapping[str, object]) -> TaskArray | None:
    """The array of a submitted job, from its configuration; None if its tasks have no values."""
    extras = config.get("extras")
    additions = extras.get("openpaisdk") if isinstance(extras, dict) else None
    variables = additions.get("array") if isinstance(additions, dict) else None
    if not isinstance(variables, dict) or not all(isinstance(v, list) and v for v in variables.values()):
        return None
    return TaskArray(0, 0, {str(name): [str(v) for v in values] for name, values in variables.items()})


def _counted(text: str) -> TaskArray:
    count, percent, limit = text.partition("%")
    if _RANGE.fullmatch(count) or "," in count:
        raise UsageError(
            f"{OPTION} {text}: these are values, which need a name.",
            hint=f"Write {OPTION} i={text}; the command then uses {{i}}.",
        )
    if not count.isdecimal() or int(count) < 1 or (percent and (not limit.isdecimal() or int(limit) < 1)):
        raise UsageError(
            f"{OPTION} {text}: use the number of tasks, like 100, or 100%8 for 8 at a time, or values by "
            "name, like lr=0.1,0.01."
        )
    _check_count(int(count))
    return TaskArray(int(count), int(limit) if percent else 0)


def _product(variables: Mapping[str, Sequence[str]], limit: int) -> TaskArray:
    from math import prod

    return TaskArray(_check_count(prod(map(len, variables.values()))), limit, variables)


def _check_count(count: int) -> int:
    if count > MAX_TASKS:
        raise UsageError(
            f"{OPTION}: a job may have {MAX_TASKS} tasks at most; this one would have {count}.",
            hint="Submit several jobs, or let each task handle several values.",
        )
    return count


def _checked_name(name: str, text: str) -> str:
    if not name.isidentifier() or not name.isascii():
        raise UsageError(
            f"{OPTION} {text}: {name!r} cannot be the name of an environment variable.",
            hint="Use letters, digits and _, like lr=0.1,0.01; the first character is no digit.",
        )
    if name.startswith(_RESERVED_PREFIX):
        raise UsageError(f"{OPTION} {text}: names that start with {_RESERVED_PREFIX} are the cluster's own.")
    return name


def _values(source: str, text: str) -> Iterable[str]:
    """The values of a list like ``0.1,0.01``, ``1-10``, ``0-8:2`` or ``'a,b',"c d"``."""
    for value, is_quoted in _items(source, text):
        span = None if is_quoted else _RANGE.fullmatch(value)
        if span:
            yield from _numbers(span, text)
        elif value or is_quoted:
            if "\0" in value:
                raise UsageError(f"{OPTION} {text!r}: a value cannot contain a NUL character.")
            yield as_text(value)
        else:
            raise UsageError(f"{OPTION} {text}: a value is missing.", hint='An empty value is written as "".')


def _numbers(span: re.Match[str], text: str) -> Iterable[str]:
    first, last, step = int(span[1]), int(span[2]), int(span[3] or 1)
    if last < first or step < 1:
        raise UsageError(
            f"{OPTION} {text}: the range {span[0]} has no values.",
            hint="Write FIRST-LAST or FIRST-LAST:STEP, upwards; quote a value that is no range.",
        )
    _check_count((last - first) // step + 1)
    return map(str, range(first, last + 1, step))


def _items(source: str, text: str) -> Iterable[tuple[str, bool]]:
    """Items separated by commas, and whether each is quoted: a quoted one is taken literally."""
    rest = source
    while True:
        rest = rest.lstrip()
        if rest[:1] in ("'", '"') and rest:
            value, end, rest = rest[1:].partition(rest[0])
            before, comma, rest = rest.partition(",")
            if not end or before.strip():
                raise UsageError(
                    f"{OPTION} {text}: a quoted value does not end where its quote does.",
                    hint='Write "a,b","c": quotes around whole values, commas between them.',
                )
            yield value, True
        else:
            value, comma, rest = rest.partition(",")
            yield value.strip(), False
        if not comma:
            return


def _texts(values: object, text: str) -> list[str]:
    """Values of a program or a job file: texts and numbers."""
    from numbers import Real

    is_list = hasattr(values, "__iter__") and not isinstance(values, (str, bytes, Mapping))
    items = list(values) if is_list else [values]  # type: ignore[call-overload]
    if not items or any(isinstance(v, bool) or not isinstance(v, (str, Real)) for v in items):
        raise UsageError(f"array {text}: use a list of texts and numbers, like [0.1, 0.01].")
    return [as_text(str(value)) for value in items]


def _positive(text: str, option: str) -> int:
    if int(text) < 1:
        raise UsageError(f"{OPTION} {option}: at least one task must run at a time.")
    return int(text)
