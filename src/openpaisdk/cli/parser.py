"""argparse parser of one command: one-sentence errors with a suggestion, an example in every help."""

from __future__ import annotations

import argparse
import os
import sys

from openpaisdk.cli.commands import aliases_of, command_named, command_summary
from paiprotocol.errors import UsageError

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
        description = f"{summary[0].upper()}{summary[1:]}."
        if names := aliases_of(name):
            description += f" Also: {', '.join(f'pai {alias}' for alias in names)}."
        if details:
            description += f"\n\n{details}"
        examples = "\n".join(f"  {line}" for line in example.strip().splitlines())
        super().__init__(
            prog=f"pai {name}",
            description=description,
            epilog=f"example:\n{examples}",
            formatter_class=_Formatter,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.name}: {message}.", hint=f"{self.prog} --help shows the usage.")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse; an unknown argument is an error, with a suggestion when it resembles an option."""
        if self.introspect_only:
            raise ParserIntrospection(self)
        args, unknown = self.parse_known_args(self._options_first(argv))
        if unknown := [word for word in unknown if word != "--"]:
            raise self.unknown(unknown[0])
        if getattr(args, "cluster_alias", "") or getattr(args, "user", ""):
            from openpaisdk.cli.typed_options import context_of
            from openpaisdk.output.suggested_commands import set_context

            set_context(context_of(args, get_parser))
        if getattr(args, "debug", False):
            from openpaisdk.cli.debug import enable_debug

            enable_debug()
        return args

    def _options_first(self, argv: Sequence[str]) -> list[str]:
        """Move options to the front: argparse gives positionals between options to the first optional one.

        A word after an option with an optional value is its value if the command has no argument left for it.
        """
        options: list[str] = []
        positionals: list[str] = []
        undecided: list[tuple[int, int]] = []  # indexes of an option and of a word that may be its value
        i = 0
        while i < len(argv):
            word = argv[i]
            if word == "--":
                positionals += argv[i + 1 :]
                break
            used = 1
            if not _is_option(word):
                positionals.append(word)
            else:
                used += self._value_count(word)
                options += argv[i : i + used]
                if self._takes_optional_value(word) and _is_word(argv, i + 1):
                    undecided.append((len(options) - 1, len(positionals)))
            i += used
        excess = len(positionals) - self._max_positionals
        values = undecided[: max(0, excess)]
        for option, position in values:
            options[option] += f"={positionals[position]}"
        taken = {position for _, position in values}
        positionals = [word for position, word in enumerate(positionals) if position not in taken]
        return [*options, "--", *positionals] if positionals else options

    @property
    def _max_positionals(self) -> int:
        return sum(1 if action.nargs in (None, "?") else sys.maxsize for action in self.positionals)

    def unknown(self, word: str) -> UsageError:
        hint = f"{self.prog} --help lists its options."
        if not word.startswith("-"):
            return UsageError(f"{self.name}: unexpected argument {word!r}.", hint=hint)
        option = word.partition("=")[0]
        message = f"{self.prog} has no option {option}."
        if advice := self._option_elsewhere(option):
            return UsageError(message, hint=advice)
        from difflib import get_close_matches

        near = get_close_matches(option, self._option_string_actions, 1)
        return UsageError(message + (f" Did you mean {near[0]}?" if near else ""), hint=hint)

    def _option_elsewhere(self, option: str) -> str:
        """What to write instead of an option that other tools have; else empty."""
        from openpaisdk.cli.options_of_other_tools import OPTIONS_OF_OTHER_TOOLS

        return OPTIONS_OF_OTHER_TOOLS.get(self.name, {}).get(option, "")

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
        by_title: dict[str, list[argparse.Action]] = {}
        for group in self._action_groups:
            title = "" if group in (self._positionals, self._optionals) else str(group.title)
            for action in group._group_actions:
                if id(action) in visible:
                    by_title.setdefault(title, []).append(action)
        return by_title

    @property
    def positionals(self) -> list[argparse.Action]:
        """The positional arguments, in order."""
        return [action for action in self._actions if not action.option_strings]

    @property
    def takes_cluster(self) -> bool:
        """Whether ``-a`` names the cluster that is used, which is never required."""
        action = self.options.get("-a")
        return action is not None and not action.required

    @property
    def is_about_a_job(self) -> bool:
        """Whether the command takes names of jobs, and the user who owns them."""
        return "--user" in self.options and any(a.dest in ("job", "jobs") for a in self.positionals)

    def takes_value(self, option: str) -> bool:
        """Whether an option, in full or as an unambiguous prefix, requires a value."""
        return self._action(option).nargs not in (0, "?")

    def _takes_optional_value(self, word: str) -> bool:
        """Whether a word is a long option without the value that it may have."""
        return word.startswith("--") and "=" not in word and self._action(word).nargs == "?"

    def _action(self, option: str) -> argparse.Action:
        """The action of an option, given in full or as an unambiguous prefix."""
        action = self._option_string_actions.get(option)
        if action is None:
            matches = {id(a): a for o, a in self._option_string_actions.items() if o.startswith(option)}
            if option[:2] != "--" or len(matches) == 0 or self._option_elsewhere(option):
                raise self.unknown(option)
            if len(matches) > 1:
                names = ", ".join(sorted(o for o in self._option_string_actions if o.startswith(option)))
                raise UsageError(f"{self.name}: {option} is ambiguous: {names}.")
            action = next(iter(matches.values()))
        return action

    def split_command(self, argv: Sequence[str]) -> tuple[list[str], list[str]]:
        """The options of pai, and the command: from the first argument that is not an option, or after --.

        An optional value that is written as a word of its own is joined to its option: ``--fetch=out``.
        """
        if self.introspect_only:
            raise ParserIntrospection(self)
        options: list[str] = []
        i = 0
        while i < len(argv):
            word = argv[i]
            if word == "--":
                return options, list(argv[i + 1 :])
            if not _is_option(word):
                break
            if self._has_separate_value(argv, i):
                options.append(f"{word}={argv[i + 1]}")
                i += 2
            else:
                used = 1 + self._value_count(word)
                options += argv[i : i + used]
                i += used
        return options, list(argv[i:])

    def _has_separate_value(self, argv: Sequence[str], i: int) -> bool:
        """Whether the word after an option is its optional value, and not the first word of the command.

        It is if only options follow it up to ``--``, or if the option has a type and the word fits it.
        """
        if not (self._takes_optional_value(argv[i]) and _is_word(argv, i + 1)):
            return False
        read = self._action(argv[i]).type
        if callable(read):
            try:
                read(argv[i + 1])
            except UsageError:
                pass
            else:
                return True
        return self._are_options_up_to_dashes(argv, i + 2)

    def _are_options_up_to_dashes(self, argv: Sequence[str], i: int) -> bool:
        try:
            while i < len(argv) and _is_option(argv[i]):
                if argv[i] == "--":
                    return True
                i += 2 if self._has_separate_value(argv, i) else 1 + self._value_count(argv[i])
        except UsageError:  # an option of the command
            pass
        return False

    def _value_count(self, word: str) -> int:
        """How many of the next arguments are the value of this option: one or none."""
        if word.startswith("--"):
            option, equals, _ = word.partition("=")
            return int(self.takes_value(option) and not equals)
        for at in range(1, len(word)):  # -fj NAME, -jNAME
            if self.takes_value("-" + word[at]):
                return int(at == len(word) - 1)
        return 0


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _is_word(argv: Sequence[str], i: int) -> bool:
    """Whether there is an argument at this position that is no option."""
    return i < len(argv) and not _is_option(argv[i])


def command_parser(
    name: str,
    example: str,
    details: str = "",
    *,
    output: bool = True,
    cluster: bool = True,
    more_formats: Sequence[str] = (),
) -> Parser:
    """A parser with the common options: ``-a`` if ``cluster``, ``-o`` if ``output``, with more formats."""
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
            choices=("table", "json", "yaml", *more_formats),
            default="table",
            help="output format (default: table)",
        )
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    return parser


def add_scope_option(parser: Parser) -> None:
    """``-g``: change the defaults of the user instead of those of the current folder."""
    parser.add_argument(
        "-g",
        "--global",
        "--is-global",
        dest="is_global",
        action="store_true",
        help="apply everywhere, not only in this folder",
    )


def add_task_options(parser: Parser, default_index: int | None = 0) -> None:
    """``--role`` and ``--index`` of one task of a job; without a default index, the first one that runs."""
    parser.add_argument("--role", default="", metavar="ROLE", help="task role (default: the first one)")
    default = "the first one that runs" if default_index is None else str(default_index)
    parser.add_argument(
        "--index",
        type=int_at_least(0),
        default=default_index,
        metavar="N",
        help=f"number of the task in its role (default: {default})",
    )


def int_at_least(low: int = 0):  # type: ignore[no-untyped-def]
    """Argument type for argparse: an integer of at least ``low``."""

    def read(text: str) -> int:
        from openpaisdk.jobs.option_values import whole_number

        try:
            return whole_number(text, low)
        except UsageError as error:
            raise argparse.ArgumentTypeError(error.message.rstrip(".")) from None

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
