"""Pages for users of other tools: examples print what they promise; commands, options and variables exist."""

from __future__ import annotations

import re

import pytest

from openpaisdk.cli.commands import ALIASES, ENTRY_POINTS
from openpaisdk.cli.parser import get_parser
from support.paths import REPOSITORY

PAGES = sorted((REPOSITORY / "docs").glob("coming-from-*.md"))
PRINTED = {
    "coming-from-slurm": ("training number 3", "SUCCEEDED", "task 1 of 2 meets at 127.0.0.1"),
    "coming-from-skypilot": ("learning rate 0.1", "learning rate 0.2", "trained"),
    "coming-from-submitit": ("rate 0.01 seed 3",),
    "coming-from-openpai": ("hello from worker 0",),
}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_print_what_the_page_promises(new_user, page) -> None:
    printed = ""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
        done = new_user.run(["bash", "-euo", "pipefail", "-c", block])
        assert done.status == 0, (block, done)
        printed += done.out
    for text in PRINTED[page.stem]:
        assert text in printed, printed


NOT_YET: set[str] = set()
"""Documented commands of other tools that `pai` does not have."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_option_exists(page) -> None:
    for command, arguments in re.findall(r"`pai ([a-z-]+)([^`\n]*)`", page.read_text()):
        command = ALIASES.get(command, command)
        if command in NOT_YET:
            continue
        assert command in ENTRY_POINTS
        options = re.findall(r"(?<![\w-])--?[a-z][\w-]*", arguments.split(" -- ")[0].split("'")[0])
        assert set(options) <= set(get_parser(command)._option_string_actions), (command, arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_option_of_sub_exists(page) -> None:
    """Cells of our side that begin with an option mean an option of ``pai sub``."""
    cells = re.findall(r"^\|[^|]+\| (`-[^|]+) \|", page.read_text(), re.MULTILINE)
    known = set(get_parser("sub")._option_string_actions)
    for option in re.findall(r"`(--?[a-z][\w-]*)", " ".join(cells)):
        assert option in known, option


def test_variables_of_a_task_exist(user) -> None:
    done = user.pai("sub", "--follow", "--no-sources", "--", "env")
    present = set(re.findall(r"^(\w+)=", done.out, re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"\b(PAI_\w+|RANK|WORLD_SIZE|MASTER_\w+|NODE_RANK)\b", page.read_text())) - {
            "PAI_"
        }
        assert named <= present, (page.stem, named - present)


def test_commands_that_are_not_there_yet_are_listed_so() -> None:
    page = (REPOSITORY / "docs/coming-from-openpai.md").read_text()
    missing = page.partition("## Not there yet")[2]
    assert not NOT_YET & (set(ENTRY_POINTS) | set(ALIASES))
    assert all(f"`{name}`" in missing for name in NOT_YET)
