"""On a cluster that does not store job files itself, sources and outputs are transferred by its storage.

Our server plays such a cluster: it hides its own features and trusts ``user.name`` like HDFS.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.cli_user import BIN, CliUser
from support.notebooks import texts, write_notebook
from support.server_fixture import Cluster


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, CliUser]]:
    root = tmp_path_factory.mktemp("foreign")
    config = root / "cluster.yaml"
    config.write_text("authentication:\n  trust-user-name: true\n")
    cluster = Cluster(root / "home").start("--config", str(config))
    person = CliUser(root / "user")
    (person.home / ".openpai").mkdir()
    entry = {
        "cluster_alias": "foreign",
        "pai_uri": f"http://{cluster.address[0]}:{cluster.address[1]}",
        "user": cluster.user,
        "token": cluster.token,
        "info": {"version": "v1.8.0"},
    }
    (person.home / ".openpai/clusters.yaml").write_text(yaml.safe_dump([entry]))
    yield cluster, person
    cluster.close()


def test_sources_and_outputs_travel_by_storage(foreign: tuple[Cluster, CliUser], tmp_path: Path) -> None:
    cluster, person = foreign
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "word.txt").write_text("from far away")
    (tmp_path / "say.py").write_text(
        "import os\nprint(open('deep/word.txt').read())\n"
        "open(os.environ['PAI_OUTPUT_DIR'] + '/out.txt', 'w').write('kept')\n"
        "open('named.txt', 'w').write('named')\n"
    )
    words = (
        "sub",
        "-a",
        "foreign",
        "-i",
        "host",
        "-j",
        "travels",
        "--sources",
        "say.py",
        "--sources",
        "deep",
    )
    done = person.pai(*words, "--outputs", "named.txt", "--fetch=back", "--", "python3 say.py", cwd=tmp_path)
    assert done.status == 0, done
    assert b"from far away" in cluster.log_of("travels")
    assert (tmp_path / "back" / "out.txt").read_text() == "kept"
    assert (tmp_path / "back" / "named.txt").read_text() == "named"


@pytest.mark.slow
def test_notebook_runs_with_the_runtime_that_travels_by_storage(
    foreign: tuple[Cluster, CliUser], tmp_path: Path
) -> None:
    _, person = foreign
    write_notebook(tmp_path / "a.ipynb", "print(6 * 7)")
    # Without our own command pai-runtime, which tasks of such a cluster do not have.
    path = f"PATH={BIN}:/usr/bin:/bin"
    words = ("-a", "foreign", "-i", "host", "--no-browser", "--mem", "600m", "--env", path)
    done = person.pai("notebook-job", *words, "a.ipynb", cwd=tmp_path)
    assert done.status == 0, done
    assert texts(tmp_path / "a.executed.ipynb") == ["42\n"] and "42" in (tmp_path / "a.html").read_text()


def test_outputs_of_failed_job_are_downloaded(foreign: tuple[Cluster, CliUser], tmp_path: Path) -> None:
    _, person = foreign
    words = ("sub", "-a", "foreign", "-i", "host", "-j", "fails", "--outputs", "x", "--fetch=back")
    done = person.pai(*words, "--", "echo half > x; exit 9", cwd=tmp_path)
    assert done.status == 3, done
    assert (tmp_path / "back" / "x").read_text() == "half\n"


def test_preview_shows_transfer_commands(foreign: tuple[Cluster, CliUser], tmp_path: Path) -> None:
    _, person = foreign
    (tmp_path / "a.py").write_text("print(1)")
    words = ("sub", "-a", "foreign", "-i", "img", "-j", "shown", "--sources", "a.py", "--preview")
    done = person.pai(*words, "--", "python a.py", cwd=tmp_path)
    assert done.status == 0, done
    assert "/jobs/shown/source/pairuntime.pyz?op=OPEN" in done.out
    assert "extras:" not in done.out or "sha256" not in done.out


def test_failed_tasks_run_again_with_the_files_on_the_storage(
    foreign: tuple[Cluster, CliUser], tmp_path: Path
) -> None:
    """Sweeps use nothing that OpenPAI's own server lacks."""
    cluster, person = foreign
    (tmp_path / "say.sh").write_text('echo "$PAI_TASK_INDEX $lr $(cat data)"; test "$seed" != 4\n')
    (tmp_path / "data").write_text("content")
    (tmp_path / "params.csv").write_text("lr,seed\n0.1,3\n0.2,4\n")
    words = (
        "-a",
        "foreign",
        "-i",
        "host",
        "-j",
        "swept",
        "--sources",
        "say.sh",
        "--sources",
        "data",
        "--wait",
    )
    done = person.pai("sub", *words, "--array-file", "params.csv", "--", "sh", "say.sh", cwd=tmp_path)
    assert done.status == 3, done
    again = person.pai("resubmit", "-a", "foreign", "--failed", "swept", "-j", "swept_again", "--wait")
    assert again.status == 3, again
    assert person.pai("logs", "-a", "foreign", "swept_again").out.endswith("\n1 0.2 content\n")
    (archive,) = (cluster.home / "storage").rglob("source/swept.tar")
    archive.unlink()
    jobs = person.pai("list-jobs", "-a", "foreign").out
    for job in ("swept", "swept_again"):
        done = person.pai("resubmit", "-a", "foreign", "--failed", job)
        assert (
            done.status == 1 and f"The files that {job} ran with are no longer on the cluster" in done.err
        ), done
    assert person.pai("list-jobs", "-a", "foreign").out == jobs
    limit = person.pai("sub", *words, "--array-file", "params.csv%1", "true", cwd=tmp_path)
    assert limit.status == 2 and "does not support --array ...%M" in limit.err, limit
