"""Home and handshake of the embedded cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from openpaisdk.embedded import handshake, home, start
from openpaisdk.embedded.ensure_running import find_running, rediscover
from openpaisdk.embedded.versions import is_older
from paiprotocol.errors import ConfigError, Unavailable
from support.external_services import missing


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_one_home_per_machine(at_home) -> None:
    assert home.find_home() == str(at_home / ".openpai/local" / home.machine_name())
    made = home.make_home()
    assert Path(made).stat().st_mode & 0o777 == 0o700


def test_network_home_has_state_on_local_disk(at_home, tmp_path, monkeypatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setattr(home, "LOCAL_DISKS", (str(disk),))
    monkeypatch.setattr(home, "network_type", lambda path: "" if path.startswith(str(disk)) else "nfs4")
    made = home.make_home()
    assert made.startswith(str(disk / f"openpai-{os.getuid()}"))
    assert home.find_home() == made
    assert (at_home / ".openpai/local" / home.machine_name() / "location").read_text().strip() == made
    assert (disk / f"openpai-{os.getuid()}").stat().st_mode & 0o777 == 0o700


def test_two_homes_of_a_user_have_separate_local_folders(tmp_path, monkeypatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setattr(home, "LOCAL_DISKS", (str(disk),))
    monkeypatch.setattr(home, "network_type", lambda path: "" if path.startswith(str(disk)) else "nfs4")
    made = []
    for name in ("one", "two"):
        monkeypatch.setenv("HOME", str(tmp_path / name))
        made.append(home.make_home())
    assert made[0] != made[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give a folder away")
def test_folder_of_another_user_is_rejected(tmp_path, monkeypatch) -> None:
    disk = tmp_path / "disk"
    (disk / f"openpai-{os.getuid()}").mkdir(parents=True)
    os.chown(disk / f"openpai-{os.getuid()}", 12345, 12345)
    monkeypatch.setattr(home, "LOCAL_DISKS", (str(disk),))
    monkeypatch.setattr(home, "network_type", lambda path: "" if path.startswith(str(disk)) else "nfs4")
    with pytest.raises(ConfigError, match="belongs to another user"):
        home.make_home()


@pytest.mark.parametrize("there", ["", ".openpai", ".openpai/local"])
def test_root_creates_no_folder_in_a_users_home(tmp_path, there: str) -> None:
    if os.geteuid() != 0:
        missing("root, who alone gives folders away,")
    folder = tmp_path / there
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to another user"):
        home.make_home()
    assert not list(folder.iterdir())
    # In a container, a mounted folder may belong to a uid without an account.
    os.chown(folder, 12345, 12345)
    assert Path(home.make_home()).is_dir()


def test_home_that_cannot_be_created_is_one_line_error(tmp_path, monkeypatch) -> None:
    (tmp_path / "flat").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "flat"))
    with pytest.raises(ConfigError, match="cannot be"):
        home.make_home()


def write(folder: str, **changes: object) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    mine = {
        "url": "http://127.0.0.1:1",
        "pid": os.getpid(),
        "boot_id": handshake.boot_id(),
        "start_time": handshake.start_time(os.getpid()),
        "version": "1",
        "user": "u",
        "token": "t",
    }
    (Path(folder) / "server.json").write_text(json.dumps({**mine, **changes}))


def test_process_is_identified_by_boot_pid_and_start_time() -> None:
    folder = home.find_home()
    write(folder)
    found = find_running()
    assert found and found.url == "http://127.0.0.1:1" and found.token == "t"
    for stale in ({"boot_id": "other"}, {"start_time": 1}, {"pid": 2**22 - 1}):
        write(folder, **stale)
        assert find_running() is None


def test_zombie_process_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = handshake.start_time(child.pid)
    assert started is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert handshake.start_time(child.pid) is None
    child.wait()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"url": 1}', "null"])
def test_incomplete_handshake_reads_as_none(content: str) -> None:
    folder = home.make_home()
    (Path(folder) / "server.json").write_text(content)
    assert handshake.read_handshake(folder) is None


def test_follower_does_not_restart_stopped_cluster() -> None:
    assert rediscover() is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [("0.4.9", "0.5.0"), ("0.9", "0.10"), ("0.5.0.dev1", "0.5.0"), ("0.5.0rc1", "0.5.0"), ("0.5", "0.5.1")],
)
def test_versions_compare_numerically(older: str, newer: str) -> None:
    assert is_older(older, newer) and not is_older(newer, older)


def test_trailing_zeros_and_local_parts_are_ignored() -> None:
    assert not is_older("0.5", "0.5.0") and not is_older("0.5.0", "0.5")
    assert not is_older("0.5.0+abc", "0.5.0") and not is_older("0.5.0", "0.5.0+abc")


@pytest.mark.parametrize(("platform", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_unsupported_platform_is_reported_with_hint(monkeypatch, platform: str, name: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(Unavailable, match=f"not on {name}") as caught:
        start.check_platform()
    assert "pai add-cluster" in caught.value.hint
