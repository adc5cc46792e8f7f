"""Reference of the commands, generated from them: ``python -m openpaisdk.paddlecloud.reference``."""

from __future__ import annotations

import sys

from openpaisdk.paddlecloud.commands import ALIASES, GROUPS, command_of
from openpaisdk.paddlecloud.flags import COMMON_FLAGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from openpaisdk.paddlecloud.flags import Flag, FlagCommand

HEAD = """\
# Commands of paddlecloud

Every command of `paddlecloud` with its options. This page is generated from the code (`make docs`); a test
checks that it is up to date. `paddlecloud <command> --help` prints the same text in a terminal.
[PaddleCloud](paddlecloud.md) describes how to use them.

Options have one dash or two (`-cpu 2`, `--cpu=2`), and stand before or after the arguments. All commands have
these:

"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD, _table(COMMON_FLAGS)]
    for title, group in GROUPS:
        parts.append(f"\n## {title}\n")
        parts.extend(_section(command_of(name)) for name, _, _ in group)
    return "".join(parts)


def _section(command: FlagCommand) -> str:
    summary = command.summary
    other = [f"`paddlecloud {alias}`" for alias, name in ALIASES.items() if name == command.name]
    parts = [f"\n### paddlecloud {command.name}\n\n{summary[0].upper()}{summary[1:]}."]
    parts.append(f" Also {', '.join(other)}.\n" if other else "\n")
    parts.append(f"\n```text\n{command.usage}\n```\n")
    if command.details:
        parts.append(f"\n```text\n{command.details}\n```\n")
    if own := command.flags[: -len(COMMON_FLAGS)]:
        parts.append("\n" + _table(own))
    parts.append(f"\nFor example:\n\n```text\n{command.example}\n```\n")
    return "".join(parts)


def _table(flags: Iterable[Flag]) -> str:
    return "| option | meaning |\n|---|---|\n" + "".join(f"| `{f.shown}` | {f.help} |\n" for f in flags)


if __name__ == "__main__":
    sys.stdout.write(reference())
