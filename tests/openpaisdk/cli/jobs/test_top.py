"""`pai top`: tables in a pipe, a live window on a terminal, JSON; empty, unknown and finished jobs."""

import json
import re
import sys
from collections.abc import Iterator

import pytest

from support.cli_user import CliUser, done_job, until
from support.prepared_database import prepare_database
from support.server_fixture import Cluster
from support.terminal import start_on_terminal

BURN = f"{sys.executable} -c 'data = bytearray(b\"x\") * (100 << 20)\nwhile True: pass'"


@pytest.fixture(scope="module", name="user")
def user_of_sampled_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliUser]:
    """A user of a cluster with more cores than this machine may have, which samples every second."""
    folder = tmp_path_factory.mktemp("top")
    prepare_database(folder / "cluster")
    (folder / "cluster/cluster.yaml").write_text("usage: {every: 1s}\n")
    cluster = Cluster(folder / "cluster").start()
    user = CliUser(folder)
    host, port = cluster.address
    where = ["--pai-uri", f"http://{host}:{port}", "--user", cluster.user, "--token", cluster.token]
    added = user.pai("add-cluster", "-a", "team", *where)
    assert added.status == 0, added
    assert user.pai("select-cluster", "team").status == 0
    yield user
    cluster.close()


@pytest.fixture(scope="module", name="burning")
def burning_job(user: CliUser) -> Iterator[str]:
    """A job of two tasks, each of which uses a core and 100 MB."""
    words = ("--no-sources", "-i", "host", "--instances", "2", "--cpu", "1", "-j", "top_burn_$", BURN)
    submitted = user.pai("sub", *words)
    job = submitted.out.strip()
    assert job, submitted
    until(lambda: is_measured(user, job))
    yield job
    user.pai("stop-job", job)


def is_measured(user: CliUser, job: str) -> bool:
    shown = user.pai("top", job, "-o", "json")
    tasks = json.loads(shown.out)["tasks"] if shown.status == 0 else []
    return len(tasks) == 2 and all(task["memory"] > 90 << 20 for task in tasks)


def test_tasks_of_a_job_as_a_table(user: CliUser, burning: str) -> None:
    shown = user.pai("top", burning)
    assert shown.status == 0, shown
    headers, first, second = shown.out.splitlines()
    assert re.fullmatch(r"TASK +NODE +CPU +MEMORY +READ/S +WRITE/S", headers), headers
    for index, line in enumerate((first, second)):
        assert re.match(rf"\w+\[{index}\] +\S+ +\d+\.\d\d of 1 +1\d\d MB of ", line), line


def test_tasks_as_json(user: CliUser, burning: str) -> None:
    found = json.loads(user.pai("top", burning, "-o", "json").out)
    assert found["taskCount"] == 2
    assert {task["index"] for task in found["tasks"]} == {0, 1}
    assert sum(task["cpu"] for task in found["tasks"]) > 0
    assert "series" not in found


def test_nodes_and_my_jobs(user: CliUser, burning: str) -> None:
    shown = user.pai("top")
    assert shown.status == 0, shown
    nodes, jobs = shown.out.split("\n\n")
    assert nodes.startswith("NODE ")
    assert len(nodes.splitlines()) == 2
    (row,) = [line for line in jobs.splitlines() if line.startswith(burning)]
    assert re.match(rf"{burning} +2 +\d+\.\d\d of 2 +2\d\d MB of ", row), row
    others = user.pai("top", "--user", "stranger")
    assert burning not in others.out
    assert "No running jobs" in others.err
    everybody = user.pai("top", "--user", "__all__")
    assert f"~{burning} " in everybody.out


def test_live_window_ends_with_ctrl_c_and_leaves_the_table(user: CliUser, burning: str) -> None:
    window = start_on_terminal(user, "top", "--interval", "1", burning, columns=100)
    window.wait_for("MEMORY")
    drawn = len(window.pictures())
    until(lambda: window.read() and len(window.pictures()) > drawn)
    picture = window.pictures()[-1]
    assert picture[0].startswith(f"Tasks of {burning} on ")
    assert "every second; Ctrl-C ends" in picture[0]
    window.type("\x03")
    assert window.finish() == 130


def test_finished_and_unknown_jobs(user: CliUser) -> None:
    job = done_job(user, "top_done_$", "-i", "host", "true")
    shown = user.pai("top", job)
    assert (shown.status, shown.out.strip()) == (0, "")
    assert "No task of" in shown.err
    unknown = user.pai("top", "no_such_job")
    assert unknown.status != 0
    assert "no_such_job" in unknown.err
    assert "Traceback" not in unknown.err
