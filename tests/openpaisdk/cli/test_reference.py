"""The command reference is generated from the commands."""

import re

from openpaisdk.cli.commands import ENTRY_POINTS
from openpaisdk.cli.reference import reference
from support.paths import REPOSITORY

PAGE = REPOSITORY / "docs/command-line-references.md"


def test_command_reference_is_current() -> None:
    assert PAGE.read_text() == reference(), "write it anew with: make docs"


def test_default_that_differs_says_where() -> None:
    assert re.findall(r"default: \w+, else", reference()) == []


def test_command_reference_is_complete() -> None:
    page = reference()
    for name in ENTRY_POINTS:
        assert f"### pai {name}\n" in page
    for option in ("`--debug-hold[=TIME]`", "`--sources`, `--src PATH`", "`-u`, `--update KEY=VALUE`"):
        assert option in page
    assert (
        "| 130 | Ctrl-C |" in page
        and "| `job sub` | `sub` |" in page
        and "| `container-sdk-branch` |" in page
    )
