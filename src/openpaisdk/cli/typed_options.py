"""Options of the typed command that the commands it suggests need, too: ``-a`` and ``--user``."""

from __future__ import annotations

import re

from openpaisdk.cli.commands import ALIASES, ENTRY_POINTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Protocol

    class CommandOptions(Protocol):
        """The options of a command, as far as suggested commands depend on them."""

        @property
        def takes_cluster(self) -> bool: ...
        @property
        def is_about_a_job(self) -> bool: ...

    OptionsOf = Callable[[str], CommandOptions]


# The command, and what follows it up to the next command, or to the end of the sentence or of the line.
_COMMAND = re.compile(
    r"(?<![\w/.-])pai ([a-z]+(?:-[a-z]+)*)(?![\w:/-])((?:(?!\spai [a-z])[^\n;,.&|)]|[.,](?!\s|$))*)"
)


def context_of(args: argparse.Namespace, options_of: OptionsOf) -> Callable[[str], str] | None:
    """Function that adds this command line's options to suggested commands; None if there are none to add.

    ``options_of``: of the command with a name.
    """
    alias, user = getattr(args, "cluster_alias", ""), getattr(args, "user", "")
    if not alias and not user:
        return None
    return lambda text: complete(text, options_of, alias or "", user if isinstance(user, str) else "")


def complete(text: str, options_of: OptionsOf, alias: str, user: str = "") -> str:
    """A text in which each command of ``pai`` has the cluster, and one about a job the job's owner."""
    if "pai " not in text:
        return text
    from openpaisdk.config.clusters import alias_option

    option = alias_option(alias).strip() if alias else ""

    def add(match: re.Match[str]) -> str:
        name, rest = match.groups()
        if ALIASES.get(name, name) not in ENTRY_POINTS:
            return match[0]
        command = options_of(ALIASES.get(name, name))
        words = []
        given = rest.partition(" -- ")[0]  # what follows is the user's own command
        if option and command.takes_cluster and not re.search(r"\s(-a|--cluster-alias)\b", given):
            words.append(option)
        if user and command.is_about_a_job and "~" not in given and " --user" not in given:
            words.append(f"--user {user}")
        return " ".join([f"pai {name}", *words]) + rest

    return _COMMAND.sub(add, text)
