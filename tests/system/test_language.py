"""Guard of the project's language: retired words, module names, durations, duplicate class names."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict

import pytest

from openpaisdk.cli.commands import ENTRY_POINTS
from openpaisdk.cli.parser import get_parser
from paicluster.cli import main
from support.paths import REPOSITORY
from support.source_files import source_files

PACKAGES = ("openpaisdk", "paicluster", "paiprotocol", "pairuntime")
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
_SOURCES = pytest.mark.xdist_group("sources")


def retired_words(text: str) -> list[str]:
    """Lines with a retired word. Quoted messages of other systems are exempted in `EXACT`."""
    return [line.strip() for line in text.splitlines() if RETIRED.search(_without_exact(line))]


# Strings that other systems define, word for word.
EXACT: tuple[str, ...] = ()


def _without_exact(line: str) -> str:
    for text in EXACT:
        line = line.replace(text, "")
    return line


@_SOURCES
@pytest.mark.parametrize("package", PACKAGES)
def test_source_has_no_retired_words(package: str) -> None:
    found = {
        file.name: lines
        for file in source_files()
        if file.package == package and (lines := retired_words(file.text))
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


@_SOURCES
def test_modules_are_nouns() -> None:
    found = [
        file.name
        for file in source_files()
        if (noun := file.path.stem.rpartition("_")[2]).endswith("ing") and noun not in GERUNDS
    ]
    assert found == []


@_SOURCES
def test_durations_carry_their_unit() -> None:
    found = [
        f"{file.name}: {name}"
        for file in source_files()
        for name in file.numbers
        if DURATION.search(name) and not name.endswith(UNITS)
    ]
    assert found == []


@_SOURCES
def test_no_name_says_patience() -> None:
    """It had 23 meanings: a timeout, an interval, a retry window, a buffer size."""
    assert [file.name for file in source_files() if "PATIENCE" in file.text] == []


@_SOURCES
@pytest.mark.parametrize("package", PACKAGES)
def test_class_names_are_unique_within_a_package(package: str) -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in source_files():
        if file.package == package:
            for name in file.classes:
                places[name].append(file.name)
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
