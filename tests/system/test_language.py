"""Guard of the project's language: retired words, module names, durations, duplicate class names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpaisdk.cli.commands import ENTRY_POINTS
from openpaisdk.cli.parser import get_parser
from paicluster.cli import main
from support.paths import REPOSITORY

SOURCE = REPOSITORY / "src"
PACKAGES = ("openpaisdk", "paicluster", "pairuntime")
RETIRED = re.compile(
    r"\b(whoever|somebody|nobody|he|his|him|himself|hand(s|ed|ing)? in|(take(s|n)?|took) up(?! to\b)"
    r"|set(s|ting)? aside|laid|mend(s|ed|ing)?|in vain)\b",
    re.IGNORECASE,
)
# Modules are nouns; these are the field's own nouns that end so.
GERUNDS = {"hashing", "listing", "logging", "masking", "passing", "polling", "running", "sealing", "staging"}
# A constant with one of these words in its name is a duration and must say its unit.
DURATION = re.compile(
    r"(^|_)(TIMEOUT|INTERVAL|BACKOFF|DELAY|DEADLINE|GRACE|PERIOD|TTL|LIFETIME|LAG|AGE)(_|$)"
)
# A line of a list of subcommands in argparse's help.
SUBCOMMAND = re.compile(r"^    ([a-z-]+)  ", re.MULTILINE)
UNITS = ("_S", "_MS", "_US", "_NS", "_DAYS")


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((SOURCE / package).rglob("*.py"))


def retired_words(text: str) -> list[str]:
    """Lines with a retired word. Quoted messages of other systems are exempted in `EXACT`."""
    return [line.strip() for line in text.splitlines() if RETIRED.search(_without_exact(line))]


# Strings that other systems define, word for word.
EXACT: tuple[str, ...] = ()


def _without_exact(line: str) -> str:
    for text in EXACT:
        line = line.replace(text, "")
    return line


@pytest.mark.parametrize("package", PACKAGES)
def test_source_has_no_retired_words(package: str) -> None:
    found = {
        str(path.relative_to(REPOSITORY)): lines
        for path in sorted((SOURCE / package).rglob("*.py"))
        if (lines := retired_words(path.read_text()))
    }
    assert found == {}


def test_documentation_has_no_retired_words() -> None:
    pages = [
        *REPOSITORY.glob("*.md"),
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "examples").rglob("*.md"),
    ]
    found = {
        str(path.relative_to(REPOSITORY)): lines
        for path in pages
        if (lines := retired_words(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize("command", sorted(ENTRY_POINTS))
def test_help_of_pai_has_no_retired_words(command: str) -> None:
    assert retired_words(get_parser(command).format_help()) == []


def test_help_of_paicluster_has_no_retired_words(capsys: pytest.CaptureFixture[str]) -> None:
    def help_of(*command: str) -> str:
        # `serve` installs signal handlers before it parses, which belong to a process of its own.
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        return capsys.readouterr().out

    shown = [help_of()]
    commands = SUBCOMMAND.findall(shown[0])
    assert {"init", "user", "vc", "backup"} <= set(commands)
    for command in set(commands) - {"serve"}:
        text = help_of(command)
        shown += [text, *(help_of(command, verb) for verb in SUBCOMMAND.findall(text))]
    shown.append(
        subprocess.run(
            [sys.executable, "-m", "paicluster", "serve", "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    assert retired_words("\n".join(shown)) == []


def test_modules_are_nouns() -> None:
    found = [
        str(path.relative_to(SOURCE))
        for path in modules()
        if (noun := path.stem.rpartition("_")[2]).endswith("ing") and noun not in GERUNDS
    ]
    assert found == []


def test_durations_carry_their_unit() -> None:
    found = []
    for path in modules():
        for name in _constants(ast.parse(path.read_text())):
            if DURATION.search(name) and not name.endswith(UNITS):
                found.append(f"{path.relative_to(SOURCE)}: {name}")
    assert found == []


def test_no_name_says_patience() -> None:
    """It had 23 meanings: a timeout, an interval, a retry window, a buffer size."""
    assert [str(path.relative_to(SOURCE)) for path in modules() if "PATIENCE" in path.read_text()] == []


def _constants(tree: ast.Module) -> Iterator[str]:
    """Names of module-level constants that are numbers."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        if _is_number(node.value):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _is_number(node: ast.expr | None) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


@pytest.mark.parametrize("package", PACKAGES)
def test_class_names_are_unique_within_a_package(package: str) -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted((SOURCE / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize(
    ("line", "is_retired"),
    [
        ("Whoever waits longest starts first.", True),
        ("The jobs are set aside.", True),
        ("Fixes what he asked for.", True),
        ("The header has the shape of a theme.", False),
        ("The history is kept.", False),
    ],
)
def test_retired_words_are_found_as_whole_words(line: str, is_retired: bool) -> None:
    assert bool(retired_words(line)) is is_retired
