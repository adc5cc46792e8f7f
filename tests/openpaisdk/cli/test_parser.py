"""Parser: options, prefixes, and where the command starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpaisdk.cli.commands import ENTRY_POINTS, help_text
from openpaisdk.cli.parser import Parser, get_parser, int_at_least
from openpaisdk.errors import UsageError


@pytest.fixture
def parser() -> Parser:
    p = Parser("sub", "pai sub true")
    p.add_argument("-f", "--follow", action="store_true")
    p.add_argument("--wait", action="store_true")
    p.add_argument("-j", "--job-name")
    p.add_argument("--cpu", type=int_at_least(1))
    p.add_argument("--sources", "--src", action="append")
    return p


@pytest.mark.parametrize(
    ("words", "ours", "theirs"),
    [
        ("python train.py", "", "python train.py"),
        ("-- python train.py", "", "python train.py"),
        ("-f -j name python x -f", "-f -j name", "python x -f"),
        ("--follow --job-name=n ls --wait -- x", "--follow --job-name=n", "ls --wait -- x"),
        ("-fj n cmd", "-fj n", "cmd"),
        ("-jn cmd", "-jn", "cmd"),
        ("--job n cmd", "--job n", "cmd"),
        ("--src a --src b -- -weird", "--src a --src b", "-weird"),
        ("--cpu 2 -- -- x", "--cpu 2", "-- x"),
        ("-f - x", "-f", "- x"),
        ("-f", "-f", ""),
    ],
)
def test_command_starts_at_first_non_option(parser, words: str, ours: str, theirs: str) -> None:
    assert parser.split_command(words.split()) == (ours.split(), theirs.split())


@given(st.lists(st.text(min_size=0, max_size=5), max_size=6))
def test_everything_after_double_dash_is_the_command(words: list[str]) -> None:
    p = Parser("sub", "pai sub true")
    p.add_argument("-f", "--follow", action="store_true")
    assert p.split_command(["-f", "--", *words]) == (["-f"], words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--folow", "x"], "Did you mean --follow"),
        (["-z", "x"], "no option -z"),
        (["--", "x"], ""),
    ],
)
def test_unknown_option_gets_a_suggestion(parser, words: list[str], says: str) -> None:
    if not says:
        parser.split_command(words)
        return
    with pytest.raises(UsageError, match=says):
        parser.split_command(words)


def test_ambiguous_prefix_is_an_error() -> None:
    p = Parser("sub", "pai sub true")
    p.add_argument("--memory")
    p.add_argument("--memoryMB")
    with pytest.raises(UsageError, match="--mem is ambiguous: --memory, --memoryMB"):
        p.split_command(["--mem", "1", "x"])


def test_invalid_value_is_one_line_error(parser) -> None:
    with pytest.raises(UsageError, match="'zero' is not a whole number of at least 1"):
        parser.parse(["--cpu", "zero"])


def test_help_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indented lines are for copying and are not wrapped."""
    monkeypatch.setenv("COLUMNS", "80")
    assert not [line for line in help_text().splitlines() if len(line) > 80]
    for name in ENTRY_POINTS:
        help_of_it = get_parser(name).format_help()
        assert not [line for line in help_of_it.splitlines() if len(line) > 80 and line[0] != " "], name
    assert (
        "  bash:  echo 'eval \"$(pai completion bash)\"' >> ~/.bashrc\n"
        in get_parser("completion").format_help()
    )
