"""Option coverage: every option of every command is used in some test."""

import re
from pathlib import Path

import pytest

from openpaisdk.cli.commands import ALIASES, ENTRY_POINTS
from openpaisdk.cli.parser import get_parser
from support.paths import TESTS

TRIED = {path: path.read_text() for path in TESTS.rglob("test_*.py") if path.name != Path(__file__).name}
EVERYWHERE = {"-a", "-o", "--debug"}
"""Options that all commands share, defined once."""


@pytest.mark.parametrize("command", list(ENTRY_POINTS))
def test_every_option_is_used_in_a_test(command: str) -> None:
    names = [command, *(alias for alias, name in ALIASES.items() if name == command)]
    pages = [
        text for text in TRIED.values() if any(re.search(rf"[\"' ]{name}[\"' ]", text) for name in names)
    ]
    assert pages, f"no test types pai {command}"
    missing = []
    for action in get_parser(command).visible_actions:
        options = action.option_strings
        if not options or EVERYWHERE & set(options):
            continue
        if not any(re.search(rf"[\"' ]{re.escape(o)}[\"'= ]", text) for o in options for text in pages):
            missing.append("/".join(options))
    assert not missing, f"no test types pai {command} with {', '.join(missing)}"
