"""SSH and notebooks in containers, as a user's commands: images without sshd, with Jupyter."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

import pytest

from support.cli_user import LIMIT, CliUser, until
from support.container_images import WITH_JUPYTER, make
from support.external_services import install_podman
from support.jupyter import open_page
from support.notebooks import notebook, texts, write_notebook
from support.ssh_client import install_openssh

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("image-jobs")]

ROOM = ("-i", WITH_JUPYTER, "--mem", "600m", "--timeout", "10m")


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    install_podman()
    make("podman", WITH_JUPYTER)


def test_container_is_reached_by_ssh_and_exec(user: CliUser) -> None:
    install_openssh()
    words = ("-j", "dev-in-image", "-i", WITH_JUPYTER, "--memoryMB", "300", "--timeout", "10m")
    done = user.pai("start-container", *words)
    assert done.status == 0, done
    line = shlex.split(done.out.splitlines()[-1])
    where = "python3 -c 'from openpaisdk.runtime import where; print(where())'"
    asked = user.run([*line, f"{where}; ls -d /usr/local/pai/work; exit 7"])
    assert (asked.status, asked.out) == (7, "interactive\n/usr/local/pai/work\n"), asked
    assert user.pai("exec", "dev-in-image", "--", "sh", "-c", where).out == "interactive\n"
    user.pai("stop-job", "dev-in-image")


def test_notebook_runs_as_a_job(user: CliUser) -> None:
    write_notebook(user.project / "batch.ipynb", "import os; print(os.environ['RATE'])", "1 / 0")
    words = ("--no-browser", *ROOM, "--env", "RATE=2", "-j", "batch")
    done = user.pai("notebook-job", *words, "batch.ipynb")
    log = user.pai("logs", "batch").out
    assert done.status == 3 and "ZeroDivisionError" in log and "Installing" not in log, (done, log)
    printed = texts(user.project / "batch.executed.ipynb")
    assert printed == ["2\n", "ZeroDivisionError: division by zero"]
    assert b"ZeroDivisionError" in (user.project / "batch.html").read_bytes()


def test_notebook_is_opened_in_its_container(user: CliUser) -> None:
    write_notebook(user.project / "a.ipynb", "1")
    command = user.begin("notebook-job", "--interactive", "--no-browser", *ROOM, "-j", "live", "a.ipynb")
    try:
        link = command.stdout.readline().strip()
        assert link.endswith("/notebooks/a.ipynb?token=abcd"), link
        assert open_page(link)[0] == 200
        edited = {"type": "notebook", "content": notebook("print('edited')")}
        assert open_page(link, "/api/contents/a.ipynb", "PUT", edited)[0] == 200
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=LIMIT)
        assert command.returncode == 130 and "pai forward live " in err, err
    finally:
        command.kill()
        user.pai("stop-job", "live")
    until(lambda: user.state("live") == "STOPPED")
    assert user.pai("job-outputs", "live", "get", "--to", "got").status == 0
    assert "edited" in Path(user.project / "got/a.ipynb").read_text()
