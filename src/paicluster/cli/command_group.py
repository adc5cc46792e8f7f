"""Commands that come in families: `paicluster user add`, `paicluster user list`, …"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from openpaisdk.errors import UsageError
from paicluster.cli.admin_api import AdminApi, home_option, office
from paicluster.cli.password import new_password

Options = Callable[[argparse.ArgumentParser], None]
Work = Callable[[AdminApi, argparse.Namespace], None]


class CommandGroup:
    def __init__(self, name: str, description: str, examples: str):
        self._name = name
        self._description = description
        self._examples = examples
        self._commands: dict[str, tuple[str, Options]] = {}
        self._work: dict[str, Work] = {}

    def command(self, name: str, summary: str) -> Callable[[Options], Options]:
        """The options of one command."""

        def keep(options: Options) -> Options:
            self._commands[name] = (summary, options)
            return options

        return keep

    def handler(self, name: str) -> Callable[[Work], Work]:
        """What that command does."""

        def keep(work: Work) -> Work:
            self._work[name] = work
            return work

        return keep

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.description = self._description
        parser.epilog = "examples:\n" + self._examples
        # Before the verb they do as well as after it.
        home_option(parser)
        commands = parser.add_subparsers(dest="verb", metavar="VERB")
        for name, (summary, options) in self._commands.items():
            one = commands.add_parser(
                name,
                help=summary,
                description=summary[0].upper() + summary[1:] + ".",
                epilog=self._examples_of(name),
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            options(one)
            home_option(one, argparse.SUPPRESS)

    def _examples_of(self, verb: str) -> str | None:
        lines = [line for line in self._examples.splitlines() if f"{self._name} {verb}" in line]
        return "\n".join(["example:", *lines]) if lines else None

    def run(self, arguments: argparse.Namespace) -> int:
        if arguments.verb is None:
            raise UsageError(
                f"Say what to do: paicluster {self._name} {'|'.join(self._commands)}.",
                hint=f"`paicluster {self._name} --help` explains them.",
            )
        if (check := getattr(arguments, "check", None)) is not None:
            check(arguments)
        if getattr(arguments, "wants_password", False):
            # Before the cluster is opened: a person at a terminal takes his time.
            arguments.password = new_password(arguments.name)
        with office(arguments) as opened:
            self._work[arguments.verb](opened, arguments)
        return 0
