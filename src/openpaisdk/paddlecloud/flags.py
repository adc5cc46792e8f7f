"""Command lines in the manner of Go's ``flag`` package, as PaddleCloud's client has them.

One dash or two make no difference (``-cpu 2``, ``--cpu=2``), short options are not bundled, and options may
also follow the arguments. argparse reads ``-pscpu`` as ``-p scpu`` as soon as it is misspelt.
"""

from __future__ import annotations

import sys

from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false")


class Flag:
    """One option. Without ``metavar`` it is a switch; ``read`` converts the text of its value."""

    __slots__ = ("default", "help", "metavar", "names", "read")

    def __init__(
        self,
        names: str,
        help: str,
        metavar: str = "",
        *,
        default: object = "",
        read: Callable[[str], object] = str,
    ):
        self.names = names.split()
        self.help = help
        self.metavar = metavar
        self.default: object = default if metavar else False
        self.read = read

    @property
    def shown(self) -> str:
        """The option in help texts and messages: ``-parallelism, -p N``."""
        return ", ".join(f"-{name}" for name in self.names) + (f" {self.metavar}" if self.metavar else "")


COMMON_FLAGS = (
    Flag("datacenter", "the datacenter of ~/.paddle/config to use", "NAME"),
    Flag("debug", "print every request, and the traceback of a failure"),
)


class HelpRequested(Exception):
    """``-h`` or ``--help`` was given; the help has been printed."""


class Arguments:
    """A parsed command line: values of options by their first name, and the positional arguments."""

    __slots__ = ("positional", "values")

    def __init__(self, values: dict[str, object], positional: list[str]):
        self.values = values
        self.positional = positional

    def text(self, name: str) -> str:
        return str(self.values[name])

    def number(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def is_set(self, name: str) -> bool:
        return self.values[name] is True


class FlagCommand:
    """A command: its options, how many positional arguments it takes, and its help."""

    def __init__(
        self,
        name: str,
        placeholders: str,
        summary: str,
        example: str,
        *flags: Flag,
        count: tuple[int, int | None] = (0, 0),
        details: str = "",
    ):
        """``placeholders`` stand for the positional arguments in the usage; ``count`` is the least and the
        greatest number of them, None for any number."""
        self.name = name
        self.placeholders = placeholders
        self.summary = summary
        self.example = example.strip()
        self.details = details.strip()
        self.flags = (*flags, *COMMON_FLAGS)
        self.count = count
        self._by_name = {name: flag for flag in self.flags for name in flag.names}

    @property
    def usage(self) -> str:
        return f"paddlecloud {self.name} [options] {self.placeholders}".rstrip()

    def help_text(self) -> str:
        width = max(len(flag.shown) for flag in self.flags)
        parts = [f"usage: {self.usage}\n\n{self.summary[0].upper()}{self.summary[1:]}.\n"]
        if self.details:
            parts.append(f"\n{self.details}\n")
        parts.append("\noptions:\n")
        parts.extend(f"  {flag.shown:<{width}}  {flag.help}\n" for flag in self.flags)
        parts.append("\nexample:\n" + "".join(f"  {line}\n" for line in self.example.splitlines()))
        return "".join(parts)

    def parse(self, argv: Sequence[str]) -> Arguments:
        values: dict[str, object] = {flag.names[0]: flag.default for flag in self.flags}
        positional: list[str] = []
        at = 0
        while at < len(argv):
            word = argv[at]
            at += 1
            if word == "--":
                positional += argv[at:]
                break
            if not word.startswith("-") or word == "-":
                positional.append(word)
                continue
            name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
            if name in ("h", "help"):
                sys.stdout.write(self.help_text())
                raise HelpRequested
            flag = self._by_name.get(name)
            if flag is None:
                raise self._unknown(name)
            if not flag.metavar:
                values[flag.names[0]] = self._read_switch(name, value) if equals else True
                continue
            if not equals:
                if at == len(argv):
                    raise self.error(f"-{name} needs a value: -{name} {flag.metavar}")
                value = argv[at]
                at += 1
            values[flag.names[0]] = self._read_value(flag, name, value)
        if datacenter := values["datacenter"]:
            from openpaisdk.output.suggested_commands import set_context

            set_context(lambda text: _with_datacenter(text, str(datacenter)))
        self._check_count(positional)
        if values["debug"]:
            from openpaisdk.cli.debug import enable_debug

            enable_debug()
        return Arguments(values, positional)

    def error(self, message: str) -> UsageError:
        return UsageError(f"{self.name}: {message}.", hint=f"paddlecloud {self.name} --help shows the usage.")

    def _read_switch(self, name: str, value: str) -> bool:
        if value.lower() not in (*_TRUE, *_FALSE):
            raise self.error(f"-{name} is either true or false, not {value!r}")
        return value.lower() in _TRUE

    def _read_value(self, flag: Flag, name: str, value: str) -> object:
        try:
            return flag.read(value)
        except UsageError as e:
            raise self.error(f"-{name}: {e.message.rstrip('.')}") from None

    def _check_count(self, positional: list[str]) -> None:
        least, most = self.count
        if len(positional) < least:
            raise UsageError(
                f"{self.name}: arguments are missing: {self.placeholders.removesuffix(' ...')}.",
                hint=f"For example: {self.example.splitlines()[0]}",
            )
        if most is not None and len(positional) > most:
            raise self.error(f"unexpected argument {positional[most]!r}")

    def _unknown(self, name: str) -> UsageError:
        from difflib import get_close_matches

        near = get_close_matches(name, self._by_name, 1)
        return UsageError(
            f"paddlecloud {self.name} has no option -{name}."
            + (f" Did you mean -{near[0]}?" if near else ""),
            hint=f"paddlecloud {self.name} --help lists its options.",
        )


def _with_datacenter(text: str, name: str) -> str:
    """The text, with this datacenter in its suggested commands, but for those whose paths name one."""
    import re

    return re.sub(
        r"(?<![\w/.-])paddlecloud (?=[a-z])(?!(?:pfs|file)\b|[a-z ]*--help|[^\n]*-datacenter)",
        f"paddlecloud -datacenter {name} ",
        text,
    )


def at_least(low: int) -> Callable[[str], int]:
    """Reads an integer of at least ``low``."""

    def read(text: str) -> int:
        from openpaisdk.jobs.option_values import whole_number

        return whole_number(text, low)

    return read
