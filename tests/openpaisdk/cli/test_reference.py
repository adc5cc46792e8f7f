"""The page of commands is made from the commands."""

from openpaisdk.cli.commands import PLACES
from openpaisdk.cli.reference import reference
from support.paths import REPOSITORY

PAGE = REPOSITORY / "docs/command-line-references.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == reference(), "write it anew with: make docs"


def test_every_command_and_option_is_on_it() -> None:
    page = reference()
    for name in PLACES:
        assert f"### pai {name}\n" in page
    for option in ("`--debug-hold[=TIME]`", "`--sources`, `--src PATH`", "`-u`, `--update KEY=VALUE`"):
        assert option in page
    assert (
        "| 130 | Ctrl-C |" in page
        and "| `job sub` | `sub` |" in page
        and "| `container-sdk-branch` |" in page
    )
