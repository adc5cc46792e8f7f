"""Clusters that are not inside: added, selected, used, forgotten. Against a real server of our own."""

import json
import os
import socket
import subprocess
import time

import pytest
import yaml
from at_a_terminal import BIN, Person

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


def test_a_password_is_exchanged_for_a_token_and_not_kept(newcomer, team) -> None:
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


def test_a_job_needs_no_image_where_nothing_runs_in_containers(newcomer, team) -> None:
    add(newcomer, team)
    done = newcomer.pai("sub", "--cpu", "1", "--mem", "64m", "--preview", "echo", "hello")
    assert done.status == 0 and "uri: host" in done.out, done


def test_a_job_runs_there(newcomer, team) -> None:
    add(newcomer, team)
    done = newcomer.pai("sub", "-i", "host", "--cpu", "1", "--memoryMB", "64", "--follow", "echo", "hello")
    assert (done.status, done.out) == (0, "hello\n"), done
    newcomer.write(a="content")
    done = newcomer.pai("sub", "-i", "host", "--cpu", "1", "--mem", "64m", "--sources", "a", "-f", "cat", "a")
    assert (done.status, done.out) == (0, "content"), done
    assert not (newcomer.home / ".openpai/local").exists(), "nobody asked for a cluster here"


def test_a_token_is_taken_as_it_is(newcomer, team) -> None:
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
def test_a_wrong_login_adds_nothing(newcomer, team, more: list[str], says: str) -> None:
    done = newcomer.pai("add-cluster", "-a", "team", "--pai-uri", team, "--user", "admin", *more)
    assert done.status != 0 and says in done.err and "Traceback" not in done.err, done
    assert not (newcomer.home / ".openpai/clusters.yaml").exists()


def test_an_address_without_a_cluster_adds_nothing(newcomer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    done = add(newcomer, f"http://127.0.0.1:{port}")
    assert done.status == 1 and "does not answer" in done.err, done
    assert add(newcomer, "ftp://x").status == 2
    assert add(newcomer, "http://x", "local").status == 2
    assert not (newcomer.home / ".openpai/clusters.yaml").exists()


def test_selecting_and_forgetting(newcomer, team) -> None:
    add(newcomer, team, "one")
    done = add(newcomer, team, "two")
    assert "Commands go on using one" in done.err and newcomer.pai("list-jobs").status == 0, done
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


def test_resources_of_every_cluster_and_one_that_is_down_spoils_nothing(newcomer, team) -> None:
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


def test_resources_of_a_newcomer_are_those_of_this_machine(person) -> None:
    rows = json.loads(person.pai("cluster-resources", "-o", "json").out)
    assert [r["cluster"] for r in rows] == ["local"]


def test_clusters_in_local_keeps_the_file_in_the_folder(newcomer, team) -> None:
    assert newcomer.pai("set", "clusters-in-local=yes").status == 0
    add(newcomer, team)
    assert (newcomer.project / ".openpai/clusters.yaml").exists()
    assert not (newcomer.home / ".openpai/clusters.yaml").exists()


def test_defaults_are_used_and_the_command_line_wins(newcomer, team) -> None:
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
