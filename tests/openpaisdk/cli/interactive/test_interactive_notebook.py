"""`pai notebook-job --interactive`: a real Jupyter server in a job."""

from __future__ import annotations

import json
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from support.cli_user import BIN, CliUser, until
from support.jupyter import TIMEOUT_S, environment_with_jupyter, open_page
from support.notebooks import notebook, write_notebook

ROOM = ("--mem", "600m")


@pytest.fixture(scope="session", name="jupyter")
def jupyter_environment() -> Path:
    return environment_with_jupyter()


def start(user: CliUser, jupyter: Path, *words: str, env: dict[str, str] | None = None) -> str:
    """The link that is printed."""
    path = {"PATH": f"{jupyter}:{user.env()['PATH']}", **(env or {})}
    done = user.run(["pai", "notebook-job", "--interactive", *ROOM, *words], env=path)
    assert done.status == 0, done
    return done.out.strip()


def command_lines() -> str:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # ended meanwhile
            continue
    return "\n".join(lines)


def open_app(user: CliUser, name: str) -> tuple[int, str, bytes]:
    """The page of a job's notebook, as the portal opens it: the port that has the name, and nothing else."""
    server = user.handshake()
    address, headers = (
        f"{server['url']}/api/v2/jobs/{server['user']}~{name}",
        {"Authorization": f"Bearer {server['token']}"},
    )
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
        [task] = json.load(answer)["taskRoles"]["main"]["taskStatuses"]
    request = urllib.request.Request(
        f"{address}/apps?port={task['containerPorts']['jupyter']}", headers=headers, method="POST"
    )
    with urllib.request.urlopen(request) as answer:
        status, url, page = open_page(json.load(answer)["url"])
    assert "/login" not in url, url
    return status, url, page


# -- before anything is sent ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--interactive", "-p", "a=1"), "-p does not go together with --interactive"),
        (("--interactive", "--follow"), "--follow does not go together with --interactive"),
        (("--interactive", "--fetch=x"), "--fetch does not go together with --interactive"),
        (("--interactive", "--instances", "2"), "An interactive notebook has one task"),
        (("--token", "t"), "--token is for a Jupyter server: add --interactive."),
    ],
)
def test_options_of_the_other_mode_are_refused(user, words: tuple[str, ...], sentence: str) -> None:
    write_notebook(user.project / "a.ipynb", "1")
    done = user.pai("notebook-job", *words, "a.ipynb")
    assert done.status == 2 and sentence in done.err, done


def test_preview_shows_the_known_token_and_no_other(user) -> None:
    write_notebook(user.project / "a.ipynb", "1")
    known = user.pai("notebook-job", "--interactive", "--preview", "a.ipynb")
    assert "pai-runtime notebook-server a.ipynb" in known.out and "export JUPYTER_TOKEN=abcd" in known.out
    given = user.pai("notebook-job", "--interactive", "--preview", "--token", "s3cret-token", "a.ipynb")
    assert given.status == 0 and "s3cret-token" not in given.out and "$secrets.JUPYTER_TOKEN" in given.out
    assert user.pai("set", "notebook-token=from-defaults").status == 0
    default = user.pai("notebook-job", "--interactive", "--preview", "a.ipynb")
    assert "abcd" not in default.out and "from-defaults" not in default.out


# -- a server ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_notebook_opens_at_once_and_edits_are_kept(user, jupyter: Path) -> None:
    write_notebook(user.project / "deep/my model.ipynb", "print(1)")
    opened, browser = user.project / "opened", user.project / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    link = start(user, jupyter, "-j", "edited", "deep/my model.ipynb", env={"BROWSER": str(browser)})
    assert link.startswith("http://127.0.0.1:") and link.endswith(
        "/notebooks/deep/my%20model.ipynb?token=abcd"
    )
    until(opened.exists)
    assert opened.read_text() == f"{link}\n"
    status, url, page = open_page(link)
    assert status == 200 and "/notebooks/deep/" in url and b"jupyter-config-data" in page  # no login page
    # The link can be had again, and the port that the status shows is the right one.
    port = link.split("/")[2].rpartition(":")[2]
    shown = user.pai("job-status", "edited").out
    assert f"  notebook   {link}\n" in shown and f"jupyter={port}" in shown, shown
    again = user.begin("connect-job", "edited")
    try:
        assert again.stdout.readline() == f"{link}\n"
    finally:
        again.kill()
        again.communicate()
    status, url, page = open_page(link, "/lab/tree/deep/my%20model.ipynb")
    assert status == 200 and "/lab/tree/" in url and b"JupyterLab" in page
    assert "/login" in open_page(link.replace("abcd", "wrong"))[1]

    edited = {"type": "notebook", "content": notebook("print('edited')")}
    assert open_page(link, "/api/contents/deep/my%20model.ipynb", "PUT", edited)[0] == 200
    created = {"type": "notebook", "content": notebook("print('created')")}
    assert open_page(link, "/api/contents/new.ipynb", "PUT", created)[0] == 201
    assert user.pai("stop-job", "edited").status == 0
    until(lambda: user.state("edited") == "STOPPED")
    assert user.pai("job-outputs", "edited", "get", "--to", "got").status == 0
    assert "edited" in (user.project / "got/deep/my model.ipynb").read_text()
    assert "created" in (user.project / "got/new.ipynb").read_text()


@pytest.mark.slow
def test_given_token_is_on_no_command_line_and_in_no_log(user, jupyter: Path) -> None:
    write_notebook(user.project / "a.ipynb", "1")
    token = "s3cret-0f-this-test"
    # Its grammar takes seconds: the server does without it.
    (user.project / "rfc3987_syntax.py").write_text("raise SystemExit('it was imported')")
    options = ("--no-browser", "--env", f"PYTHONPATH={user.project}", "-j", "hidden", "--token", token)
    link = start(user, jupyter, *options, "a.ipynb")
    assert link.endswith(f"?token={token}") and open_page(link)[0] == 200
    assert "notebook-server" in command_lines() and token not in command_lines()
    assert token not in user.pai("logs", "hidden").out
    assert token not in user.pai("job-status", "hidden", "config").out
    # Shut down as from Jupyter's own menu: the job has done what it was for.
    assert open_page(link, "/api/shutdown", "POST")[0] == 200
    until(lambda: user.state("hidden") == "SUCCEEDED")
    assert "a.ipynb" in user.pai("job-outputs", "hidden").out


@pytest.mark.slow
def test_job_that_ends_before_the_server_answers_is_reported(user) -> None:
    write_notebook(user.project / "a.ipynb", "1")
    done = user.pai("notebook-job", "--interactive", *ROOM, "--python", "/no/python", "a.ipynb")
    assert done.status == 3 and done.out == "" and "The task has no Python /no/python" in done.err, done


@pytest.mark.slow
def test_installation_of_jupyter_is_shown_while_one_waits(user) -> None:
    write_notebook(user.project / "a.ipynb", "1")
    bare = ("--python", sys._base_executable, "--env", "PIP_NO_INDEX=1")  # type: ignore[attr-defined]
    done = user.run(
        [str(BIN / "pai"), "notebook-job", "--interactive", *ROOM, *bare, "--no-sources", "a.ipynb"],
        env={"PATH": "/usr/bin:/bin"},
    )
    assert done.status == 3 and done.out == "", done
    assert "\nInstalling notebook (cached on this machine).\n" in done.err, done
    assert "pip found no package notebook" in done.err and "What to do: " in done.err, done


@pytest.mark.slow
def test_no_wait_prints_the_name(user, jupyter: Path) -> None:
    write_notebook(user.project / "a.ipynb", "1")
    name = start(user, jupyter, "--no-wait", "-j", "later-notebook", "a.ipynb")
    assert name == "later-notebook"
    user.pai("stop-job", "later-notebook")


@pytest.mark.slow
def test_remote_cluster_is_reached_through_a_forwarded_port(user, new_user, jupyter: Path) -> None:
    """The cluster of another user stands for a remote one; the job goes on after Ctrl-C."""
    new_user.start_cluster()
    server = new_user.handshake()
    account = ("--user", str(server["user"]), "--token", str(server["token"]))
    assert user.pai("add-cluster", "-a", "far", "--pai-uri", str(server["url"]), *account).status == 0
    write_notebook(user.project / "a.ipynb", "1")
    options = ("-i", "host", "--python", str(jupyter / "python"), "--no-browser", "-j", "remote", *ROOM)
    command = user.begin("notebook-job", "-a", "far", "--interactive", *options, "a.ipynb")
    try:
        link = command.stdout.readline().strip()
        token = link.partition("?token=")[2]
        assert len(token) >= 16 and token != "abcd", link
        assert open_page(link)[0] == 200
        port = link.split("/")[2].rpartition(":")[2]
        assert f"port {port}:" not in user.pai("logs", "-a", "far", "remote").out  # not the server's own
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=TIMEOUT_S)
        assert f"pai forward -a far remote {port}:" in err and "Traceback" not in err, err
        assert command.returncode == 130
        assert new_user.state("remote") == "RUNNING"
        shown = user.pai("job-status", "-a", "far", "remote").out
        assert "get its link with: pai connect-job -a far remote" in shown and token not in shown, shown
        command = user.begin("connect-job", "-a", "far", "remote")
        again = command.stdout.readline().strip()
        assert again.endswith(f"?token={token}") and open_page(again)[0] == 200, again
        assert open_app(new_user, "remote")[0] == 200
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=TIMEOUT_S)
        assert "pai connect-job -a far remote" in err and command.returncode == 130, err
    finally:
        command.kill()
        user.pai("stop-job", "-a", "far", "remote")
        user.pai("delete-cluster", "far")
