"""docs/troubleshooting.md: the product prints every sentence it explains, and no exit code is missing."""

from __future__ import annotations

import ast
import re

import pytest

from openpaisdk.cli.exit_code_reference import exit_code_table, replace_table
from paiprotocol.jobs.exit_codes import exit_specs, match_exit
from support.paths import REPOSITORY
from support.source_files import HOLE, source_files, template_of

pytestmark = pytest.mark.xdist_group("sources")

PAGE = (REPOSITORY / "docs/troubleshooting.md").read_text()


def table_rows(header: str) -> list[list[str]]:
    """Cells of all tables with this header."""
    tables = re.findall(rf"^\| {re.escape(header)} .*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def first_quoted(cell: str) -> str:
    return re.findall(r"`([^`]+)`", cell)[0]


SENTENCES = [first_quoted(cells[0]) for cells in table_rows("it says")]
OUTPUTS = [(first_quoted(cells[0]), int(cells[1])) for cells in table_rows("the log has")]
STATUSES = {
    "command not found": 127,
    "required file not found": 127,
    "loading shared libraries": 127,
    "Permission denied": 126,
    "Killed": 137,
    "Watchdog": 134,
    "can't open file": 2,
}
"""Exit status with these texts; that of a Python program with an exception is 1."""


@pytest.mark.parametrize("sentence", SENTENCES)
def test_every_sentence_is_one_that_the_product_prints(sentence: str) -> None:
    parts = sentence.split(HOLE)
    longest = max(parts, key=len)
    assert len(longest) > 10, "too short to be found by searching"
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    texts = (text for file in source_files() for text in file.texts)
    assert any(longest in text and pattern.search(text) for text in texts)


def test_page_has_sentences_of_all_parts() -> None:
    assert len(SENTENCES) > 60 and len(OUTPUTS) > 10


@pytest.mark.parametrize(("text", "code"), OUTPUTS)
def test_output_of_a_program_is_recognized_as_the_page_says(text: str, code: int) -> None:
    status = next((status for part, status in STATUSES.items() if part in text), 1)
    traceback = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n'
    assert match_exit(status, f"{traceback}{text.replace(HOLE, 'x')}\n").code == code


def test_every_exit_code_is_in_the_table() -> None:
    assert replace_table(PAGE) == PAGE, "write it anew with: make docs"
    for spec in exit_specs():
        assert re.search(rf"^\| {spec.code} \| `{spec.phrase}` \|", PAGE, re.MULTILINE), spec
    assert exit_code_table() in PAGE


def causes() -> list[str]:
    """The sentences of all known causes, with holes."""
    tree = ast.parse((REPOSITORY / "src/paiprotocol/jobs/failure_causes.py").read_text())
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    reasons = [call.args[1] for call in calls if call.func.id in ("Cause", "_command_rule")]
    texts = [template_of(reason) for reason in reasons]
    return [re.sub(r"\{\w+\}", HOLE, text) for text in texts if text.strip(HOLE)]


@pytest.mark.parametrize("cause", causes())
def test_every_known_cause_is_in_the_index(cause: str) -> None:
    patterns = [".*".join(map(re.escape, sentence.split(HOLE))) for sentence in SENTENCES]
    assert any(re.fullmatch(f"{pattern}.*", cause) for pattern in patterns)
