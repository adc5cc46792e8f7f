"""`paicluster user|group|vc|token`, with and without a running server."""

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

from paicluster.auth.local_admin import issue_local_admin_token
from paicluster.cli import main
from support.process_template import run_paicluster
from support.server_fixture import Cluster, job
from support.unix_users import PASSWORD, CrewCluster, add_people

OPTIONS = ("--allow-shared-account", "--cpus", "8", "--memory-mb", "8000", "--gpus", "8")
RunCommand = Callable[..., str]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrewCluster]:
    home = tmp_path_factory.mktemp("admin") / "home"
    add_people(home)
    cluster = CrewCluster(home, OPTIONS)
    try:
        yield cluster.start()
    finally:
        cluster.close()


# Without a server, every command builds the whole cluster.
@pytest.fixture(params=["a server runs", pytest.param("no server runs", marks=pytest.mark.slow)])
def home(request: pytest.FixtureRequest, running: CrewCluster, tmp_path: Path) -> Path:
    if request.param == "a server runs":
        return running.home
    add_people(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def run_command(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Runs a command on the home; returns its stdout, or its stderr when it is expected to fail."""

    def run(*arguments: str, typed: str = "", status: int = 0) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        capsys.readouterr()
        assert main([*arguments, "--home", str(home)]) == status, capsys.readouterr()
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return output.err if status else output.out

    return run


def listed(run_command: RunCommand, group: str, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run_command(group, *(more or ("list",)), "-o", "json"))
    return found


def test_user_add_does_not_warn_where_all_jobs_have_one_account(
    running: CrewCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was started with the option, which the cluster's file does not have."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("a good password\n"))
    assert main(["user", "add", "no-such-account", "--home", str(running.home)]) == 0
    output = capsys.readouterr()
    assert (output.out, "Warning" in output.err) == ("Created user no-such-account.\n", False), output


def test_user_add_list_grant_remove(run_command: RunCommand) -> None:
    assert (
        run_command("user", "add", "ada", "--email", "ada@example.com", typed="a good password\n")
        == "Created user ada.\n"
    )
    by_name = {user["username"]: user for user in listed(run_command, "user")}
    assert by_name["ada"]["email"] == "ada@example.com"
    assert by_name["ada"]["admin"] is False
    assert by_name["admin"]["admin"] is True
    assert "extension" not in by_name["ada"]
    table = run_command("user", "list").splitlines()
    assert table[0].split() == ["USER", "ADMIN", "DISABLED", "GROUPS", "VIRTUAL", "CLUSTERS", "EMAIL"]
    assert any(line.split()[:2] == ["ada", "no"] for line in table)
    assert "already exists" in run_command("user", "add", "ada", typed="another one\n", status=1)
    assert "new password" in run_command("user", "passwd", "ada", typed="a new password\n")
    assert " yes " in run_command("user", "grant", "ada", "--admin")
    assert "ada" in run_command("user", "remove", "ada", status=1), "an administrator cannot be removed"
    run_command("user", "grant", "ada", "--no-admin")
    assert run_command("user", "remove", "ada") == "Removed user ada.\n"
    assert "ada" not in {user["username"] for user in listed(run_command, "user")}
    for command in (("remove", "ada"), ("grant", "ada", "--admin"), ("passwd", "ada")):
        assert "ada" in run_command("user", *command, typed="long enough\n", status=1)


def test_user_with_jobs_is_removed_only_with_stop_jobs(
    running: CrewCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    home_option = ("--home", str(running.home))
    made = {"username": "leo", "password": PASSWORD}
    assert running.ask("POST", "/api/v2/users", made, token=running.admin_token()).status == 201
    running.as_user("leo").accept(job("lasting", "sleep 600"))
    running.as_user("admin")
    assert main(["user", "remove", "leo", *home_option]) == 1
    message = capsys.readouterr().err
    assert "leo has 1 job unfinished; nothing was changed" in message
    assert "--stop-jobs" in message
    assert running.get("/api/v2/jobs/leo~lasting").json()["jobStatus"]["executionType"] == "START"
    assert main(["user", "remove", "leo", "--stop-jobs", *home_option]) == 0
    assert capsys.readouterr().out == "Removed user leo. Stopping 1 job.\n"


def test_user_is_disabled_and_enabled_while_jobs_go_on(
    running: CrewCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    home_option = ("--home", str(running.home))
    made = {"username": "max", "password": PASSWORD}
    assert running.ask("POST", "/api/v2/users", made, token=running.admin_token()).status == 201
    running.as_user("max").accept(job("lasting", "sleep 600"))
    running.as_user("admin")
    assert main(["user", "disable", "max", *home_option]) == 0
    assert capsys.readouterr().out == "Disabled user max. 1 job goes on.\n"
    assert main(["user", "list", *home_option]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("max "))
    assert row.split()[:3] == ["max", "no", "yes"]
    assert running.get("/api/v2/jobs/max~lasting").json()["jobStatus"]["executionType"] == "START"
    assert main(["user", "enable", "max", *home_option]) == 0
    assert capsys.readouterr().out == "Enabled user max.\n"
    assert main(["user", "remove", "max", "--stop-jobs", *home_option]) == 0
    for command in ("disable", "enable"):
        assert main(["user", command, "max", *home_option]) == 1
        assert "User max not found." in capsys.readouterr().err
    assert main(["user", "disable", "admin", *home_option]) == 1
    assert "without an administrator" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "why"), [("", "at least 6"), ("short\n", "at least 6")])
def test_short_password_changes_nothing(run_command: RunCommand, typed: str, why: str) -> None:
    assert why in run_command("user", "add", "eve", typed=typed, status=2)
    assert "eve" not in {user["username"] for user in listed(run_command, "user")}


def test_invalid_names_are_rejected(run_command: RunCommand) -> None:
    assert "not a valid user name" in run_command(
        "user", "add", "no such name", typed="long enough\n", status=2
    )
    assert "not a valid group name" in run_command("group", "add", "no-such", status=2)
    run_command("vc", "add", "no-such", "--capacity", "1", status=1)
    assert "default" in run_command("vc", "remove", "default", status=1)


def test_group_members_and_rights(run_command: RunCommand) -> None:
    run_command("user", "add", "bea", typed="long enough\n")
    run_command("vc", "add", "vision", "--capacity", "25")
    assert (
        run_command("group", "add", "team", "--vc", "vision", "--description", "Those who see")
        == "Created group team.\n"
    )
    [team] = [group for group in listed(run_command, "group") if group["groupname"] == "team"]
    assert team["extension"]["acls"]["virtualClusters"] == ["vision"]
    assert "Those who see" in run_command("group", "list")
    assert "nobody" in run_command("group", "join", "team", "bea", "nobody", status=1)
    assert listed(run_command, "group", "members", "team") == [], "all users or none"
    assert "bea is in group team" in run_command("group", "join", "team", "bea")
    assert [one["username"] for one in listed(run_command, "group", "members", "team")] == ["bea"]
    [bea] = [user for user in listed(run_command, "user") if user["username"] == "bea"]
    assert set(bea["virtualCluster"]) == {"default", "vision"}
    run_command("group", "grant", "team", "--no-vc", "vision", "--admin")
    [bea] = [user for user in listed(run_command, "user") if user["username"] == "bea"]
    assert bea["admin"] is True
    run_command("group", "grant", "team", "--no-admin")
    run_command("group", "leave", "team", "bea")
    assert listed(run_command, "group", "members", "team") == []
    run_command("group", "remove", "team")
    assert "team" not in {group["groupname"] for group in listed(run_command, "group")}
    for command in (
        ("remove", "team"),
        ("members", "team"),
        ("leave", "team", "bea"),
        ("join", "team", "bea"),
    ):
        assert "team" in run_command("group", *command, status=1)
    run_command("user", "remove", "bea")
    run_command("vc", "remove", "vision")


def test_group_cannot_be_granted_unknown_vc_or_storage(run_command: RunCommand) -> None:
    assert "no virtual cluster vison" in run_command("group", "add", "typos", "--vc", "vison", status=1)
    assert "no storage hom; nothing was changed" in run_command(
        "group", "add", "typos", "--storage", "hom", status=1
    )
    run_command("group", "add", "typos", "--storage", "home")
    assert "no virtual cluster" in run_command("group", "grant", "typos", "--vc", "vison", status=1)
    run_command("group", "grant", "typos", "--no-vc", "vison", "--no-storage", "home")
    run_command("group", "remove", "typos")


def test_generated_password_goes_to_stderr_not_into_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    # --home is accepted before the verb, too.
    assert main(["user", "--home", str(home), "list", "-o", "json"]) == 0
    output = capsys.readouterr()
    assert [user["username"] for user in json.loads(output.out)] == ["admin"]
    assert "shown only once" in output.err


def test_virtual_cluster_add_set_remove(run_command: RunCommand) -> None:
    run_command("vc", "add", "lab", "--capacity", "25")
    found = {one["name"]: one for one in listed(run_command, "vc")}
    whole = found["lab"]["resourcesTotal"]["gpu"] + found["default"]["resourcesTotal"]["gpu"]
    assert found["lab"]["resourcesTotal"]["gpu"] == whole // 4
    assert "already" in run_command("vc", "add", "lab", "--capacity", "5", status=1)
    run_command("vc", "set", "lab", "--capacity", "50")
    assert {one["name"]: one["capacity"] for one in listed(run_command, "vc")}["lab"] == 50
    run_command("vc", "set", "lab", "--capacity", "50", "--max-capacity", "60")
    run_command("vc", "set", "lab", "--max-capacity", "70")
    [lab] = [one for one in listed(run_command, "vc") if one["name"] == "lab"]
    assert (lab["capacity"], lab["maxCapacity"]) == (50, 70)
    run_command("vc", "set", "lab", "--capacity", "45")
    [lab] = [one for one in listed(run_command, "vc") if one["name"] == "lab"]
    assert (lab["capacity"], lab["maxCapacity"]) == (45, 70)
    assert "from --capacity" in run_command("vc", "set", "lab", "--max-capacity", "40", status=2)
    assert "quota" in run_command("vc", "add", "more", "--capacity", "60", status=1)
    run_command("vc", "set", "lab", "--stop")
    run_command("vc", "set", "lab", "--start")
    assert "nothing to change" in run_command("vc", "set", "lab", status=2)
    assert "no virtual cluster" in run_command("vc", "set", "other", "--stop", status=1)
    run_command("user", "add", "cleo", "--vc", "lab", typed="long enough\n")
    assert "lab" in run_command("user", "grant", "cleo", "--vc", "lab")
    assert "lab" not in run_command("user", "grant", "cleo", "--no-vc", "lab")
    run_command("user", "remove", "cleo")
    assert run_command("vc", "remove", "lab") == "Removed virtual cluster lab.\n"
    assert [line.split()[0] for line in run_command("vc", "list").splitlines()] == ["VC", "default"]


def test_token_list_hides_tokens_and_revoke_revokes(running: CrewCluster) -> None:
    running.as_user("admin")
    given = running.ask("POST", "/api/v2/tokens/application", {"name": "the nightly build"}).json()["token"]

    def run_command(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_paicluster("token", *arguments, "--home", str(running.home))
        assert done.returncode == status, done.stderr
        return done

    held = json.loads(run_command("list", "admin", "-o", "json").stdout)
    assert given not in json.dumps(held)
    [row] = [token for token in held if token["name"] == "the nightly build"]
    assert "application  the nightly build" in run_command("list").stdout
    assert run_command("revoke", row["id"]).stdout == f"Revoked token {row['id']}.\n"
    assert running.get("/api/v2/jobs", token=given).status == 401
    assert run_command("revoke", row["id"], status=1).stderr.count("\n") == 2
    assert running.get("/api/v2/jobs").status == 200


def test_changes_apply_to_the_running_server_at_once(running: CrewCluster) -> None:
    def change(*arguments: str, typed: str = "") -> None:
        done = run_paicluster("user", *arguments, "--home", str(running.home), stdin=typed)
        assert done.returncode == 0, done.stderr

    change("add", "dora", typed=f"{PASSWORD}\n")
    running.as_user("dora")
    assert running.run(job("of-dora", "true"))["state"] == "SUCCEEDED"
    change("passwd", "dora", typed="another password\n")
    assert running.get("/api/v2/jobs").status == 401, "a new password ends sessions"
    change("remove", "dora")
    del running.tokens["dora"]
    running.as_user("admin")


def test_password_appears_in_no_command_line_and_no_file(running: CrewCluster) -> None:
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
    command = [sys.executable, "-m", "paicluster", "user"]
    home_option = ["--home", str(running.home)]
    secret = "canary-password-of-emmy"
    subprocess.run([*command, "add", "emmy", *home_option], input=secret + "\n", text=True, check=True)
    over.set()
    watching.join()
    subprocess.run([*command, "remove", "emmy", *home_option], check=True)
    assert any("emmy" in line for line in seen)
    assert not any(secret in line for line in seen)
    for path in running.home.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes()


# -- access -----------------------------------------------------------------------------------------


def test_local_admin_token_is_valid_for_two_minutes_only(
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
    header, payload, signature = good.split(".")
    assert running.get("/api/v2/users", token=f"{header}.{payload}.{signature[:-2]}AA").status == 401


def test_missing_home_or_verb_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
def test_closed_or_full_stdout_ends_command_without_traceback(
    running: CrewCluster, into: str, status: int, says: str
) -> None:
    command = f"{sys.executable} -m paicluster user list --home {running.home} {into}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, says)


def test_first_command_on_a_new_home_creates_the_administrator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAICLUSTER_ADMIN_PASSWORD", "of the administrator")
    assert main(["init", "--home", str(tmp_path / "new")]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("long enough\n"))
    assert main(["user", "add", "fay", "--home", str(tmp_path / "new")]) == 0
    capsys.readouterr()
    assert main(["user", "list", "--home", str(tmp_path / "new"), "-o", "json"]) == 0
    assert {user["username"] for user in json.loads(capsys.readouterr().out)} == {"admin", "fay"}


@pytest.mark.parametrize("group", ["user", "group", "vc", "token"])
def test_help_of_every_command_group_has_examples(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([group, "--help"])
    assert left.value.code == 0
    assert f"paicluster {group} " in capsys.readouterr().out


def test_embedded_cluster_accepts_no_further_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Cluster(tmp_path / "own")
    try:
        own.start()
        monkeypatch.setattr(sys, "stdin", io.StringIO("long enough\n"))
        assert main(["user", "add", "gus", "--home", str(own.home)]) == 1
        assert "it has one user" in capsys.readouterr().err
    finally:
        own.close()


def test_password_is_typed_twice_at_a_terminal(running: CrewCluster) -> None:
    """A real terminal: the password is not echoed, and two different ones change nothing."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(
            sys.executable,
            [sys.executable, "-m", "paicluster", "user", "add", "hana", "--home", str(running.home)],
        )
    shown = b""

    def read_until(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(terminal, 1024)

    read_until(b"New password of hana: ")
    os.write(terminal, b"the first one\n")
    read_until(b"Repeat the password: ")
    os.write(terminal, b"another one\n")
    read_until(b"differ")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    os.close(terminal)
    assert b"first one" not in shown
    assert "hana" not in {user["username"] for user in running.as_user("admin").get("/api/v2/users").json()}


@pytest.mark.parametrize(("kind", "name"), [("user", "admin"), ("group", "default")])
def test_quota_is_set_shown_and_removed(run_command: RunCommand, kind: str, name: str) -> None:
    table = run_command(kind, "set-quota", name, "--tasks", "4", "--mem", "8g", "--storage", "1.5t")
    lines = [line.split() for line in table.splitlines()]
    assert lines[0] == ["RESOURCE", "USED", "LIMIT"]
    assert ["tasks", "0", "4"] in lines
    assert ["memoryMB", "0", "8192"] in lines
    assert ["gpu", "0", "-"] in lines
    run_command(kind, "set-quota", name, "--tasks", "none", "--gpu", "0", "--cpu", "2")
    report = json.loads(run_command(kind, "quota", name, "-o", "json"))
    assert {key: amounts["limit"] for key, amounts in report["resources"].items()} == {
        "tasks": None,
        "cpu": 2,
        "memoryMB": 8192,
        "gpu": 0,
        "storageBytes": 3 << 39,
    }
    removed = [word for option in ("cpu", "mem", "gpu", "storage") for word in (f"--{option}", "none")]
    table = run_command(kind, "set-quota", name, *removed)
    assert all(line.endswith(" -") for line in table.splitlines()[1:]), table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("alice",), "There is no limit to set."),
        (("alice", "--tasks", "-1"), "--tasks: '-1' is not a whole number"),
        (("alice", "--cpu", "many"), "--cpu: 'many' is not a whole number"),
        (("alice", "--storage", "20"), "--storage: '20' is not a size"),
        (("alice", "--mem", "1e99g"), "--mem: '1e99g' is not a size"),
    ],
)
def test_wrong_quotas_are_usage_errors(
    run_command: RunCommand, arguments: tuple[str, ...], message: str
) -> None:
    assert message in run_command("user", "set-quota", *arguments, status=2)


def test_quota_of_an_unknown_user_is_an_error(run_command: RunCommand) -> None:
    assert "nobody not found" in run_command("user", "set-quota", "nobody", "--tasks", "1", status=1)
