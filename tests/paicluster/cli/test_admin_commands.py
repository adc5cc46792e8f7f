"""`paicluster user|group|vc|token`, on a cluster that runs and on one that does not."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paicluster.auth.keyholder import issue_local_admin_token
from paicluster.cli import main
from support.server_fixture import Cluster, job
from support.unix_users import PASSWORD, CrewCluster, add_people

OPTIONS = ("--allow-shared-account", "--cpus", "8", "--memory-mb", "8000", "--gpus", "8")
Say = Callable[..., str]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrewCluster]:
    home = tmp_path_factory.mktemp("office") / "home"
    add_people(home)
    cluster = CrewCluster(home, OPTIONS)
    try:
        yield cluster.start()
    finally:
        cluster.close()


@pytest.fixture(params=["a server runs", "no server runs"])
def home(request: pytest.FixtureRequest, running: CrewCluster, tmp_path: Path) -> Path:
    if request.param == "a server runs":
        return running.home
    add_people(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def say(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Runs a command on the home; what it printed, or its status with what it complained of."""

    def run(*words: str, typed: str = "", status: int = 0) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        capsys.readouterr()
        assert main([*words, "--home", str(home)]) == status, capsys.readouterr()
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return told.err if status else told.out

    return run


def listed(say: Say, family: str, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(say(family, *(more or ("list",)), "-o", "json"))
    return found


def test_users_are_made_listed_changed_and_removed(say: Say) -> None:
    assert (
        say("user", "add", "ada", "--email", "ada@example.com", typed="a good password\n")
        == "Made user ada.\n"
    )
    by_name = {user["username"]: user for user in listed(say, "user")}
    assert by_name["ada"]["email"] == "ada@example.com"
    assert by_name["ada"]["admin"] is False
    assert by_name["admin"]["admin"] is True
    assert "extension" not in by_name["ada"]
    table = say("user", "list").splitlines()
    assert table[0].split() == ["USER", "ADMIN", "GROUPS", "VIRTUAL", "CLUSTERS", "EMAIL"]
    assert any(line.split()[:2] == ["ada", "no"] for line in table)
    assert "already exists" in say("user", "add", "ada", typed="another one\n", status=1)
    assert "new password" in say("user", "passwd", "ada", typed="a new password\n")
    assert " yes " in say("user", "grant", "ada", "--admin")
    assert "ada" in say("user", "remove", "ada", status=1), "an administrator cannot be removed"
    say("user", "grant", "ada", "--no-admin")
    assert say("user", "remove", "ada") == "Removed user ada.\n"
    assert "ada" not in {user["username"] for user in listed(say, "user")}
    for words in (("remove", "ada"), ("grant", "ada", "--admin"), ("passwd", "ada")):
        assert "ada" in say("user", *words, typed="long enough\n", status=1)


def test_a_user_with_jobs_is_removed_when_they_may_be_stopped(
    running: CrewCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--home", str(running.home))
    made = {"username": "leo", "password": PASSWORD}
    assert running.ask("POST", "/api/v2/users", made, token=running.admin_token()).status == 201
    running.as_user("leo").accept(job("lasting", "sleep 600"))
    running.as_user("admin")
    assert main(["user", "remove", "leo", *where]) == 1
    said = capsys.readouterr().err
    assert "leo has 1 job that is not over; nothing was changed" in said
    assert "--stop-jobs" in said
    assert running.get("/api/v2/jobs/leo~lasting").json()["jobStatus"]["executionType"] == "START"
    assert main(["user", "remove", "leo", "--stop-jobs", *where]) == 0
    assert capsys.readouterr().out == "Removed user leo. Stopping 1 job.\n"


@pytest.mark.parametrize(("typed", "why"), [("", "at least 6"), ("short\n", "at least 6")])
def test_a_password_that_is_none_changes_nothing(say: Say, typed: str, why: str) -> None:
    assert why in say("user", "add", "eve", typed=typed, status=2)
    assert "eve" not in {user["username"] for user in listed(say, "user")}


def test_names_that_are_none_are_refused(say: Say) -> None:
    assert "name of a user" in say("user", "add", "no such name", typed="long enough\n", status=2)
    assert "name of a group" in say("group", "add", "no-such", status=2)
    say("vc", "add", "no-such", "--capacity", "1", status=1)
    assert "default" in say("vc", "remove", "default", status=1)


def test_groups_and_what_they_permit(say: Say) -> None:
    say("user", "add", "bea", typed="long enough\n")
    say("vc", "add", "vision", "--capacity", "25")
    assert (
        say("group", "add", "team", "--vc", "vision", "--description", "Those who see")
        == "Made group team.\n"
    )
    [team] = [group for group in listed(say, "group") if group["groupname"] == "team"]
    assert team["extension"]["acls"]["virtualClusters"] == ["vision"]
    assert "Those who see" in say("group", "list")
    assert "nobody" in say("group", "join", "team", "bea", "nobody", status=1)
    assert listed(say, "group", "members", "team") == [], "all or none"
    assert "bea is in group team" in say("group", "join", "team", "bea")
    assert [one["username"] for one in listed(say, "group", "members", "team")] == ["bea"]
    [bea] = [user for user in listed(say, "user") if user["username"] == "bea"]
    assert set(bea["virtualCluster"]) == {"default", "vision"}
    say("group", "grant", "team", "--no-vc", "vision", "--admin")
    [bea] = [user for user in listed(say, "user") if user["username"] == "bea"]
    assert bea["admin"] is True
    say("group", "grant", "team", "--no-admin")
    say("group", "leave", "team", "bea")
    assert listed(say, "group", "members", "team") == []
    say("group", "remove", "team")
    assert "team" not in {group["groupname"] for group in listed(say, "group")}
    for words in (("remove", "team"), ("members", "team"), ("leave", "team", "bea"), ("join", "team", "bea")):
        assert "team" in say("group", *words, status=1)
    say("user", "remove", "bea")
    say("vc", "remove", "vision")


def test_a_group_permits_nothing_that_is_not_there(say: Say) -> None:
    assert "no virtual cluster vison" in say("group", "add", "typos", "--vc", "vison", status=1)
    assert "no storage hom; nothing was changed" in say("group", "add", "typos", "--storage", "hom", status=1)
    say("group", "add", "typos", "--storage", "home")
    assert "no virtual cluster" in say("group", "grant", "typos", "--vc", "vison", status=1)
    say("group", "grant", "typos", "--no-vc", "vison", "--no-storage", "home")
    say("group", "remove", "typos")


def test_a_new_home_is_told_of_beside_what_programs_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    # Before the verb, too.
    assert main(["user", "--home", str(home), "list", "-o", "json"]) == 0
    told = capsys.readouterr()
    assert [user["username"] for user in json.loads(told.out)] == ["admin"]
    assert "shown only now" in told.err


def test_virtual_clusters_take_from_the_rest(say: Say) -> None:
    say("vc", "add", "lab", "--capacity", "25")
    found = {one["name"]: one for one in listed(say, "vc")}
    whole = found["lab"]["resourcesTotal"]["gpu"] + found["default"]["resourcesTotal"]["gpu"]
    assert found["lab"]["resourcesTotal"]["gpu"] == whole // 4
    assert "already" in say("vc", "add", "lab", "--capacity", "5", status=1)
    say("vc", "set", "lab", "--capacity", "50")
    assert {one["name"]: one["capacity"] for one in listed(say, "vc")}["lab"] == 50
    say("vc", "set", "lab", "--capacity", "50", "--most", "60")
    say("vc", "set", "lab", "--most", "70")
    [lab] = [one for one in listed(say, "vc") if one["name"] == "lab"]
    assert (lab["capacity"], lab["maxCapacity"]) == (50, 70)
    say("vc", "set", "lab", "--capacity", "45")
    [lab] = [one for one in listed(say, "vc") if one["name"] == "lab"]
    assert (lab["capacity"], lab["maxCapacity"]) == (45, 70)
    assert "from that of --capacity" in say("vc", "set", "lab", "--most", "40", status=2)
    assert "quota" in say("vc", "add", "more", "--capacity", "60", status=1)
    say("vc", "set", "lab", "--stop")
    say("vc", "set", "lab", "--start")
    assert "Say what" in say("vc", "set", "lab", status=2)
    assert "no virtual cluster" in say("vc", "set", "other", "--stop", status=1)
    say("user", "add", "cleo", "--vc", "lab", typed="long enough\n")
    assert "lab" in say("user", "grant", "cleo", "--vc", "lab")
    assert "lab" not in say("user", "grant", "cleo", "--no-vc", "lab")
    say("user", "remove", "cleo")
    assert say("vc", "remove", "lab") == "Removed virtual cluster lab.\n"
    assert [line.split()[0] for line in say("vc", "list").splitlines()] == ["VC", "default"]


def test_tokens_are_listed_without_being_shown_and_revoked(running: CrewCluster) -> None:
    running.as_user("admin")
    given = running.ask("POST", "/api/v2/tokens/application", {"name": "the nightly build"}).json()["token"]
    command = [sys.executable, "-m", "paicluster", "token"]
    where = ["--home", str(running.home)]

    def say(*words: str) -> str:
        return subprocess.run([*command, *words, *where], capture_output=True, text=True, check=True).stdout

    held = json.loads(say("list", "admin", "-o", "json"))
    assert given not in json.dumps(held)
    [row] = [token for token in held if token["name"] == "the nightly build"]
    assert "application  the nightly build" in say("list")
    assert say("revoke", row["id"]) == f"Revoked token {row['id']}.\n"
    assert running.get("/api/v2/jobs", token=given).status == 401
    gone = subprocess.run([*command, "revoke", row["id"], *where], capture_output=True, text=True)
    assert (gone.returncode, gone.stderr.count("\n")) == (1, 2)
    assert running.get("/api/v2/jobs").status == 200


def test_what_is_changed_while_the_server_runs_holds_at_once(running: CrewCluster) -> None:
    words = [sys.executable, "-m", "paicluster", "user"]
    where = ["--home", str(running.home)]
    subprocess.run([*words, "add", "dora", *where], input=f"{PASSWORD}\n", text=True, check=True)
    running.as_user("dora")
    assert running.run(job("of-dora", "true"))["state"] == "SUCCEEDED"
    subprocess.run([*words, "passwd", "dora", *where], input="another password\n", text=True, check=True)
    assert running.get("/api/v2/jobs").status == 401, "a new password ends sessions"
    subprocess.run([*words, "remove", "dora", *where], check=True)
    del running.tokens["dora"]
    running.as_user("admin")


def test_no_password_is_on_a_command_line_or_in_a_file(running: CrewCluster) -> None:
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            for name in os.listdir("/proc"):
                if name.isdigit():
                    try:
                        seen.add(Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace"))
                    except OSError:
                        continue

    watching = threading.Thread(target=watch)
    watching.start()
    words = [sys.executable, "-m", "paicluster", "user"]
    where = ["--home", str(running.home)]
    secret = "canary-password-of-emmy"
    subprocess.run([*words, "add", "emmy", *where], input=secret + "\n", text=True, check=True)
    over.set()
    watching.join()
    subprocess.run([*words, "remove", "emmy", *where], check=True)
    assert any("emmy" in line for line in seen)
    assert not any(secret in line for line in seen)
    for path in running.home.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes()


# -- who may ----------------------------------------------------------------------------------------


def test_the_word_of_the_keyholder_holds_for_two_minutes_and_no_longer(
    running: CrewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = running.home / "keys"
    good = issue_local_admin_token(keys, "admin")
    assert running.get("/api/v2/users", token=good).status == 200
    now = time.time()
    for then in (now - 200, now + 1000):
        monkeypatch.setattr(time, "time", lambda then=then: then)
        late = issue_local_admin_token(keys, "admin")
        monkeypatch.undo()
        assert running.get("/api/v2/users", token=late).status == 401
    head, said, signature = good.split(".")
    assert running.get("/api/v2/users", token=f"{head}.{said}.{signature[:-2]}AA").status == 401


def test_a_command_that_does_not_know_where_or_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["user", "list", "--home", str(tmp_path / "none")]) == 1
    assert "There is no cluster" in capsys.readouterr().err
    assert main(["user", "list"]) == 2
    assert "--home" in capsys.readouterr().err
    assert main(["user"]) == 2
    assert "add|list" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("into", "status", "says"),
    [("| true; exit ${PIPESTATUS[0]}", 141, ""), (">/dev/full", 1, "paicluster: No space left on device.\n")],
)
def test_output_that_nobody_takes_ends_a_command_without_a_traceback(
    running: CrewCluster, into: str, status: int, says: str
) -> None:
    command = f"{sys.executable} -m paicluster user list --home {running.home} {into}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, says)


def test_a_new_home_gets_its_administrator_from_the_first_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAICLUSTER_ADMIN_PASSWORD", "of the administrator")
    assert main(["init", "--home", str(tmp_path / "new")]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("long enough\n"))
    assert main(["user", "add", "fay", "--home", str(tmp_path / "new")]) == 0
    capsys.readouterr()
    assert main(["user", "list", "--home", str(tmp_path / "new"), "-o", "json"]) == 0
    assert {user["username"] for user in json.loads(capsys.readouterr().out)} == {"admin", "fay"}


@pytest.mark.parametrize("family", ["user", "group", "vc", "token"])
def test_every_family_explains_itself_with_examples(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([family, "--help"])
    assert left.value.code == 0
    assert f"paicluster {family} " in capsys.readouterr().out


def test_the_cluster_of_one_person_takes_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Cluster(tmp_path / "own")
    try:
        own.start()
        monkeypatch.setattr(sys, "stdin", io.StringIO("long enough\n"))
        assert main(["user", "add", "gus", "--home", str(own.home)]) == 1
        assert "alone" in capsys.readouterr().err
    finally:
        own.close()


def test_a_password_is_typed_twice_at_a_terminal(running: CrewCluster) -> None:
    """A real terminal: what is typed does not show, and two that differ change nothing."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(
            sys.executable,
            [sys.executable, "-m", "paicluster", "user", "add", "hana", "--home", str(running.home)],
        )
    shown = b""

    def until(words: bytes) -> None:
        nonlocal shown
        while words not in shown:
            shown += os.read(terminal, 1024)

    until(b"New password of hana: ")
    os.write(terminal, b"the first one\n")
    until(b"Once more: ")
    os.write(terminal, b"another one\n")
    until(b"not the same")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    os.close(terminal)
    assert b"first one" not in shown
    assert "hana" not in {user["username"] for user in running.as_user("admin").get("/api/v2/users").json()}
