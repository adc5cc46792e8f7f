"""What servers and other users wrote is shown on a terminal, and never controls it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from support.cli_user import CliUser, done_job
from support.http_peer import Peer, reply
from support.terminal import run_on_terminal, start_on_terminal

CLEAR_SCREEN = "\x1b[2J"
SET_TITLE = "\x1b]0;owned\x07"
_OWN = re.compile(r"\x1b\[[0-9;]*[mK]|[\r\n\t]")


def assert_harmless(text: str) -> None:
    rest = _OWN.sub("", text)
    assert rest.isprintable(), repr(rest)


@pytest.fixture(scope="module")
def hostile_job(shared_user: CliUser) -> str:
    """A job whose tag, command, log and failure all contain control sequences."""
    name = done_job(
        shared_user,
        "hostile_$",
        "sh",
        "-c",
        "printf 'log \\033]0;owned\\007 \\033[31mred\\033[0m\\n'; exit 3",
    )
    tagged = shared_user.pai("tag-job", name, f"release{CLEAR_SCREEN}")
    assert tagged.status == 0, tagged
    return name


@pytest.mark.parametrize("words", [["list-jobs"], ["job-status"], ["job-status", "-o", "json"]])
def test_tags_of_jobs_are_shown_as_escapes(user: CliUser, hostile_job: str, words: list[str]) -> None:
    name = [hostile_job] if words[0] == "job-status" else []
    terminal = run_on_terminal(user, *words, *name, columns=250)
    assert_harmless(terminal.text)
    assert words == ["list-jobs"] or "release" in terminal.text


def test_log_on_a_terminal_is_coloured_and_harmless(user: CliUser, hostile_job: str) -> None:
    terminal = run_on_terminal(user, "logs", hostile_job)
    assert_harmless(terminal.text)
    assert "\\x1b]0;owned\\x07" in terminal.text
    assert "\x1b[31mred\x1b[0m" in terminal.text


def test_piped_log_is_what_the_job_wrote(user: CliUser, hostile_job: str) -> None:
    assert user.pai("logs", hostile_job).out == "log \x1b]0;owned\x07 \x1b[31mred\x1b[0m\n"


def test_file_names_are_shown_as_escapes(user: CliUser) -> None:
    folder = user.project / "files"
    folder.mkdir()
    (folder / f"f{SET_TITLE}").write_text("x")
    target = "pai://local/0/user/${PAI_USER_NAME}/escapes"
    copied = start_on_terminal(user, "copy", "files", target)
    copied.finish()
    assert_harmless(copied.text)
    terminal = run_on_terminal(user, "listdir", target)
    assert_harmless(terminal.text)


@pytest.fixture
def hostile_server() -> Iterator[Peer]:
    message = {"code": f"X{SET_TITLE}", "message": f"no{CLEAR_SCREEN}", "hint": f"hint{SET_TITLE}"}
    peer = Peer(lambda request: reply(message, 400))
    yield peer
    peer.close()


@pytest.mark.parametrize("words", [["list-jobs"], ["logs", "j"], ["job-status", "j"], ["cluster-resources"]])
def test_errors_of_a_hostile_server_are_shown_as_escapes(
    user: CliUser, hostile_server: Peer, words: list[str]
) -> None:
    entry = f"- {{cluster_alias: hostile, pai_uri: '{hostile_server.uri}', user: a, token: t}}\n"
    with user.restored_clusters() as clusters:
        clusters.write_text(entry)
        terminal = start_on_terminal(user, *words, "-a", "hostile")
        assert terminal.finish() != 0
    assert "no\\x1b[2J" in terminal.text
    assert_harmless(terminal.text)
