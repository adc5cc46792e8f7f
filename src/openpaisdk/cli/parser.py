"""argparse with our manners: one sentence for a mistake, a suggestion, an example in every help."""

from __future__ import annotations

import argparse
import os
import sys

from openpaisdk.cli.commands import summary_of
from openpaisdk.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

_COLOURS = ("_theme", "_decolor")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Paragraphs are as wide as the terminal; what is indented stays as it is written."""

    def __init__(self, prog: str):
        # argparse makes one for every option, and each would import shutil to learn the width.
        said = os.environ.get("COLUMNS", "")
        try:
            columns = int(said) if said.isdecimal() else os.get_terminal_size(1).columns
        except OSError:
            columns = 80
        super().__init__(prog, width=max(60, min(columns, 120)) - 2)

    if sys.version_info[:2] == (3, 14):
        # There alone every parser has its colours at once, and they import more than a command does.

        def _set_color(self, color: bool, **how: object) -> None:
            self._colour = color, how
            for name in _COLOURS:
                self.__dict__.pop(name, None)

        def __getattr__(self, name: str) -> object:
            if name not in _COLOURS:
                raise AttributeError(name)
            color, how = self._colour
            super()._set_color(color, **how)
            return self.__dict__[name]

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        from itertools import groupby
        from textwrap import fill

        out = []
        for is_prose, group in groupby(text.splitlines(), lambda line: bool(line) and line[0] != " "):
            lines = list(group)
            out += [fill(" ".join(lines), width)] if is_prose else lines
        return "\n".join(out)


class Shown(Exception):
    """Raised in place of parsing where only the parser is wanted: for completion, and for the reference."""

    def __init__(self, parser: Parser):
        super().__init__(parser.name)
        self.parser = parser


class Parser(argparse.ArgumentParser):
    """The options of one command. ``example`` is what a person can copy."""

    only_show = False
    """Set on the class, parsing raises ``Shown``: nothing that a command does has happened then."""

    def __init__(self, name: str, example: str, about: str = ""):
        self.name = name
        self.example = example.strip()
        self.about = about.strip()
        what = summary_of(name)
        about = f"{what[0].upper()}{what[1:]}." + (f"\n\n{about}" if about else "")
        shown = "\n".join(f"  {line}" for line in example.strip().splitlines())
        super().__init__(
            prog=f"pai {name}",
            description=about,
            epilog=f"example:\n{shown}",
            formatter_class=_Formatter,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"pai {self.name}: {message}.", hint=f"pai {self.name} --help shows how it is used.")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse; a word that is left over is a mistake, with a suggestion where it looks like an option."""
        if self.only_show:
            raise Shown(self)
        args, left = self.parse_known_args(self._options_first(argv))
        if left := [word for word in left if word != "--"]:
            raise self.unknown(left[0])
        if getattr(args, "debug", False):
            from openpaisdk.cli.main import debug

            debug()
        return args

    def _options_first(self, argv: Sequence[str]) -> list[str]:
        """The same words: argparse gives those between options to the first that may have none or many."""
        options: list[str] = []
        words: list[str] = []
        i = 0
        while i < len(argv):
            word = argv[i]
            if word == "--":
                words += argv[i + 1 :]
                break
            taken = 1
            if not word.startswith("-") or word == "-":
                words.append(word)
            else:
                taken += self._follows(word)
                options += argv[i : i + taken]
            i += taken
        return [*options, "--", *words] if words else options

    def unknown(self, word: str) -> UsageError:
        hint = f"pai {self.name} --help lists its options."
        if not word.startswith("-"):
            return UsageError(f"pai {self.name} does not know what to do with {word!r}.", hint=hint)
        from difflib import get_close_matches

        near = get_close_matches(word.partition("=")[0], self._option_string_actions, 1)
        return UsageError(
            f"pai {self.name} has no option {word.partition('=')[0]}."
            + (f" Did you mean {near[0]}?" if near else ""),
            hint=hint,
        )

    @property
    def options(self) -> dict[str, argparse.Action]:
        """What may be written with dashes."""
        shown = self._option_string_actions.items()
        return {name: action for name, action in shown if action.help != argparse.SUPPRESS}

    @property
    def shown_actions(self) -> list[argparse.Action]:
        """Every option and word that its help shows, but for --help itself."""
        return [a for a in self._actions if a.help != argparse.SUPPRESS and a.dest != "help"]

    @property
    def own_words(self) -> list[argparse.Action]:
        """What is written without dashes, in order."""
        return [action for action in self._actions if not action.option_strings]

    def takes_value(self, option: str) -> bool:
        """Whether the next word belongs to an option, written whole or as an unambiguous beginning."""
        action = self._option_string_actions.get(option)
        if action is None:
            near = {id(a): a for o, a in self._option_string_actions.items() if o.startswith(option)}
            if option[:2] != "--" or len(near) == 0:
                raise self.unknown(option)
            if len(near) > 1:
                names = ", ".join(sorted(o for o in self._option_string_actions if o.startswith(option)))
                raise UsageError(f"pai {self.name}: {option} could be any of {names}.")
            action = next(iter(near.values()))
        return action.nargs not in (0, "?")  # an optional value needs an =

    def split_command(self, argv: Sequence[str]) -> tuple[list[str], list[str]]:
        """Our options, and the command: from the first word that is no option, or after ``--``."""
        if self.only_show:
            raise Shown(self)
        i = 0
        while i < len(argv):
            word = argv[i]
            if word == "--":
                return list(argv[:i]), list(argv[i + 1 :])
            if not word.startswith("-") or word == "-":
                break
            i += 1 + self._follows(word)
        return list(argv[:i]), list(argv[i:])

    def _follows(self, word: str) -> int:
        """How many of the next words belong to this option: one, or none."""
        if word.startswith("--"):
            option, given, _ = word.partition("=")
            return int(self.takes_value(option) and not given)
        for at in range(1, len(word)):  # -fj NAME, -jNAME
            if self.takes_value("-" + word[at]):
                return int(at == len(word) - 1)
        return 0


def command_parser(
    name: str, example: str, about: str = "", *, output: bool = True, cluster: bool = True
) -> Parser:
    """A parser with the options every command of its kind has."""
    parser = Parser(name, example, about)
    if cluster:
        parser.add_argument("-a", "--cluster-alias", metavar="ALIAS", default="", help="the cluster to use")
    if output:
        parser.add_argument(
            "-o",
            "--output",
            choices=("table", "json", "yaml"),
            default="table",
            help="how to print: for people (table), or for programs (json, yaml)",
        )
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    return parser


def whole_number(low: int = 0):  # type: ignore[no-untyped-def]
    """For argparse: a whole number not below ``low``."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {low}")
        return value

    return read


def parser_of(command: str) -> Parser:
    """The parser of a command, which is not run."""
    from openpaisdk.cli.main import command_named

    Parser.only_show = True
    try:
        command_named(command)([])
    except Shown as shown:
        return shown.parser
    finally:
        Parser.only_show = False
    raise AssertionError(f"pai {command} parses nothing")


def on_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
