"""SSH and notebooks on the nodes of a real Slurm, as a user's commands."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_user import LIMIT, CliUser, until
from support.jupyter import environment_with_jupyter, open_page
from support.notebooks import notebook, texts, write_notebook
from support.slurm_cluster import RealSlurm
from support.slurm_jobs import SETTINGS
from support.ssh_client import install_openssh

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("slurm-user")]

ROOM = ("--vc", "slurm", "--mem", "600m", "--timeout", "10m")


@pytest.fixture(scope="module", name="person")
def user_over_slurm(slurm: RealSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliUser]:
    """A user whose embedded cluster has a virtual cluster on Slurm."""
    person = CliUser(tmp_path_factory.mktemp("over-slurm"))
    # The first start creates the folder of the cluster, where its settings belong.
    assert person.pai("start-cluster").status == 0
    assert person.pai("stop-cluster", "--now").status == 0
    (home,) = (person.home / ".openpai/local").iterdir()
    (home / "cluster.yaml").write_text(SETTINGS.format(shared=person.home / "shared"))
    yield person
    person.pai("stop-cluster", "--now")


def test_container_is_reached_by_ssh(person: CliUser) -> None:
    install_openssh()
    done = person.pai(
        "start-container", "-j", "dev", "--vc", "slurm", "--memoryMB", "300", "--timeout", "10m"
    )
    assert done.status == 0, done
    line = shlex.split(done.out.splitlines()[-1])
    where = "python3 -c 'from openpaisdk.runtime import where; print(where())'"
    asked = person.run([*line, f"echo $SLURM_JOB_ID; {where}; exit 7"])
    assert asked.status == 7 and asked.out.splitlines()[0].isdigit(), asked
    assert asked.out.splitlines()[1] == "interactive"
    assert person.sh("pai ssh-config dev > dev.conf").status == 0
    data = os.urandom(300_000)
    (person.project / "data").write_bytes(data)
    assert person.run(["scp", "-q", "-F", "dev.conf", "data", "dev:copy"]).status == 0
    assert person.run(["scp", "-q", "-F", "dev.conf", "dev:copy", "back"]).status == 0
    assert (person.project / "back").read_bytes() == data
    person.pai("stop-job", "dev")


def test_notebook_runs_as_a_job(person: CliUser) -> None:
    write_notebook(person.project / "batch.ipynb", "import os; print('SLURM_JOB_ID' in os.environ)", "1 / 0")
    done = person.pai("notebook-job", "--no-browser", *ROOM, "-j", "batch", "batch.ipynb")
    assert done.status == 3 and "ZeroDivisionError" in person.pai("logs", "batch").out, done
    printed = texts(person.project / "batch.executed.ipynb")
    assert printed == ["True\n", "ZeroDivisionError: division by zero"]
    assert b"ZeroDivisionError" in (person.project / "batch.html").read_bytes()


def test_notebook_is_opened_on_its_node(person: CliUser) -> None:
    """Through a forwarded port: the loopback of a node is not that of this machine."""
    write_notebook(person.project / "a.ipynb", "1")
    jupyter = environment_with_jupyter()
    words = ("--interactive", "--no-browser", "--python", str(jupyter / "python"), *ROOM, "-j", "live")
    command = person.begin("notebook-job", *words, "a.ipynb")
    try:
        link = command.stdout.readline().strip()
        token = link.partition("?token=")[2]
        assert len(token) >= 16, "others use the node, too"
        assert open_page(link)[0] == 200
        edited = {"type": "notebook", "content": notebook("print('edited')")}
        assert open_page(link, "/api/contents/a.ipynb", "PUT", edited)[0] == 200
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=LIMIT)
        assert command.returncode == 130 and "pai forward live " in err, err
    finally:
        command.kill()
        person.pai("stop-job", "live")
    until(lambda: person.state("live") == "STOPPED")
    assert person.pai("job-outputs", "live", "get", "--to", "got").status == 0
    assert "edited" in Path(person.project / "got/a.ipynb").read_text()
