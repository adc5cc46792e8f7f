"""Clusters that are not inside: added, selected, used, forgotten. Against a real server of our own."""

import json
import os
import socket
import subprocess
import time

import pytest
import yaml

from support.cli_user import BIN, Person

PASSWORD = "a-good-password"


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A cluster for a team, as an administrator starts it."""
    home = tmp_path_factory.mktemp("team")
    process = subprocess.Popen(
        [BIN / "paicluster", "serve", "--home", str(home), "--host", "127.0.0.1", "--port", "0"],
        env={**os.environ, "PAICLUSTER_ADMIN_PASSWORD": PASSWORD},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not (home / "server.json").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    yield json.loads((home / "server.json").read_text())["url"]
    process.terminate()
    process.wait(30)


def add(person: Person, team: str, alias: str = "team", *more: str):
    words = ["-a", alias, "--pai-uri", team, "--user", "admin", *(more or ["--password", PASSWORD])]
    return person.pai("add-cluster", *words)


def clusters(person: Person) -> list[dict[str, object]]:
    return yaml.safe_load((person.home / ".openpai/clusters.yaml").read_text())


def test_password_is_exchanged_for_token_and_not_stored(newcomer, team) -> None:
    done = add(newcomer, team)
    assert done.status == 0 and "Added team" in done.err, done
    path = newcomer.home / ".openpai/clusters.yaml"
    assert PASSWORD not in path.read_text() and path.stat().st_mode & 0o777 == 0o600
    entry = clusters(newcomer)[0]
    assert entry["user"] == "admin" and entry["token"] and entry["virtual_clusters"] == ["default"]
    assert entry["info"]["authnMethod"] == "basic"
    shown = newcomer.pai("list-clusters")
    assert "team" in shown.out and str(entry["token"]) not in shown.out
    assert str(entry["token"]) not in newcomer.pai("list-clusters", "-o", "json").out


def test_image_is_optional_on_cluster_without_containers(newcomer, team) -> None:
    add(newcomer, team)
    done = newcomer.pai("sub", "--cpu", "1", "--mem", "64m", "--preview", "echo", "hello")
    assert done.status == 0 and "uri: host" in done.out, done


def test_job_runs_on_added_cluster(newcomer, team) -> None:
    add(newcomer, team)
    done = newcomer.pai("sub", "-i", "host", "--cpu", "1", "--memoryMB", "64", "--follow", "echo", "hello")
    assert (done.status, done.out) == (0, "hello\n"), done
    newcomer.write(a="content")
    done = newcomer.pai("sub", "-i", "host", "--cpu", "1", "--mem", "64m", "--sources", "a", "-f", "cat", "a")
    assert (done.status, done.out) == (0, "content"), done
    assert not (newcomer.home / ".openpai/local").exists(), "nobody asked for a cluster here"


def test_token_is_stored_unchanged(newcomer, team) -> None:
    add(newcomer, team)
    token = clusters(newcomer)[0]["token"]
    assert add(newcomer, team, "again", "--token", str(token)).status == 0
    done = add(newcomer, team, "wrong", "--token", "nonsense")
    assert done.status == 1 and "does not accept your token" in done.err, done
    assert [e["cluster_alias"] for e in clusters(newcomer)] == ["team", "again"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--password", "wrong-password"], "assword"),
        ([], "--password or --token is missing"),
        (["--password", "x", "--token", "y"], "not both"),
    ],
)
def test_failed_login_adds_no_cluster(newcomer, team, more: list[str], says: str) -> None:
    done = newcomer.pai("add-cluster", "-a", "team", "--pai-uri", team, "--user", "admin", *more)
    assert done.status != 0 and says in done.err and "Traceback" not in done.err, done
    assert not (newcomer.home / ".openpai/clusters.yaml").exists()


def test_address_without_cluster_adds_nothing(newcomer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    done = add(newcomer, f"http://127.0.0.1:{port}")
    assert done.status == 1 and "does not respond" in done.err, done
    assert add(newcomer, "ftp://x").status == 2
    assert add(newcomer, "http://x", "local").status == 2
    assert not (newcomer.home / ".openpai/clusters.yaml").exists()


def test_select_and_delete_cluster(newcomer, team) -> None:
    add(newcomer, team, "one")
    done = add(newcomer, team, "two")
    assert "Commands still use one" in done.err and newcomer.pai("list-jobs").status == 0, done
    newcomer.pai("unset", "-g", "cluster-alias")
    done = newcomer.pai("list-jobs")
    assert done.status == 2 and "2 clusters (one, two) and none is selected" in done.err, done
    assert newcomer.pai("list-jobs", "-a", "one").status == 0
    newcomer.pai("select-cluster", "-g", "one")
    assert newcomer.pai("list-jobs").status == 0
    newcomer.pai("select-cluster", "two")
    marked = [line for line in newcomer.pai("list-clusters").out.splitlines() if line.startswith("*")]
    assert len(marked) == 1 and "two" in marked[0]
    assert newcomer.pai("delete-cluster", "two").status == 0
    done = newcomer.pai("list-jobs")
    assert done.status == 2 and "no cluster called 'two'" in done.err, done


def test_cluster_resources_reports_unreachable_cluster_and_lists_others(newcomer, team) -> None:
    add(newcomer, team)
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    entries = [
        *clusters(newcomer),
        {"cluster_alias": "gone", "pai_uri": f"http://127.0.0.1:{port}", "user": "x"},
    ]
    (newcomer.home / ".openpai/clusters.yaml").write_text(yaml.safe_dump(entries))
    done = newcomer.pai("cluster-resources", "-o", "json")
    rows = json.loads(done.out)
    assert [(r["cluster"], r["virtualCluster"]) for r in rows] == [("team", "default")]
    assert rows[0]["vCores"] >= 1 and rows[0]["memoryMB"] > 0 and rows[0]["GPUs"] >= 0
    assert done.status == 1 and "gone" in done.err, done
    assert "team" in newcomer.pai("cluster-resources", "-a", "team").out


def test_cluster_resources_without_clusters_shows_embedded_cluster(person) -> None:
    rows = json.loads(person.pai("cluster-resources", "-o", "json").out)
    assert [r["cluster"] for r in rows] == ["local"]


def test_clusters_in_local_stores_file_in_current_folder(newcomer, team) -> None:
    assert newcomer.pai("set", "clusters-in-local=yes").status == 0
    add(newcomer, team)
    assert (newcomer.project / ".openpai/clusters.yaml").exists()
    assert not (newcomer.home / ".openpai/clusters.yaml").exists()


def test_command_line_overrides_defaults(newcomer, team) -> None:
    add(newcomer, team)
    newcomer.pai("set", "-g", "image=everywhere", "cpu=3")
    newcomer.pai("set", "image=here", "mem=1g")
    job = yaml.safe_load(newcomer.pai("sub", "--preview", "true").out)
    assert job["prerequisites"][0]["uri"] == "here"
    assert job["taskRoles"]["main"]["resourcePerInstance"] == {"cpu": 3, "gpu": 0, "memoryMB": 1024}
    job = yaml.safe_load(
        newcomer.pai("sub", "--preview", "-i", "cli", "--cpu", "5", "--memoryMB", "9", "true").out
    )
    assert job["prerequisites"][0]["uri"] == "cli"
    assert job["taskRoles"]["main"]["resourcePerInstance"] == {"cpu": 5, "gpu": 0, "memoryMB": 9}
    assert json.loads(newcomer.pai("set", "-o", "json").out) == {"image": "here", "mem": "1g", "cpu": 3}
    assert newcomer.pai("unset", "image").status == 0
    assert "everywhere" in newcomer.pai("set").out


def test_sources_are_uploaded_to_team_cluster_and_hints_name_it(newcomer, team) -> None:
    add(newcomer, team)
    newcomer.pai("select-cluster", "-g", "local")
    newcomer.write(a="content")
    small = ["-a", "team", "--cpu", "1", "--mem", "64m"]
    done = newcomer.pai("sub", *small, "-f", "ls")
    assert (done.status, done.out) == (0, "a\n"), done
    done = newcomer.pai("sub", *small, "-j", "counting", "true")
    assert done.err.endswith("Follow it with: pai logs -a team -f counting\n"), done
    done = newcomer.pai("job-status", "-a", "team", "countin")
    assert "There is no job 'countin' on the cluster team. Did you mean counting?" in done.err, done
    assert "pai list-jobs -a team lists your jobs" in done.err, done
    done = newcomer.pai("job-outputs", "-a", "team", "counting", "get", "nothing")
    assert "pai job-outputs -a team counting lists them" in done.err, done
    newcomer.pai("select-cluster", "-g", "team")
    done = newcomer.pai("sub", "--cpu", "1", "--mem", "64m", "true")
    assert "Follow it with: pai logs -f true_" in done.err, done
    assert not (newcomer.home / ".openpai/local").exists(), "nobody asked for a cluster here"


def test_unschedulable_job_is_reported_at_submission_and_while_waiting(newcomer, team) -> None:
    add(newcomer, team)
    done = newcomer.pai("sub", "--cpu", "100000", "-j", "huge", "true")
    assert (
        done.status == 0 and "and the job requests 100000: it stays pending until that changes." in done.err
    ), done
    try:
        done = newcomer.pai("wait", "--timeout", "2", "huge")
        assert done.status == 5 and done.err.count("Insufficient cpu") == 1, done
    finally:
        newcomer.pai("stop-job", "huge")


def test_no_sources_for_openpai_cluster_with_notice(newcomer) -> None:
    entry = {"cluster_alias": "far", "pai_uri": "http://127.0.0.1:9", "user": "x", "token": "y"}
    (newcomer.home / ".openpai").mkdir()
    (newcomer.home / ".openpai/clusters.yaml").write_text(yaml.safe_dump([entry]))
    done = newcomer.pai("sub", "-i", "img", "--preview", "true")
    assert done.status == 0 and "No files are uploaded to far; --sources ." in done.err, done
    assert "No files" not in newcomer.pai("sub", "-i", "img", "--no-sources", "--preview", "true").err


def test_missing_selected_cluster_names_the_defaults_file(newcomer, team) -> None:
    add(newcomer, team, "one")
    newcomer.pai("select-cluster", "one")
    done = newcomer.pai("delete-cluster", "one")
    assert "pai select-cluster local" in done.err, done
    done = newcomer.pai("list-jobs")
    assert done.status == 2 and "project/.openpai/defaults.yaml selects it" in done.err, done
    assert "pai select-cluster local" in done.err, done
    newcomer.pai("unset", "cluster-alias")
    newcomer.pai("set", "-g", "cluster-alias=one")
    done = newcomer.pai("list-jobs")
    assert "~/.openpai/defaults.yaml selects it" in done.err and "select-cluster -g local" in done.err, done


def test_failed_login_changes_nothing(newcomer, team) -> None:
    done = add(newcomer, team, "team", "--password", "wrong-password")
    assert "Nothing was changed." in done.err, done
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    done = add(newcomer, f"http://127.0.0.1:{port}")
    assert "Nothing was changed." in done.err and "list-clusters" not in done.err, done


def test_ctrl_d_at_password_prompt_is_one_line_error(newcomer, team) -> None:
    words = f"add-cluster -a team --pai-uri {team} --user admin"
    script = (
        "import os, pty, sys\n"
        "pid, fd = pty.fork()\n"
        f"if pid == 0: os.execvp('pai', ['pai', *{words.split()!r}])\n"
        "said = b''\n"
        "while b'Password of' not in said: said += os.read(fd, 999)\n"
        "os.write(fd, b'\\x04')\n"
        "try:\n"
        "    while more := os.read(fd, 999): said += more\n"
        "except OSError: pass\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode())\n"
    )
    done = newcomer.run([str(BIN / "python"), "-c", script])
    assert done.out.startswith("2 ") and "No password was given, so nothing was changed." in done.out, done
    assert "EOFError" not in done.out, done
