"""The runtime's help inside a task: `openpaisdk.runtime`, `hdfs dfs`, packages."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from openpaisdk.runtime import Runtime, Where, where
from paicluster.engines.common import runtime_install
from pairuntime import user_api
from support.server_fixture import Cluster, job
from support.wheels import WITHOUT_COMPARISON, make_wheel


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runtime_install.install(tmp_path_factory.mktemp("runtimes")).parent


def host(name: str, *commands: str) -> dict[str, object]:
    what = job(name, *commands)
    what["prerequisites"] = [{"name": "image", "type": "dockerimage", "uri": "host"}]
    return what


def bare_python(folder: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A Python that has nothing installed."""
    found = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{folder}/lib", **variables}
    return subprocess.run(
        [sys.executable, "-S", "-c", program], env=found, capture_output=True, text=True, check=False
    )


def test_the_runtime_is_importable_without_the_sdk(laid_out: Path) -> None:
    done = bare_python(laid_out, "from openpaisdk.runtime import Runtime, where; print(where())")
    assert (done.stdout, done.stderr) == ("local\n", "")


def test_an_installed_sdk_wins_over_the_stand_in(laid_out: Path) -> None:
    root = Path(user_api.__file__).parent.parent
    program = "import openpaisdk, openpaisdk.runtime as r; print(openpaisdk.__version__, r.__file__)"
    both = f"{laid_out}/lib:{root}"
    done = bare_python(laid_out, program, PYTHONPATH=both)
    assert done.stderr == ""
    assert str(root) in done.stdout


def test_where_describes_the_task(cluster: Cluster) -> None:
    line = "import openpaisdk.runtime as r; w = r.where(); print(w.kind, w.job, w.user, w.role, w.index)"
    cluster.run(host("where", f'{sys.executable} -S -c "{line}"'))
    assert cluster.log_of("where").decode().split() == ["batch", "where", cluster.user, "main", "0"]
    assert where() == "local"
    assert not where().in_job


def test_a_notebook_in_a_job_is_interactive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_JOB_NAME", "alice~lab")
    monkeypatch.setenv("PAI_INTERACTIVE", "1")
    monkeypatch.setenv("PAI_TASK_INDEX", "2")
    here = where()
    assert (here.kind, here.job, here.user, here.index) == ("interactive", "lab", "alice", 2)
    assert isinstance(here, Where)


_KERNEL = """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
def show(message):
    if message['msg_type'] == 'stream':
        print(message['content']['text'], end='')
client.execute_interactive('import openpaisdk.runtime as r; print(r.where())', output_hook=show)
client.stop_channels()
manager.shutdown_kernel(now=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "kind"), [("", "interactive"), ("0", "batch"), ("1", "interactive")])
def test_a_kernel_in_a_task_is_interactive_unless_its_job_is_a_batch_job(
    cluster: Cluster, setting: str, kind: str
) -> None:
    name = f"kernel{setting or 'unset'}"
    line = (
        f"export PAI_INTERACTIVE={setting}; HOME=$PWD {sys.executable} -c {shlex.quote(_KERNEL)} 2>/dev/null"
    )
    cluster.run(host(name, line))
    assert cluster.log_of(name).decode().split()[-1:] == [kind]


def test_stages_run_in_order() -> None:
    app = Runtime()
    seen: list[str] = []
    app.on("end")(lambda: seen.append("end"))
    app.on("start")(lambda: seen.append("start"))

    @app.on("main")
    def main() -> int:
        seen.append("main")
        return 7

    assert app.run() == 7
    assert seen == ["start", "main", "end"]


def test_failure_stage_runs_and_the_exception_is_raised() -> None:
    app = Runtime()
    seen: list[object] = []
    app.on("failure")(seen.append)
    app.on("end")(lambda: seen.append("end"))

    @app.on("main")
    def main() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        app.run()
    assert [str(what) for what in seen] == ["broken", "end"]


def test_unknown_stage_is_rejected() -> None:
    with pytest.raises(ValueError, match="start, main, end, failure"):
        Runtime().on("begin")


def test_logging_reaches_the_log_with_level_and_time(laid_out: Path) -> None:
    program = (
        "import logging, openpaisdk.runtime as r; r.capture_logging(); "
        "logging.getLogger('train').warning('slow'); logging.debug('no')"
    )
    done = bare_python(laid_out, program)
    assert done.stderr.endswith("Z WARNING train: slow\n")
    assert done.stderr.count("\n") == 1


def test_logging_is_captured_by_a_variable_of_the_job(laid_out: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import logging; logging.info('hello')"],
        env={"PYTHONPATH": f"{laid_out}/lib:{laid_out}/start", "PAI_CAPTURE_LOGGING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.endswith("Z INFO root: hello\n")


def test_hdfs_commands_of_a_script_work_in_a_task(cluster: Cluster) -> None:
    script = """\
mkdir d; echo one > d/1.txt; echo two > d/2.txt
hdfs dfs -mkdir -p /user/$PAI_USER_NAME/data
hdfs dfs -put d/1.txt d/2.txt /user/$PAI_USER_NAME/data
hdfs dfs -cat "/user/$PAI_USER_NAME/data/*.txt"
hdfs dfs -test -e data/1.txt && echo there
hdfs dfs -test -d data/1.txt || echo no folder
hdfs dfs -get "data/?.txt" .
cat 1.txt 2.txt
hdfs dfs -put d data/copied
hdfs dfs -get data/copied whole
ls whole
hdfs dfs -ls data | awk '{print $NF}'
hdfs dfs -rm -r data
hdfs dfs -test -e data || echo gone
hdfs dfs -cat data/none || echo status $?
"""
    assert cluster.run(host("hdfs", script))["state"] == "SUCCEEDED", cluster.log_of("hdfs")
    home = f"/user/{cluster.user}/data"
    said = cluster.log_of("hdfs", "stdout").decode().splitlines()
    assert said == [
        *("one", "two", "there", "no folder", "one", "two", "1.txt", "2.txt"),
        *("items", f"{home}/1.txt", f"{home}/2.txt", f"{home}/copied"),
        *(f"Deleted {home}", "gone", "status 1"),
    ]
    assert "No such file or directory" in cluster.log_of("hdfs", "stderr").decode()


def test_addresses_of_the_tasks_own_cluster_work_without_the_sdk(cluster: Cluster) -> None:
    left = job("left_a_file", "echo left > $PAI_OUTPUT_DIR/f")
    left["parameters"] = {"work_directory": "/${PAI_USER_NAME}/deep/jobs/left_a_file"}
    assert cluster.run(left)["state"] == "SUCCEEDED"
    script = """
echo own > own.txt
hdfs dfs -mkdir -p pai://here/0/user/$PAI_USER_NAME/addressed
hdfs dfs -put own.txt 'pai://here/home/user/${PAI_USER_NAME}/addressed/'
hdfs dfs -cat "pai://here/0/user/$PAI_USER_NAME/addressed/*"
hdfs dfs -get pai://here/jobs/left_a_file/output/f f && cat f
hdfs dfs -ls pai://here/jobs/left_a_file | awk '{print $NF}'
hdfs dfs -cat pai://here/jobs/none/f || echo status $?
hdfs dfs -cat pai://here/other/f || echo status $?
"""
    assert cluster.run(host("addresses", script))["state"] == "SUCCEEDED", cluster.log_of("addresses")
    said = cluster.log_of("addresses", "stdout").decode().splitlines()
    assert said[:3] == ["own", "left", "items"], said
    assert said[3:] == [f"/{cluster.user}/deep/jobs/left_a_file/output", "status 1", "status 1"], said
    errors = cluster.log_of("addresses", "stderr").decode()
    assert "none" in errors and "other is no storage that the cluster serves itself" in errors, errors


@pytest.mark.parametrize("job_name", ["own_output", "taken_output"])
def test_output_folder_on_the_storage_exists_when_the_task_starts(cluster: Cluster, job_name: str) -> None:
    what = host(job_name, "echo x > f; hdfs dfs -test -d $PAI_OUTPUT_DIR && hdfs dfs -put f $PAI_OUTPUT_DIR/")
    address = f"hdfs://{cluster.address[0]}:{cluster.address[1]}/user/{cluster.user}/made/{job_name}"
    what["prerequisites"] += [{"name": "out", "type": "output", "uri": address}]  # type: ignore[operator]
    what["taskRoles"]["main"]["output"] = "out"  # type: ignore[index]
    if job_name == "own_output":
        assert cluster.run(what)["state"] == "SUCCEEDED", cluster.log_of(job_name)
        return
    taken = host("takes", f"hdfs dfs -mkdir -p made && touch f && hdfs dfs -put -f f made/{job_name}")
    assert cluster.run(taken)["state"] == "SUCCEEDED", cluster.log_of("takes")
    reply = cluster.submit(what)
    assert "could not be created" in reply.headers.get("x-warning", ""), "it is a file"
    assert cluster.wait_over(job_name)["state"] == "FAILED"


def test_target_with_a_slash_at_its_end_is_a_folder_that_exists(cluster: Cluster) -> None:
    script = """echo 1 > f
hdfs dfs -mkdir -p slash/there
hdfs dfs -put f slash/there/
for command in put copyFromLocal; do hdfs dfs -$command f slash/none/ && echo wrong; done
hdfs dfs -put f pai://here/0/user/$PAI_USER_NAME/slash/none/ && echo wrong
hdfs dfs -put -f f slash/there/f/ && echo wrong
hdfs dfs -mv slash/there/f slash/none/ && echo wrong
hdfs dfs -mv slash/there/f slash/there slash/none && echo wrong
for command in get copyToLocal; do hdfs dfs -$command slash/there/f none/ && echo wrong; done
hdfs dfs -test -e slash/none && echo wrong
test -e none && echo wrong
hdfs dfs -mv slash/there/f slash/ && hdfs dfs -get slash/f ./ || hdfs dfs -get -f slash/f ./
hdfs dfs -cat slash/f
"""
    assert cluster.run(host("slashes", script))["state"] == "SUCCEEDED", cluster.log_of("slashes")
    assert cluster.log_of("slashes", "stdout") == b"1\n"
    said = cluster.log_of("slashes", "stderr").decode().splitlines()
    home = f"pai://here/0/user/{cluster.user}"
    assert said == [
        "put: `slash/none/': No such file or directory",
        "copyFromLocal: `slash/none/': No such file or directory",
        f"put: `{home}/slash/none/': No such file or directory",
        "put: `slash/there/f/': Is not a directory",
        "mv: `slash/none/': No such file or directory",
        "mv: `slash/none': No such file or directory",
        "get: `none/': No such file or directory",
        "copyToLocal: `none/': No such file or directory",
        "get: `./f': File exists",
    ]


def test_hdfs_command_of_the_image_takes_precedence(cluster: Cluster) -> None:
    script = (
        "mkdir b; printf '#!/bin/sh\\necho mine\\n' > b/hdfs; chmod +x b/hdfs; PATH=$PWD/b:$PATH; hdfs dfs"
    )
    cluster.run(host("own-hdfs", script))
    assert cluster.log_of("own-hdfs") == b"mine\n"


@pytest.mark.slow
def test_packages_are_installed_once_and_reused(cluster: Cluster, tmp_path: Path) -> None:
    make_wheel(tmp_path, "tiny_one", "1", {"tiny_one.py": "word = 42"})
    use = (
        f"export XDG_CACHE_HOME={tmp_path}/cache",
        f"export PIP_NO_INDEX=1 PIP_FIND_LINKS={tmp_path} {WITHOUT_COMPARISON}",
        f'eval "$(pai-runtime packages --python {sys.executable} tiny-one)"',
        "python -c 'import tiny_one; print(tiny_one.word)'",
    )
    for name in ("first", "second"):
        assert cluster.run(host(name, *use))["state"] == "SUCCEEDED", cluster.log_of(name)
        assert cluster.log_of(name, "stdout") == b"42\n"
    assert b"cached on this machine" in cluster.log_of("first")
    assert b"cached on this machine" not in cluster.log_of("second")


def test_failed_installation_names_the_python(tmp_path: Path) -> None:
    python = tmp_path / "python9"
    python.write_text(f'#!/bin/sh\ncase "$1" in -c) exec {sys.executable} "$@";; *) exit 3;; esac\n')
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "pairuntime", "packages", "--python", str(python), "some-package"],
        env={"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    why = f"{python} -m venv --without-pip exited with status 3."
    assert done.stderr.splitlines()[-1] == f"The packages some-package could not be installed: {why}"
