"""argparse parser of one command: one-sentence errors with a suggestion, an example in every help."""

from __future__ import annotations

import argparse
import os
import sys

from openpaisdk.cli.commands import command_named, command_summary
from openpaisdk.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

_COLOURS = ("_theme", "_decolor")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter: wraps paragraphs to the terminal width and keeps indented lines unchanged."""

    def __init__(self, prog: str):
        # argparse creates a formatter for every option; by default each imports shutil to get the width.
        setting = os.environ.get("COLUMNS", "")
        try:
            columns = int(setting) if setting.isdecimal() else os.get_terminal_size(1).columns
        except OSError:
            columns = 80
        super().__init__(prog, width=max(60, min(columns, 120)) - 2)

    if sys.version_info[:2] == (3, 14):
        # Only Python 3.14 loads the colours of every parser eagerly; that imports more than a command does.

        def _set_color(self, color: bool, **options: object) -> None:
            self._colour = color, options
            for name in _COLOURS:
                self.__dict__.pop(name, None)

        def __getattr__(self, name: str) -> object:
            if name not in _COLOURS:
                raise AttributeError(name)
            color, options = self._colour
            super()._set_color(color, **options)
            return self.__dict__[name]

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        from itertools import groupby
        from textwrap import fill

        out = []
        for is_prose, group in groupby(text.splitlines(), lambda line: bool(line) and line[0] != " "):
            lines = list(group)
            out += [fill(" ".join(lines), width)] if is_prose else lines
        return "\n".join(out)


class ParserIntrospection(Exception):
    """Raised instead of parsing when only the parser is needed: by completion and by the reference."""

    def __init__(self, parser: Parser):
        super().__init__(parser.name)
        self.parser = parser


class Parser(argparse.ArgumentParser):
    """The options of one command. ``example`` holds command lines to copy."""

    introspect_only = False
    """When set on the class, parsing raises ``ParserIntrospection`` before the command does anything."""

    def __init__(self, name: str, example: str, details: str = ""):
        self.name = name
        self.example = example.strip()
        self.details = details.strip()
        summary = command_summary(name)
        description = f"{summary[0].upper()}{summary[1:]}." + (f"\n\n{details}" if details else "")
        examples = "\n".join(f"  {line}" for line in example.strip().splitlines())
        super().__init__(
            prog=f"pai {name}",
            description=description,
            epilog=f"example:\n{examples}",
            formatter_class=_Formatter,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"pai {self.name}: {message}.", hint=f"pai {self.name} --help shows the usage.")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse; an unknown argument is an error, with a suggestion when it resembles an option."""
        if self.introspect_only:
            raise ParserIntrospection(self)
        args, left = self.parse_known_args(self._options_first(argv))
        if left := [word for word in left if word != "--"]:
            raise self.unknown(left[0])
        if getattr(args, "debug", False):
            from openpaisdk.cli.debug import enable_debug

            enable_debug()
        return args

    def _options_first(self, argv: Sequence[str]) -> list[str]:
        """Move options to the front: argparse gives positionals between options to the first optional one."""
        options: list[str] = []
        positionals: list[str] = []
        i = 0
        while i < len(argv):
            word = argv[i]
            if word == "--":
                positionals += argv[i + 1 :]
                break
            used = 1
            if not word.startswith("-") or word == "-":
                positionals.append(word)
            else:
                used += self._value_count(word)
                options += argv[i : i + used]
            i += used
        return [*options, "--", *positionals] if positionals else options

    def unknown(self, word: str) -> UsageError:
        hint = f"pai {self.name} --help lists its options."
        if not word.startswith("-"):
            return UsageError(f"pai {self.name}: unexpected argument {word!r}.", hint=hint)
        from difflib import get_close_matches

        near = get_close_matches(word.partition("=")[0], self._option_string_actions, 1)
        return UsageError(
            f"pai {self.name} has no option {word.partition('=')[0]}."
            + (f" Did you mean {near[0]}?" if near else ""),
            hint=hint,
        )

    @property
    def options(self) -> dict[str, argparse.Action]:
        """The visible options by name."""
        actions = self._option_string_actions.items()
        return {name: action for name, action in actions if action.help != argparse.SUPPRESS}

    @property
    def visible_actions(self) -> list[argparse.Action]:
        """Every option and positional argument that the help shows, except --help itself."""
        return [a for a in self._actions if a.help != argparse.SUPPRESS and a.dest != "help"]

    def groups(self) -> dict[str, list[argparse.Action]]:
        """The visible actions by the title of their group; "" for those in none."""
        visible = {id(action) for action in self.visible_actions}
        found: dict[str, list[argparse.Action]] = {}
        for group in self._action_groups:
            title = "" if group in (self._positionals, self._optionals) else str(group.title)
            for action in group._group_actions:
                if id(action) in visible:
                    found.setdefault(title, []).append(action)
        return found

    @property
    def positionals(self) -> list[argparse.Action]:
        """The positional arguments, in order."""
        return [action for action in self._actions if not action.option_strings]

    def takes_value(self, option: str) -> bool:
        """Whether an option, in full or as an unambiguous prefix, takes the next argument as its value."""
        action = self._option_string_actions.get(option)
        if action is None:
            matches = {id(a): a for o, a in self._option_string_actions.items() if o.startswith(option)}
            if option[:2] != "--" or len(matches) == 0:
                raise self.unknown(option)
            if len(matches) > 1:
                names = ", ".join(sorted(o for o in self._option_string_actions if o.startswith(option)))
                raise UsageError(f"pai {self.name}: {option} is ambiguous: {names}.")
            action = next(iter(matches.values()))
        return action.nargs not in (0, "?")  # an optional value needs an =

    def split_command(self, argv: Sequence[str]) -> tuple[list[str], list[str]]:
        """The options of pai, and the command: from the first argument that is not an option, or after --."""
        if self.introspect_only:
            raise ParserIntrospection(self)
        i = 0
        while i < len(argv):
            word = argv[i]
            if word == "--":
                return list(argv[:i]), list(argv[i + 1 :])
            if not word.startswith("-") or word == "-":
                break
            i += 1 + self._value_count(word)
        return list(argv[:i]), list(argv[i:])

    def _value_count(self, word: str) -> int:
        """How many of the next arguments are the value of this option: one or none."""
        if word.startswith("--"):
            option, equals, _ = word.partition("=")
            return int(self.takes_value(option) and not equals)
        for at in range(1, len(word)):  # -fj NAME, -jNAME
            if self.takes_value("-" + word[at]):
                return int(at == len(word) - 1)
        return 0


def command_parser(
    name: str, example: str, details: str = "", *, output: bool = True, cluster: bool = True
) -> Parser:
    """A parser with the common options: ``-a`` if ``cluster``, ``-o`` if ``output``."""
    parser = Parser(name, example, details)
    if cluster:
        parser.add_argument(
            "-a",
            "--cluster-alias",
            metavar="ALIAS",
            default="",
            help="the cluster to use (default: the selected one)",
        )
    if output:
        parser.add_argument(
            "-o",
            "--output",
            choices=("table", "json", "yaml"),
            default="table",
            help="output format (default: table)",
        )
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    return parser


def int_at_least(low: int = 0):  # type: ignore[no-untyped-def]
    """Argument type for argparse: an integer of at least ``low``."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {low}")
        return value

    return read


def get_parser(command: str) -> Parser:
    """The parser of a command; the command itself is not run."""
    Parser.introspect_only = True
    try:
        command_named(command)([])
    except ParserIntrospection as introspection:
        return introspection.parser
    finally:
        Parser.introspect_only = False
    raise AssertionError(f"pai {command} parses nothing")


def is_interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
