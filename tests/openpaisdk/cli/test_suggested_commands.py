"""Suggested commands work where they are copied to: they keep -a, --user and -datacenter that were typed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import openpaisdk
from openpaisdk.cli import typed_options
from openpaisdk.cli.commands import ALIASES, ENTRY_POINTS
from openpaisdk.cli.parser import get_parser
from support.cli_user import CliUser, done_job

SOURCES = Path(openpaisdk.__file__).parent
COMMAND = re.compile(r"(?<![\w/.-])pai ([a-z]+(?:-[a-z]+)*)(?![\w:/-])")


def texts_for_people() -> list[tuple[str, str]]:
    """Every literal that is printed as a notice, or is the hint of an error, with its place."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
            given += node.args if name in ("print_notice", "notify") else []
            for value in given:
                text = "".join(
                    part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "WORD"
                    for part in (value.values if isinstance(value, ast.JoinedStr) else [value])
                )
                found.append((f"{path.relative_to(SOURCES)}:{node.lineno}", text))
    return [(place, text) for place, text in found if COMMAND.search(text)]


def test_every_hint_keeps_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openpaisdk.config.clusters.alias_option", lambda alias: f"-a {alias} ")
    texts = texts_for_people()
    assert len(texts) > 40
    for place, text in texts:
        completed = typed_options.complete(text, get_parser, "team")
        for match in COMMAND.finditer(completed):
            name = ALIASES.get(match[1], match[1])
            if name not in ENTRY_POINTS or not get_parser(name).takes_cluster:
                continue
            # An alias that the text has itself is that of the cluster it is about.
            assert re.match(r" (\S+ )*-a |WORD", completed[match.end() :]), f"{place}: {completed}"


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("See: pai logs -f job", "See: pai logs -a team -f job"),
        ("See: pai logs -a other job", "See: pai logs -a other job"),
        ("pai stop-job x && pai wait x", "pai stop-job -a team x && pai wait -a team x"),
        ("use pai logs x or pai wait x", "use pai logs -a team x or pai wait -a team x"),
        ("pai sub -- python train.py -a 3", "pai sub -a team -- python train.py -a 3"),
        ("pai list-jobs lists your jobs.", "pai list-jobs -a team lists your jobs."),
        ("pai set image=x; pai clone-job x.", "pai set image=x; pai clone-job -a team x."),
        ("pai select-cluster -g team", "pai select-cluster -g team"),
        ("pai go on, pai://team/0/x and a/pai logs", "pai go on, pai://team/0/x and a/pai logs"),
    ],
)
def test_completed_texts(monkeypatch: pytest.MonkeyPatch, text: str, completed: str) -> None:
    monkeypatch.setattr("openpaisdk.config.clusters.alias_option", lambda alias: f"-a {alias} ")
    assert typed_options.complete(text, get_parser, "team") == completed


@pytest.fixture(name="away")
def away_fixture(user: CliUser):
    """A folder in which another cluster than the running one is selected."""
    entry = "- {cluster_alias: elsewhere, pai_uri: 'http://127.0.0.1:9', user: alice, token: x}\n"
    with user.restored_clusters() as clusters:
        clusters.write_text(entry)
        assert user.pai("select-cluster", "elsewhere").status == 0
        yield user


def test_suggestions_of_real_commands_name_the_cluster(away: CliUser) -> None:
    name = away.pai("sub", "-a", "local", "--no-sources", "--mem", "32m", "--wait", "exit 3").out.strip()
    cases = {
        ("exec", "-a", "local", name, "--", "true"): "pai logs -a local",
        ("exec", "-a", "local", name): "pai exec -a local -t",
        ("exec", "-a", "local", "-t", name): "pai exec -a local -i",
        ("logs", "-a", "local", "--grep", "x", "-f", name): "pai logs -a local -f",
        ("job-status", "-a", "local", "no_such_job"): "pai list-jobs -a local lists",
        ("stop-job", "-a", "local"): "pai list-jobs -a local lists",
        ("wait", "-a", "local", name): f"pai logs -a local {name}",
        ("sub", "-a", "local", "--no-sources", "--mem", "32m", "true"): "pai logs -a local -f",
        ("job-outputs", "-a", "local", name, "peek"): "pai job-outputs -a local",
    }
    for words, expected in cases.items():
        done = away.pai(*words)
        assert expected in done.err, (words, done)
        # What an error is, is said about the command itself.
        suggestions = "".join(line for line in done.err.splitlines(True) if not line.startswith("pai: "))
        for match in COMMAND.finditer(suggestions):
            if ALIASES.get(match[1], match[1]) in ENTRY_POINTS and "-a" in get_parser(match[1]).options:
                assert suggestions[match.end() :].startswith(" -a local"), (words, done)


def test_owner_of_a_job_is_kept(away: CliUser) -> None:
    done = away.pai("exec", "-a", "local", "--user", "somebody", "-t", "job")
    assert "pai exec -a local --user somebody -i job -- sh" in done.err, done
    done = away.pai("logs", "-a", "local", "--user", "somebody", "job")
    assert "pai list-jobs -a local --user somebody lists the jobs of somebody." in done.err, done


def test_selected_cluster_is_not_named(user: CliUser) -> None:
    name = done_job(user, "plain_$", "true")
    assert f"pai exec -i {name}" in user.pai("exec", "-a", "local", "-t", name).err


def test_datacenter_is_kept_by_paddlecloud(away: CliUser) -> None:
    done = away.run(["paddlecloud", "kill", "-datacenter", "local", "no-such-job"])
    assert done.status == 1 and "paddlecloud -datacenter local get -a jobs lists yours" in done.err, done
