"""Array of independent tasks: how many, how many at a time, and the values that each of them gets.

The values of a task follow from its index: the last variable changes fastest. One shell command per variable
sets it, so the job stays small however many tasks it has, and every OpenPAI cluster can run it. Where the
values are no combinations (`RowArray`), one command has a line for each task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from openpaisdk.jobs.command import as_text
from paiprotocol.errors import UsageError
from paiprotocol.jobs.array_columns import TASK_INDEX
from paiprotocol.jobs.limits import MAX_TASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    ArrayOption = int | str | Sequence[str] | Mapping[str, object] | Sequence[Mapping[str, object]]

OPTION = "--array"
_RESERVED_PREFIX = "PAI_"
_RANGE = re.compile(r"([0-9]+)-([0-9]+)(?::([0-9]+))?")
_LIMIT = re.compile(r"%([0-9]+)\s*\Z")
_MAX_DIGITS = 18
_OPENED = "opening single quote"


class TaskArray:
    """Tasks of an array. ``limit``: how many run at a time, 0 for all; ``variables``: values by name.

    ``key``: where the variables are in ``extras.openpaisdk`` of the job.
    """

    __slots__ = ("count", "limit", "variables")
    key = "array"

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

    def misspelt_placeholders(self, lines: Iterable[str]) -> dict[str, str]:
        """Words in braces that resemble a variable, and are none: ``{sed}`` where there is ``seed``.

        Any other ``{word}`` belongs to the command, as in a program of awk or a format of git.
        """
        from difflib import get_close_matches

        by_lower = {name.lower(): name for name in self.variables}
        found: dict[str, str] = {}
        for line in lines:
            for word in re.findall(r"(?<![$\\{])\{([A-Za-z_]\w*)\}(?!\})", line):
                near = get_close_matches(word.lower(), by_lower, 1)
                if near and word not in self.variables:
                    found[word] = by_lower[near[0]]
        return found

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


class RowArray(TaskArray):
    """Tasks whose values are rows: ``variables`` are the columns, and a task has the row of its index."""

    __slots__ = ()
    key = "arrayRows"

    def __init__(self, variables: Mapping[str, Sequence[str]], limit: int = 0):
        super().__init__(max(map(len, variables.values()), default=0), limit, variables)

    def values_of(self, index: int) -> dict[str, str]:
        """The row of the task with this index; empty for a task without one."""
        if index >= self.count:
            return {}
        return {name: values[index] for name, values in self.variables.items()}

    def export_commands(self) -> list[str]:
        """The shell command that sets the variables of the task it runs in."""
        from shlex import quote

        lines = []
        for index in range(self.count):
            row = self.values_of(index)
            lines.append(f"{index}) export {' '.join(f'{name}={quote(row[name])}' for name in row)} ;;")
        return ["\n".join([f"case ${TASK_INDEX} in", *lines, "esac"])]

    @classmethod
    def of_rows(cls, rows: Sequence[object]) -> RowArray:
        """The array of a program's rows, which all have the names of the first one, a mapping."""
        first = rows[0]
        names = [str(name) for name in first] if isinstance(first, Mapping) else []
        if not names:
            raise UsageError(f"array={rows!r}: row 1 has no values.")
        columns: dict[str, list[str]] = {checked_name(name, "array"): [] for name in names}
        for number, row in enumerate(rows, 1):
            add_row(columns, row, f"array, row {number}")
        return cls(columns)


def add_row(columns: dict[str, list[str]], row: object, place: str) -> None:
    """Add a row to the columns; ``place`` says where it is, for the message of an error."""
    if not isinstance(row, Mapping):
        raise UsageError(f"{place}: this is no row of values by name, like the others.")
    by_name = {str(name): value for name, value in row.items()}
    if missing := [name for name in columns if name not in by_name]:
        raise UsageError(f"{place}: there is no value of {missing[0]}, which the first row has.")
    if unknown := [name for name in by_name if name not in columns]:
        raise UsageError(f"{place}: there is a value of {unknown[0]}, which the first row does not have.")
    if len(next(iter(columns.values()))) >= MAX_TASKS:
        raise UsageError(
            f"{place}: each row is a task, and a job may have {MAX_TASKS} tasks at most.",
            hint="Submit several jobs, or let each task handle several rows.",
        )
    for name, values in columns.items():
        values.append(_cell(by_name[name], f"{place}, {name}"))


def _cell(value: object, place: str) -> str:
    from numbers import Real

    if isinstance(value, bool) or not isinstance(value, (str, Real)):
        raise UsageError(f"{place}: {value!r} is neither text nor a number.")
    text = as_text(str(value))
    if "\0" in text:
        raise UsageError(f"{place}: a value cannot contain a NUL character.")
    return text


def read_arrays(texts: Sequence[str]) -> TaskArray:
    """The array of all ``--array`` options: ``100``, ``100%8``, or values by name, of which all combinations
    run (``lr=0.1,0.01 seed=1-3``).
    """
    if len(texts) == 1 and "=" not in texts[0]:
        return _counted(texts[0])
    sources, limit = read_options(texts)
    return _product({name: list(_values(*source)) for name, source in sources.items()}, limit)


def read_options(texts: Sequence[str]) -> tuple[dict[str, tuple[str, str]], int]:
    """What is given of each variable, with the text of its option, and the limit of all (0: none)."""
    sources: dict[str, tuple[str, str]] = {}
    limits: set[int] = set()
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals:
            raise UsageError(
                f"{OPTION} {text}: a number of tasks and values of tasks contradict each other.",
                hint=f"Write repetitions as values, too: {OPTION} run=1-{text if text.isdecimal() else 3}",
            )
        values, limit = split_limit(values, text)
        if limit:
            limits.add(limit)
        if name in sources:
            raise UsageError(
                f"{OPTION} {text}: {name} is given twice.", hint="Put all its values into one option."
            )
        sources[checked_name(name, f"{OPTION} {text}")] = (values, text)
    if len(limits) > 1:
        raise UsageError(f"{OPTION}: the limits after % contradict each other: give one.")
    return sources, limits.pop() if limits else 0


def split_limit(source: str, text: str, option: str = OPTION) -> tuple[str, int]:
    """What is before the ``%M`` at the end of a text, and M; 0 without one."""
    found = _LIMIT.search(source)
    if not found:
        return source, 0
    limit = _whole(found[1], f"{option} {text}")
    if limit < 1:
        raise UsageError(f"{option} {text}: at least one task must run at a time.")
    return source[: found.start()], limit


def _whole(digits: str, place: str) -> int:
    """A whole number. Python does not read thousands of digits."""
    if len(digits) > _MAX_DIGITS:
        raise UsageError(f"{place[:80]}: a number has {len(digits)} digits, which is too large.")
    return int(digits)


def array_of(option: ArrayOption) -> TaskArray:
    """The array of a value in a program or a job file: a number, texts of the option, values by name.

    A list of mappings are rows; each of them is a task.
    """
    if isinstance(option, TaskArray):  # of a file, or a sample
        return option
    if isinstance(option, bool) or not option:
        raise UsageError(f"array={option!r}: use a number of tasks, or values by name.")
    if isinstance(option, int):
        return _counted(str(option))
    if isinstance(option, str):
        return read_arrays([option])
    if not isinstance(option, Mapping):
        items = list(option)
        if items and isinstance(items[0], Mapping):
            return RowArray.of_rows(items)
        return read_arrays([str(text) for text in items])
    variables = {}
    for name, values in option.items():
        text = f"{name}={values}"
        variables[checked_name(str(name), f"{OPTION} {text}")] = values_from(values, text)
    return _product(variables, 0)


def array_of_job(config: Mapping[str, object]) -> TaskArray | None:
    """The array of a submitted job, from its configuration; None if its tasks have no values."""
    extras = config.get("extras")
    additions = extras.get("openpaisdk") if isinstance(extras, dict) else None
    if not isinstance(additions, dict):
        return None
    if rows := _columns(additions.get(RowArray.key)):
        return RowArray(rows) if len(set(map(len, rows.values()))) == 1 else None
    variables = _columns(additions.get(TaskArray.key))
    return None if variables is None else TaskArray(0, 0, variables)


def _columns(value: object) -> dict[str, list[str]] | None:
    if not isinstance(value, dict) or not all(isinstance(v, list) and v for v in value.values()):
        return None
    return {str(name): [str(v) for v in values] for name, values in value.items()}


def _counted(text: str) -> TaskArray:
    count, percent, limit = text.partition("%")
    if _RANGE.fullmatch(count) or "," in count:
        raise UsageError(
            f"{OPTION} {text}: these are values, which need a name.",
            hint=f"Write {OPTION} i={text}; the command then uses {{i}}.",
        )
    place = f"{OPTION} {text}"
    numbers = [count, limit] if percent else [count]
    if not all(number.isdecimal() and _whole(number, place) >= 1 for number in numbers):
        raise UsageError(
            f"{OPTION} {text}: use the number of tasks, like 100, or 100%8 for 8 at a time, or values by "
            "name, like lr=0.1,0.01."
        )
    check_count(int(count))
    return TaskArray(int(count), int(limit) if percent else 0)


def _product(variables: Mapping[str, Sequence[str]], limit: int) -> TaskArray:
    from math import prod

    return TaskArray(check_count(prod(map(len, variables.values()))), limit, variables)


def check_count(count: int) -> int:
    if count > MAX_TASKS:
        raise UsageError(
            f"{OPTION}: a job may have {MAX_TASKS} tasks at most; this one would have {count}.",
            hint="Submit several jobs, or let each task handle several values.",
        )
    return count


def checked_name(name: str, place: str) -> str:
    """The name of a variable; ``place`` says where it is, for the message of an error."""
    if not name.isidentifier() or not name.isascii():
        raise UsageError(
            f"{place}: {name!r} cannot be the name of an environment variable.",
            hint="Use letters, digits and _, like lr=0.1,0.01; the first character is no digit.",
        )
    if name.startswith(_RESERVED_PREFIX):
        raise UsageError(f"{place}: names that start with {_RESERVED_PREFIX} are the cluster's own.")
    return name


def values_from(values: object, text: str, separator: str = ",") -> list[str]:
    """The values of a variable, from a program or a job file; ``text`` is for the message of an error."""
    return list(_values(values, text, separator)) if isinstance(values, str) else _texts(values, text)


def _values(source: str, text: str, separator: str = ",") -> Iterable[str]:
    """The values of a list like ``0.1,0.01``, ``1-10``, ``0-8:2`` or ``'a,b',"c d"``."""
    for value, is_quoted in _items(source, text, separator):
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
    place = f"{OPTION} {text}"
    first, last, step = _whole(span[1], place), _whole(span[2], place), _whole(span[3] or "1", place)
    if last < first or step < 1:
        raise UsageError(
            f"{OPTION} {text}: the range {span[0]} has no values.",
            hint="Write FIRST-LAST or FIRST-LAST:STEP, upwards; quote a value that is no range.",
        )
    check_count((last - first) // step + 1)
    return map(str, range(first, last + 1, step))


def _items(source: str, text: str, separator: str) -> Iterable[tuple[str, bool]]:
    """Items of a list, and whether each is quoted: a quoted one is taken literally."""
    rest = source
    while True:
        rest = rest.lstrip()
        if rest[:1] in ("'", '"') and rest:
            value, end, rest = rest[1:].partition(rest[0])
            before, comma, rest = rest.partition(separator)
            if not end or before.strip():
                raise UsageError(
                    f"{OPTION} {text}: a quoted value does not end where its quote does.",
                    hint='Write "a,b","c": quotes around whole values, commas between them.',
                )
            yield value, True
        else:
            value, comma, rest = rest.partition(separator)
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
