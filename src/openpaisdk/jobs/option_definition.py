"""Definition of one job option: what its flag, its key in short job files and its keyword in Python are.

The table of all definitions is `job_options`.
"""

from __future__ import annotations

import os

from openpaisdk.jobs import option_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Generic, Self, TypeVar, overload

    T = TypeVar("T")
else:
    # The classes of `typing` are for the type checker: a command must not pay for importing them.
    class Generic:
        def __class_getitem__(cls, item):
            return cls

    T = None

TEXT, PATH, CHOICE, COUNT, SWITCH = "text", "path", "choice", "count", "switch"
LIST, VARIABLES, VALUE = "list", "variables", "value"
"""Kinds of values: a list has texts, variables are of the environment, a value has a parser of its own."""
ROLE, PRE_COMMANDS, JOB = "role", "preCommands", "job"
"""Parts of a job that an option may set: its task role, the commands before those of the role, the rest."""


class JobOption(Generic[T]):
    """One option of a job. As an attribute of `JobOptions` it is the option's value.

    - ``default`` is the value of a job without the option, ``read`` the parser of given values, if the kind
      does not say it. ``minimum`` is that of a count.
    - ``flags``, ``metavar``, ``help``, ``group`` (a heading of the help): on the command line.
      ``default_help`` is what the help says about the default; some commands say something else.
      ``is_repeated``: the flag is given once for each item. ``optional``: the value of the flag alone.
    - ``keyword``: in Python, by default the name of the attribute.
    - ``key``, ``other_keys``, ``key_help``: in a short job file, ``resources:cpu`` for a key in another one.
      Of a ``VALUE``, ``check`` raises for a wrong one, ``expected`` says what is right, and ``json_type`` is
      its type in the JSON Schema.
    - ``place``: the part of the job that it sets. ``for_functions``: whether calls of functions, and cells,
      have it. ``for_copies``: whether a copy of a job may change it.
    """

    def __init__(
        self,
        *flags: str,
        kind: str,
        default: T,
        help: str,
        default_help: str = "",
        metavar: str = "",
        group: str = "",
        place: str = JOB,
        keyword: str = "",
        key: str,
        other_keys: Sequence[str] = (),
        key_help: str,
        read: Callable[[Any], T] | None = None,
        minimum: int = 0,
        choices: Sequence[str] = (),
        optional: str = "",
        is_repeated: bool = False,
        check: Callable[[Any], object] | None = None,
        expected: str = "",
        json_type: str | list[str] = "string",
        for_functions: bool = True,
        for_copies: bool = True,
    ):
        self.flags = flags
        self.kind = kind
        self.default = default
        self.help = help
        self.default_help = default_help
        self.metavar = metavar
        self.group = group
        self.place = place
        self.keyword = keyword
        self.key = key
        self.other_keys = other_keys
        self.key_help = key_help
        self.minimum = minimum
        self.choices = choices
        self.optional = optional
        self.is_repeated = is_repeated or kind in (LIST, VARIABLES)
        self.check = check or read
        self.expected = expected
        self.json_type = json_type
        self.for_functions = for_functions
        self.for_copies = for_copies
        self._read = read
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.keyword = self.keyword or name

    if TYPE_CHECKING:

        @overload
        def __get__(self, options: None, owner: object) -> Self: ...
        @overload
        def __get__(self, options: object, owner: object) -> T: ...
        def __get__(self, options: object, owner: object) -> Any: ...
        def __set__(self, options: object, value: T) -> None: ...

    def read(self, value: Any) -> Any:
        """The value that a job has, from that of a command line, a job file or a program."""
        if self._read is not None:
            return self._read(value)
        if self.kind == COUNT:
            is_unset = value is None and self.default is None
            return None if is_unset else option_values.whole_number(value, self.minimum, self.keyword)
        if self.kind == LIST:
            return option_values.items_of(value, self.keyword)
        if self.kind == VARIABLES:
            from openpaisdk.jobs.variables import read_variables

            return read_variables(value, self.flags[0])
        return os.fspath(value) if self.kind == PATH else value

    def is_set_in(self, options: object) -> bool:
        """Whether the options have a value that changes the copy of a job. For a count, 0 is such a value."""
        return self.kind == COUNT or bool(getattr(options, self.name))
