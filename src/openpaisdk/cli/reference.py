"""The reference of commands, made from the commands themselves: ``python -m openpaisdk.cli.reference``."""

from __future__ import annotations

import argparse
import sys

from openpaisdk.cli import main
from openpaisdk.cli.commands import ALIASES, GROUPS, summary_of
from openpaisdk.cli.opai_compat import ACTIONS
from openpaisdk.cli.parser import Parser, parser_of
from openpaisdk.config.defaults import KEYS, LISTS

HEAD = """\
# Commands

Every command of `pai`, as the commands themselves describe it. This page is made from the code
(`make docs`), and a test holds it current. `pai <command> --help` says the same in a terminal.

An option may be shortened as long as it is plain which one is meant: `--follow` is also `--fol`. What
goes to the standard output is the result; all else a command has to say goes to the standard error.

The same in Python is on [its own page](python-binding.md); [what is compatible](compatibility.md) lists every
name that OpenPAI's own tools have.
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD, "\n## In short\n"]
    for title, group in GROUPS:
        parts.append(f"\n**{title}:** " + ", ".join(f"[{n}](#pai-{n})" for n, _, _ in group) + "\n")
    parts.append("\n## Exit statuses\n\n" + _statuses())
    for title, group in GROUPS:
        parts.append(f"\n## {title}\n")
        parts.extend(_command(parser_of(name)) for name, _, _ in group)
    parts.append("\n## Defaults\n\nKeys of `pai set`; an option of the same name goes before them.\n\n")
    parts.append("| key | what it sets |\n|---|---|\n")
    parts.extend(f"| `{key}` | {_cell(what)}{_adds_up(key)} |\n" for key, what in KEYS.items())
    parts.append("\n## The older command line\n\n`opai <scene> <action>` does what `pai <command>` does; ")
    parts.append("`opai set` and `opai unset` are the same.\n\n| `opai` | `pai` |\n|---|---|\n")
    for scene, actions in ACTIONS.items():
        parts.extend(f"| `{scene} {action}` | `{command}` |\n" for action, command in actions.items())
    return "".join(parts)


def _adds_up(key: str) -> str:
    return "; `key+=value` adds one, `key-=value` takes one away" if key in LISTS else ""


def _statuses() -> str:
    rows = ["| status | meaning |\n|---|---|\n"]
    text = " ".join((main.__doc__ or "").partition("\n\n")[2].split()).rstrip(".")
    for piece in text.replace("; ", ". ").split(". "):
        number, _, meaning = piece.partition(": ")
        rows.append(f"| {number} | {meaning} |\n")
    return "".join(rows)


def _command(parser: Parser) -> str:
    other = [f"`{alias}`" for alias, name in ALIASES.items() if name == parser.name]
    what = summary_of(parser.name)
    parts = [f"\n### pai {parser.name}\n\n", what[0].upper() + what[1:] + ".\n"]
    if other:
        parts.append(f"\nAlso {', '.join(other)}.\n")
    if parser.about:
        parts.append("\n" + _text(parser.about))
    parts.append(f"\n```text\n{_usage(parser)}\n```\n")
    rows = [_row(action) for action in parser.shown_actions]
    if rows:
        parts.append("\n| option | what it does |\n|---|---|\n" + "".join(rows))
    parts.append(f"\nFor example:\n\n```text\n{parser.example}\n```\n")
    return "".join(parts)


def _text(about: str) -> str:
    """Paragraphs as they are; what is indented in a terminal is shown as such."""
    out = []
    for block in about.split("\n\n"):
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
    words = [f"pai {parser.name}", "[options]", *map(_word, parser.own_words)]
    return " ".join(words)


def _word(action: argparse.Action) -> str:
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
