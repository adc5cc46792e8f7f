"""Command reference, generated from the parsers: ``python -m openpaisdk.cli.reference``."""

from __future__ import annotations

import argparse
import re
import sys

from openpaisdk.cli import main
from openpaisdk.cli.commands import GROUPS, aliases_of, command_summary
from openpaisdk.cli.opai_compat import ACTIONS
from openpaisdk.cli.parser import Parser, get_parser
from openpaisdk.config.defaults import KEYS, LISTS

HEAD = """\
# Commands

Every command of `pai` with its options. This page is generated from the code (`make docs`); a test checks
that it is up to date. `pai <command> --help` prints the same text in a terminal.

An option may be shortened to an unambiguous prefix: `--follow` is also `--fol`. Standard output carries only
the result of a command; notices, progress and errors go to standard error.

The Python API is described on [its own page](python-binding.md); [compatibility](compatibility.md) lists the
names of OpenPAI's own tools.
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD, "\n## Overview\n"]
    for title, group in GROUPS:
        parts.append(f"\n**{title}:** " + ", ".join(f"[{n}](#pai-{n})" for n, _, _ in group) + "\n")
    parts.append("\n## Exit statuses\n\n" + _statuses())
    for title, group in GROUPS:
        parts.append(f"\n## {title}\n")
        parts.extend(_command(get_parser(name)) for name, _, _ in group)
    parts.append("\n## Defaults\n\nKeys of `pai set`. An option on the command line takes precedence.\n\n")
    parts.append("| key | meaning |\n|---|---|\n")
    parts.extend(
        f"| `{key}` | {_cell(description)}{_list_note(key)} |\n" for key, description in KEYS.items()
    )
    parts.append("\n## The opai command line\n\n`opai <scene> <action>` is the same as `pai <command>`; ")
    parts.append(
        "`opai set` and `opai unset` are `pai set` and `pai unset`.\n\n| `opai` | `pai` |\n|---|---|\n"
    )
    for scene, actions in ACTIONS.items():
        parts.extend(f"| `{scene} {action}` | `{command}` |\n" for action, command in actions.items())
    return "".join(parts)


def _list_note(key: str) -> str:
    return "; `key+=value` adds a value, `key-=value` removes one" if key in LISTS else ""


def _statuses() -> str:
    rows = ["| status | meaning |\n|---|---|\n"]
    text = " ".join((main.__doc__ or "").partition("\n\n")[2].split()).rstrip(".")
    for number, meaning in re.findall(r"(\d+): (.*?)(?:\. (?=\d)|$)", text):
        rows.append(f"| {number} | {meaning} |\n")
    return "".join(rows)


def _command(parser: Parser) -> str:
    other = [f"`{alias}`" for alias in aliases_of(parser.name)]
    summary = command_summary(parser.name)
    parts = [f"\n### pai {parser.name}\n\n", summary[0].upper() + summary[1:] + ".\n"]
    if other:
        parts.append(f"\nAlso {', '.join(other)}.\n")
    if parser.details:
        parts.append("\n" + _text(parser.details))
    parts.append(f"\n```text\n{_usage(parser)}\n```\n")
    for title, actions in parser.groups().items():
        heading = f"\n**{title}**\n" if title else ""
        parts.append(f"{heading}\n| option | meaning |\n|---|---|\n" + "".join(map(_row, actions)))
    parts.append(f"\nFor example:\n\n```text\n{parser.example}\n```\n")
    return "".join(parts)


def _text(details: str) -> str:
    """Paragraphs as Markdown; indented lines become a code block."""
    out = []
    for block in details.split("\n\n"):
        lines = block.split("\n")
        plain = [line for line in lines if not line.startswith("  ")]
        indented = [line[2:] for line in lines if line.startswith("  ")]
        if plain:
            out.append(" ".join(plain).replace("<", "\\<"))
        if indented:
            out.append("```text\n" + "\n".join(indented) + "\n```")
    return "\n\n".join(out) + "\n"


def _usage(parser: Parser) -> str:
    if parser.usage:
        return str(parser.usage)
    return " ".join([f"pai {parser.name}", "[options]", *map(_positional, parser.positionals)])


def _positional(action: argparse.Action) -> str:
    name = _name(action)
    return {"*": f"[{name} ...]", "+": f"{name} ...", "?": f"[{name}]"}.get(str(action.nargs), name)


def _name(action: argparse.Action) -> str:
    if action.metavar:
        return str(action.metavar)
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest


def _row(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"| `{_cell(_name(action))}` | {_cell(action.help or '')} |\n"
    value = (
        ""
        if action.nargs == 0
        else f" {_name(action) if action.metavar or action.choices else action.dest.upper()}"
    )
    if action.nargs == "?":
        value = f"[={value.strip()}]"
    names = ", ".join(f"`{option}`" for option in action.option_strings[:-1])
    last = f"`{action.option_strings[-1]}{value}`"
    return f"| {_cell(f'{names}, {last}' if names else last)} | {_cell(action.help or '')} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
