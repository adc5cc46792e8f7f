"""Command groups: `paicluster user add`, `paicluster user list`, …"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from paicluster.cli.admin_api import AdminApi, connect, home_option
from paicluster.cli.terminal import read_new_password
from paiprotocol.errors import UsageError

Options = Callable[[argparse.ArgumentParser], None]
Handler = Callable[[AdminApi, argparse.Namespace], None]


class CommandGroup:
    """Commands on one kind of object: their options and handlers, registered by decorators."""

    def __init__(self, name: str, description: str, examples: str):
        self._name = name
        self._description = description
        self._examples = examples
        self._commands: dict[str, tuple[str, Options]] = {}
        self._handlers: dict[str, Handler] = {}

    def command(self, name: str, summary: str) -> Callable[[Options], Options]:
        """Register the options of one command."""

        def register(options: Options) -> Options:
            self._commands[name] = (summary, options)
            return options

        return register

    def handler(self, name: str) -> Callable[[Handler], Handler]:
        """Register the function that runs the command."""

        def register(handler: Handler) -> Handler:
            self._handlers[name] = handler
            return handler

        return register

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.description = self._description
        parser.epilog = "examples:\n" + self._examples
        # Accepted before the verb as well as after it.
        home_option(parser)
        commands = parser.add_subparsers(dest="verb", metavar="VERB")
        for name, (summary, options) in self._commands.items():
            command = commands.add_parser(
                name,
                help=summary,
                description=summary[0].upper() + summary[1:] + ".",
                epilog=self._examples_of(name),
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            options(command)
            home_option(command, argparse.SUPPRESS)

    def _examples_of(self, verb: str) -> str | None:
        lines = [line for line in self._examples.splitlines() if f"{self._name} {verb}" in line]
        return "\n".join(["example:", *lines]) if lines else None

    def run(self, arguments: argparse.Namespace) -> int:
        if arguments.verb is None:
            raise UsageError(
                f"A command is missing: paicluster {self._name} {'|'.join(self._commands)}.",
                hint=f"`paicluster {self._name} --help` explains them.",
            )
        if (check := getattr(arguments, "check", None)) is not None:
            check(arguments)
        if getattr(arguments, "wants_password", False):
            # Before the home is locked: typing a password takes a while.
            arguments.password = read_new_password(arguments.name)
        with connect(arguments) as api:
            self._handlers[arguments.verb](api, arguments)
        return 0
