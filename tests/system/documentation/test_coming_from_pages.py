"""Pages for users of other tools: the options and variables in their tables exist."""

from __future__ import annotations

import re

import pytest

from openpaisdk.cli.parser import get_parser
from support.paths import REPOSITORY

PAGES = sorted((REPOSITORY / "docs").glob("coming-from-*.md"))


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
