"""Remote clusters: add, select, use and delete, against a real server."""

import json
import os
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml

from support import certificates
from support.cli_user import BIN, CliUser, until
from support.ports import free_port

PASSWORD = "a-good-password"
WARNING = (
    "Other users of this machine can see a password on a command line, and your shell stores it. Leave it "
    "out to be asked for it, or use --password - to send it through standard input.\n"
)


@contextmanager
def serve(home):
    """A server, as an administrator starts it; yields its address."""
    process = subprocess.Popen(
        [BIN / "paicluster", "serve", "--home", str(home), "--host", "127.0.0.1", "--port", "0"],
        env={**os.environ, "PAICLUSTER_ADMIN_PASSWORD": PASSWORD},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 90
    while not (home / "server.json").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield json.loads((home / "server.json").read_text())["url"]
    finally:
        process.terminate()
        process.wait(90)


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A cluster for several users."""
    with serve(tmp_path_factory.mktemp("team")) as url:
        yield url


def test_folder_over_a_small_limit_of_the_server_is_explained(new_user, tmp_path) -> None:
    home = tmp_path / "small"
    home.mkdir()
    (home / "cluster.yaml").write_text("limits: {sources-mb: 1}\n")
    with serve(home) as url:
        assert add(new_user, url).status == 0
        data = new_user.project / "data"
        data.write_bytes(os.urandom(3 << 20))
        whole = new_user.pai("sub", "-a", "team", "--", "true")
        data.write_bytes(os.urandom(900 << 10))
        # A file that was just written may change again with the same stamp, so it is always sent whole.
        until(lambda: time.time() - data.stat().st_mtime > 2.1)
        assert new_user.pai("sub", "-a", "team", "--", "true").status == 0
        (new_user.project / "more").write_bytes(os.urandom(200 << 10))
        patched = new_user.pai("sub", "-a", "team", "--", "true", env={"PAI_DEBUG": "1"})
    assert "?base=" in patched.err, patched
    assert "data (3.0 MB)" in whole.err and "data (900 kB), more (200 kB)" in patched.err
    for done in (whole, patched):
        assert done.status == 1 and "more than 1.0 MB, which is all that team takes" in done.err, done
        assert "limits.sources-mb" in done.err and "pai copy data pai://team/0/" in done.err, done


def add(user: CliUser, team: str, alias: str = "team", *more: str):
    words = ["-a", alias, "--pai-uri", team, "--user", "admin", *(more or ["--password", PASSWORD])]
    return user.pai("add-cluster", *words)


def clusters(user: CliUser) -> list[dict[str, object]]:
    return yaml.safe_load((user.home / ".openpai/clusters.yaml").read_text())


def test_password_is_exchanged_for_token_and_not_stored(new_user, team) -> None:
    done = add(new_user, team)
    assert done.status == 0 and "Added team" in done.err, done
    path = new_user.home / ".openpai/clusters.yaml"
    assert PASSWORD not in path.read_text() and path.stat().st_mode & 0o777 == 0o600
    entry = clusters(new_user)[0]
    assert entry["user"] == "admin" and entry["token"] and entry["virtual_clusters"] == ["default"]
    assert entry["info"]["authnMethod"] == "basic"
    shown = new_user.pai("list-clusters")
    assert "team" in shown.out and str(entry["token"]) not in shown.out
    assert str(entry["token"]) not in new_user.pai("list-clusters", "-o", "json").out


def test_image_is_optional_on_cluster_without_containers(new_user, team) -> None:
    add(new_user, team)
    done = new_user.pai("sub", "--cpu", "1", "--mem", "64m", "--preview", "echo", "hello")
    assert done.status == 0 and "uri: host" in done.out, done


def test_job_runs_on_added_cluster(new_user, team) -> None:
    add(new_user, team)
    done = new_user.pai("sub", "-i", "host", "--cpu", "1", "--memoryMB", "64", "--follow", "echo", "hello")
    assert (done.status, done.out) == (0, "hello\n"), done
    new_user.write(a="content")
    done = new_user.pai("sub", "-i", "host", "--cpu", "1", "--mem", "64m", "--sources", "a", "-f", "cat", "a")
    assert (done.status, done.out) == (0, "content"), done
    assert not (new_user.home / ".openpai/local").exists(), "no embedded cluster is needed"


def test_token_is_stored_unchanged(new_user, team) -> None:
    add(new_user, team)
    token = clusters(new_user)[0]["token"]
    assert add(new_user, team, "again", "--token", str(token)).status == 0
    done = add(new_user, team, "wrong", "--token", "nonsense")
    assert done.status == 1 and "does not accept your token" in done.err, done
    assert [e["cluster_alias"] for e in clusters(new_user)] == ["team", "again"]


@pytest.mark.parametrize("password", ["wrong-password", "short"])
def test_wrong_password_is_named_with_user_and_cluster(new_user, team, password: str) -> None:
    done = add(new_user, team, "team", "--password", password)
    assert done.status == 1 and done.out == "", done
    assert done.err == WARNING + (
        "pai: The cluster team does not accept this password of admin.\n"
        "     Check the user name and the password. Nothing was changed.\n"
    )


def test_password_on_the_command_line_warns_and_standard_input_does_not(new_user, team) -> None:
    done = add(new_user, team)
    assert done.status == 0 and done.err.startswith(WARNING), done
    assert PASSWORD not in done.err
    words = ["-a", "piped", "--pai-uri", team, "--user", "admin", "--password", "-"]
    done = new_user.pai("add-cluster", *words, stdin=PASSWORD + "\n")
    assert done.status == 0 and WARNING not in done.err, done
    done = new_user.pai("update-token", "-a", "piped", "--password", PASSWORD)
    assert done.status == 0 and done.err.startswith(WARNING), done
    done = new_user.pai("add-cluster", *words, stdin="")
    assert done.status == 2 and "No password was given, so nothing was changed." in done.err, done
    done = new_user.pai("add-cluster", *words[:-2], "--token", "x")
    assert WARNING not in done.err, done


def test_unknown_user_is_named(new_user, team) -> None:
    words = ["-a", "team", "--pai-uri", team, "--user", "nosuch", "--password", PASSWORD]
    done = new_user.pai("add-cluster", *words)
    assert done.status == 1, done
    assert done.err == WARNING + (
        "pai: The cluster team has no user nosuch.\n"
        "     Check the user name and the password. Nothing was changed.\n"
    )


def test_wrong_password_in_update_token_keeps_the_token(new_user, team) -> None:
    add(new_user, team)
    before = clusters(new_user)
    done = new_user.pai("update-token", "-a", "team", "--password", "wrong-password")
    assert done.status == 1 and "does not accept this password of admin" in done.err, done
    assert clusters(new_user) == before


def test_https_to_a_plain_port_says_so(new_user, team) -> None:
    done = add(new_user, team.replace("http://", "https://"))
    assert done.status == 1 and done.out == "", done
    where = team.replace("http://", "https://")
    assert done.err == WARNING + (
        f"pai: The cluster team at {where} does not respond: it speaks plain HTTP there, not TLS.\n"
        "     Write http:// instead of https:// in its address, in pai add-cluster. Nothing was changed.\n"
    )


def test_http_to_a_tls_port_says_so(new_user, tmp_path) -> None:
    certificates.certificate(tmp_path, "127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_address[1]}"
        done = add(new_user, uri)
        server.shutdown()
    assert done.status == 1 and done.out == "", done
    assert done.err == WARNING + (
        f"pai: The cluster team at {uri} does not respond: it speaks TLS there, not plain HTTP.\n"
        "     Write https:// instead of http:// in its address, in pai add-cluster. Nothing was changed.\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["list-jobs"],
        ["sub", "--", "true"],
        ["job-status", "x"],
        ["logs", "-f", "x"],
        ["stop-job", "x"],
        ["wait", "x"],
        ["update-token"],
    ],
)
def test_storage_without_a_cluster_runs_no_jobs(new_user, words: list[str]) -> None:
    new_user.pai("add-storage-cluster", "-a", "disks", "--type", "mount", "--path", "/tmp")
    done = new_user.pai(words[0], "-a", "disks", *words[1:])
    assert done.status == 2 and done.out == "", done
    assert done.err == (
        "pai: disks is a storage, and runs no jobs.\n"
        "     Name a cluster with -a; pai list-clusters lists yours.\n"
    )
    assert not (new_user.home / ".openpai/local").exists()


def test_storage_cannot_be_selected_as_cluster(new_user) -> None:
    new_user.pai("add-storage-cluster", "-a", "disks", "--type", "mount", "--path", "/tmp")
    done = new_user.pai("select-cluster", "disks")
    assert done.status == 2 and "disks is a storage, and runs no jobs." in done.err, done
    done = new_user.pai("update-clusters", "disks")
    assert done.status == 2 and "disks is a storage, and runs no jobs." in done.err, done
    done = new_user.pai("delete-cluster", "disks")
    assert done.status == 0 and done.err == "Removed disks from your clusters. Its files are untouched.\n", (
        done
    )


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], "--password or --token is missing"),
        (["--password", "x", "--token", "y"], "not both"),
    ],
)
def test_failed_login_adds_no_cluster(new_user, team, more: list[str], says: str) -> None:
    done = new_user.pai("add-cluster", "-a", "team", "--pai-uri", team, "--user", "admin", *more)
    assert done.status != 0 and says in done.err and "Traceback" not in done.err, done
    assert not (new_user.home / ".openpai/clusters.yaml").exists()


def test_address_without_cluster_adds_nothing(new_user) -> None:
    port = free_port()
    done = add(new_user, f"http://127.0.0.1:{port}")
    assert done.status == 1 and "does not respond" in done.err, done
    assert add(new_user, "ftp://x").status == 2
    assert add(new_user, "http://x", "local").status == 2
    assert not (new_user.home / ".openpai/clusters.yaml").exists()


def test_select_and_delete_cluster(new_user, team) -> None:
    add(new_user, team, "one")
    done = add(new_user, team, "two")
    assert "Commands still use one" in done.err and new_user.pai("list-jobs").status == 0, done
    new_user.pai("unset", "-g", "cluster-alias")
    done = new_user.pai("list-jobs")
    assert done.status == 2 and "2 clusters (one, two) and none is selected" in done.err, done
    assert new_user.pai("list-jobs", "-a", "one").status == 0
    new_user.pai("select-cluster", "-g", "one")
    assert new_user.pai("list-jobs").status == 0
    new_user.pai("select-cluster", "two")
    marked = [line for line in new_user.pai("list-clusters").out.splitlines() if line.startswith("*")]
    assert len(marked) == 1 and "two" in marked[0]
    assert new_user.pai("delete-cluster", "two").status == 0
    done = new_user.pai("list-jobs")
    assert done.status == 2 and "no cluster called 'two'" in done.err, done


def test_cluster_resources_reports_unreachable_cluster_and_lists_others(new_user, team) -> None:
    add(new_user, team)
    port = free_port()
    entries = [
        *clusters(new_user),
        {"cluster_alias": "gone", "pai_uri": f"http://127.0.0.1:{port}", "user": "x"},
    ]
    (new_user.home / ".openpai/clusters.yaml").write_text(yaml.safe_dump(entries))
    done = new_user.pai("cluster-resources", "-o", "json")
    rows = json.loads(done.out)
    assert [(r["cluster"], r["virtualCluster"]) for r in rows] == [("team", "default")]
    assert rows[0]["vCores"] >= 1 and rows[0]["memoryMB"] > 0 and rows[0]["GPUs"] >= 0
    assert done.status == 1 and "gone" in done.err, done
    assert "team" in new_user.pai("cluster-resources", "-a", "team").out


def test_cluster_resources_without_clusters_shows_embedded_cluster(user) -> None:
    rows = json.loads(user.pai("cluster-resources", "-o", "json").out)
    assert [r["cluster"] for r in rows] == ["local"]


def test_clusters_in_local_stores_file_in_current_folder(new_user, team) -> None:
    assert new_user.pai("set", "clusters-in-local=yes").status == 0
    add(new_user, team)
    assert (new_user.project / ".openpai/clusters.yaml").exists()
    assert not (new_user.home / ".openpai/clusters.yaml").exists()


def test_command_line_overrides_defaults(new_user, team) -> None:
    add(new_user, team)
    new_user.pai("set", "-g", "image=everywhere", "cpu=3")
    new_user.pai("set", "image=here", "mem=1g")
    job = yaml.safe_load(new_user.pai("sub", "--preview", "true").out)
    assert job["prerequisites"][0]["uri"] == "here"
    assert job["taskRoles"]["main"]["resourcePerInstance"] == {"cpu": 3, "gpu": 0, "memoryMB": 1024}
    job = yaml.safe_load(
        new_user.pai("sub", "--preview", "-i", "cli", "--cpu", "5", "--memoryMB", "9", "true").out
    )
    assert job["prerequisites"][0]["uri"] == "cli"
    assert job["taskRoles"]["main"]["resourcePerInstance"] == {"cpu": 5, "gpu": 0, "memoryMB": 9}
    assert json.loads(new_user.pai("set", "-o", "json").out) == {"image": "here", "mem": "1g", "cpu": 3}
    assert new_user.pai("unset", "image").status == 0
    assert "everywhere" in new_user.pai("set").out


def test_sources_are_uploaded_to_team_cluster_and_hints_name_it(new_user, team) -> None:
    add(new_user, team)
    new_user.pai("select-cluster", "-g", "local")
    new_user.write(a="content")
    small = ["-a", "team", "--cpu", "1", "--mem", "64m"]
    done = new_user.pai("sub", *small, "-f", "ls")
    assert (done.status, done.out) == (0, "a\n"), done
    done = new_user.pai("sub", *small, "-j", "counting", "true")
    assert done.err.endswith("Follow it with: pai logs -a team -f counting\n"), done
    done = new_user.pai("job-status", "-a", "team", "countin")
    assert "There is no job 'countin' on the cluster team. Did you mean counting?" in done.err, done
    assert "pai list-jobs -a team lists your jobs" in done.err, done
    done = new_user.pai("job-outputs", "-a", "team", "counting", "get", "nothing")
    assert "pai job-outputs -a team counting lists them" in done.err, done
    new_user.pai("select-cluster", "-g", "team")
    done = new_user.pai("sub", "--cpu", "1", "--mem", "64m", "true")
    assert "Follow it with: pai logs -f true_" in done.err, done
    assert not (new_user.home / ".openpai/local").exists(), "no embedded cluster is needed"


def test_unschedulable_job_is_reported_at_submission_and_while_waiting(new_user, team) -> None:
    add(new_user, team)
    done = new_user.pai("sub", "--cpu", "100000", "-j", "huge", "true")
    assert done.status == 0, done
    assert "stays pending until the cluster changes: the job asks for 100000 cores; the" in done.err
    try:
        done = new_user.pai("wait", "--timeout", "2", "huge")
        assert done.status == 5 and done.err.count("Insufficient cpu") == 1, done
    finally:
        new_user.pai("stop-job", "huge")


def test_no_sources_for_openpai_cluster_with_notice(new_user) -> None:
    entry = {"cluster_alias": "far", "pai_uri": "http://127.0.0.1:9", "user": "x", "token": "y"}
    (new_user.home / ".openpai").mkdir()
    (new_user.home / ".openpai/clusters.yaml").write_text(yaml.safe_dump([entry]))
    done = new_user.pai("sub", "-i", "img", "--preview", "true")
    assert done.status == 0 and "No files are uploaded to far; --sources ." in done.err, done
    assert "No files" not in new_user.pai("sub", "-i", "img", "--no-sources", "--preview", "true").err


def test_missing_selected_cluster_names_the_defaults_file(new_user, team) -> None:
    add(new_user, team, "one")
    new_user.pai("select-cluster", "one")
    done = new_user.pai("delete-cluster", "one")
    assert "pai select-cluster local" in done.err, done
    done = new_user.pai("list-jobs")
    assert done.status == 2 and "project/.openpai/defaults.yaml selects it" in done.err, done
    assert "pai select-cluster local" in done.err, done
    new_user.pai("unset", "cluster-alias")
    new_user.pai("set", "-g", "cluster-alias=one")
    done = new_user.pai("list-jobs")
    assert "~/.openpai/defaults.yaml selects it" in done.err and "select-cluster -g local" in done.err, done


def test_failed_login_changes_nothing(new_user, team) -> None:
    done = add(new_user, team, "team", "--password", "wrong-password")
    assert "Nothing was changed." in done.err, done
    port = free_port()
    done = add(new_user, f"http://127.0.0.1:{port}")
    assert "Nothing was changed." in done.err and "list-clusters" not in done.err, done


def test_ctrl_d_at_password_prompt_is_one_line_error(new_user, team) -> None:
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
    done = new_user.run([str(BIN / "python"), "-c", script])
    assert done.out.startswith("2 ") and "No password was given, so nothing was changed." in done.out, done
    assert "EOFError" not in done.out, done


def test_update_token_of_the_embedded_cluster_says_what_renews_it(new_user) -> None:
    done = new_user.pai("update-token", "-a", "local")
    assert done.status == 2 and "pai stop-cluster && pai start-cluster" in done.err, done


def test_storage_of_a_cluster_that_was_added_without_it_names_the_command(new_user, team) -> None:
    """Its WebHDFS knows users by their tokens, which an entry for an HDFS does not have."""
    words = ["-a", "own", "--type", "hdfs", "--address", team, "--path", "/"]
    assert new_user.pai("add-storage-cluster", *words).status == 0
    done = new_user.pai("listdir", "hdfs://" + team.removeprefix("http://") + "/")
    assert done.status == 1, done
    assert f"pai add-cluster -a NAME --pai-uri {team} --user USER" in done.err
    assert "Bearer" not in done.err
