"""Parser: options, prefixes, and where the command starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpaisdk.cli.commands import ENTRY_POINTS, help_text
from openpaisdk.cli.parser import Parser, get_parser, int_at_least
from openpaisdk.jobs.option_values import seconds
from paiprotocol.errors import UsageError


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


@pytest.fixture
def parser_with_optional_values(parser) -> Parser:
    parser.add_argument("--fetch", nargs="?", const="")
    parser.add_argument("--debug-hold", nargs="?", const=3600, default=0, type=seconds)
    return parser


@pytest.mark.parametrize(
    ("words", "ours", "theirs"),
    [
        ("--fetch out -- cmd", "--fetch=out", "cmd"),
        ("--fetch=out cmd", "--fetch=out", "cmd"),
        ("--fetch -- cmd", "--fetch", "cmd"),
        ("--fetch cmd x", "--fetch", "cmd x"),
        ("--fetch cmd", "--fetch", "cmd"),
        ("--fetch out -f --cpu 2 -- cmd -- x", "--fetch=out -f --cpu 2", "cmd -- x"),
        ("--fetch . --wait -- cmd", "--fetch=. --wait", "cmd"),
        ("--fet out -- cmd", "--fet=out", "cmd"),
        ("--fetch git checkout -- file", "--fetch", "git checkout -- file"),
        ("--fetch ls -l -- x", "--fetch", "ls -l -- x"),  # -l is no option of pai
        ("--fetch -f out -- cmd", "--fetch -f", "out -- cmd"),
        ("--fetch - -- cmd", "--fetch=-", "cmd"),
        ("--debug-hold 10m -- cmd", "--debug-hold=10m", "cmd"),
        ("--debug-hold 10m cmd x", "--debug-hold=10m", "cmd x"),
        ("--debug-hold 10 cmd", "--debug-hold=10", "cmd"),
        ("--debug-hold 7z x", "--debug-hold", "7z x"),
        ("--debug-hold soon -- cmd", "--debug-hold=soon", "cmd"),
        ("--debug-hold cmd", "--debug-hold", "cmd"),
        ("--fetch out --debug-hold 10m -- cmd", "--fetch=out --debug-hold=10m", "cmd"),
        ("--fetch out --debug-hold -- cmd", "--fetch=out --debug-hold", "cmd"),
        ("--debug-hold --fetch out -- cmd", "--debug-hold --fetch=out", "cmd"),
    ],
)
def test_optional_value_may_be_a_word_of_its_own(
    parser_with_optional_values, words: str, ours: str, theirs: str
) -> None:
    assert parser_with_optional_values.split_command(words.split()) == (ours.split(), theirs.split())


@pytest.mark.parametrize(
    ("words", "fetch", "file"),
    [
        ("--fetch out job.yaml", "out", "job.yaml"),
        ("job.yaml --fetch out", "out", "job.yaml"),
        ("--fetch=out job.yaml", "out", "job.yaml"),
        ("--fetch job.yaml", "", "job.yaml"),
        ("job.yaml --fetch", "", "job.yaml"),
        ("--fetch -- job.yaml", "", "job.yaml"),
        ("--fetch out -- job.yaml", "out", "job.yaml"),
        ("--fetch out -f -- job.yaml", "out", "job.yaml"),
        ("job.yaml", None, "job.yaml"),
    ],
)
def test_optional_value_leaves_the_arguments_of_a_command(
    parser_with_optional_values, words: str, fetch: str | None, file: str
) -> None:
    parser_with_optional_values.add_argument("file")
    args = parser_with_optional_values.parse(words.split())
    assert (args.fetch, args.file) == (fetch, file)


def test_too_many_arguments_are_an_error_beside_an_optional_value(parser_with_optional_values) -> None:
    parser_with_optional_values.add_argument("file")
    with pytest.raises(UsageError, match="unexpected argument 'c'"):
        parser_with_optional_values.parse(["--fetch", "a", "b", "c"])


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
