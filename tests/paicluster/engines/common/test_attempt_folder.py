"""Preparing an attempt folder again follows nothing that the task left there."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from paicluster.engines.common import attempt_folder
from paicluster.engines.common.unix_accounts import Account
from paicluster.engines.container import container_spec
from paicluster.engines.container.client import Client
from paicluster.engines.interface import TaskLaunch
from support.external_services import missing

ACCOUNT = Account("mallory", 54321, 54321, (54321,))
TASK = TaskLaunch("aa-1", "node", "true", {}, image="image")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder that only its owner may enter, with a file."""
    folder = tmp_path / "victim"
    (folder / "output").mkdir(parents=True)
    (folder / "file").write_text("kept")
    for path in (folder, folder / "output", folder / "file"):
        path.chmod(0o500)
    return folder


def states(victim: Path) -> list[tuple[int, int, int]]:
    found = [path.lstat() for path in (victim, victim / "output", victim / "file")]
    return [(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) for status in found]


def prepare(folder: Path, account: Account | None) -> None:
    attempt_folder.prepare(folder, TASK, {"boot_id": "one"}, None, account, runtime=Path("/r/p.pyz"))


@pytest.mark.parametrize("link", ["work/.pai", "work/.pai/output"])
def test_links_in_the_working_folder_are_not_followed(tmp_path: Path, victim: Path, link: str) -> None:
    if os.geteuid() != 0:
        missing("root, who can change owners,")
    before = states(victim)
    folder = tmp_path / "aa" / "aa-1"
    prepare(folder, ACCOUNT)
    target = folder / link
    attempt_folder.folder_size.remove_tree(target)
    target.symlink_to(victim)
    (folder / "spec.json").unlink()
    prepare(folder, ACCOUNT)
    assert states(victim) == before
    assert sorted(os.listdir(victim)) == ["file", "output"]
    for name in ("work", "work/.pai", "work/.pai/output"):
        status = (folder / name).lstat()
        assert stat.S_ISDIR(status.st_mode) and (status.st_uid, stat.S_IMODE(status.st_mode)) == (
            54321,
            0o700,
        )


def test_the_working_folder_is_given_away_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the account can enter it, everything inside could be exchanged."""
    if os.geteuid() != 0:
        missing("root, who can change owners,")
    given: list[str] = []
    fchown = os.fchown

    def recorded(fd: int, uid: int, gid: int) -> None:
        given.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fchown(fd, uid, gid)

    monkeypatch.setattr(os, "fchown", recorded)
    folder = tmp_path / "aa" / "aa-1"
    prepare(folder, ACCOUNT)
    assert given == [
        f"{folder}/work/.pai/output",
        f"{folder}/work/.pai",
        f"{folder}/work",
        f"{folder}/task.sh",
    ]


def test_script_that_became_a_link_is_refused(tmp_path: Path, victim: Path) -> None:
    folder = tmp_path / "aa" / "aa-1"
    folder.mkdir(parents=True)
    (victim / "file").chmod(0o600)
    (folder / attempt_folder.SCRIPT).symlink_to(victim / "file")
    with pytest.raises(OSError, match="symbolic links"):
        prepare(folder, None)
    assert (victim / "file").read_text() == "kept"


@pytest.mark.parametrize("link", ["work/.pai", "shared/stdout", "work", "shared"])
def test_links_of_a_container_are_not_followed(tmp_path: Path, victim: Path, link: str) -> None:
    before = states(victim)
    folder = tmp_path / "aa" / "aa-1"
    options = container_spec.ContainerOptions(
        Client("podman", "/usr/bin/podman", environment={}), "cluster", Path("/r/p.pyz")
    )
    container_spec.prepare(folder, TASK, "image", {}, options)
    attempt_folder.folder_size.remove_tree(folder / link)
    (folder / link).symlink_to(victim)
    container_spec.prepare(folder, TASK, "image", {}, options)
    assert states(victim) == before
    assert sorted(os.listdir(victim)) == ["file", "output"]
    assert not (folder / link).is_symlink()


def test_processes_of_a_container_are_limited(tmp_path: Path) -> None:
    client = Client("podman", "/usr/bin/podman", environment={})
    options = container_spec.ContainerOptions(client, "cluster", Path("/r/p.pyz"), max_processes=77)
    container_spec.prepare(tmp_path / "aa-1", TASK, "image", {}, options)
    argv = json.loads((tmp_path / "aa-1" / "spec.json").read_text())["argv"]
    assert argv[argv.index("--pids-limit") + 1] == "77"


@pytest.mark.parametrize("link", ["session", "shared", "shared/session", "config"])
def test_secrets_are_not_removed_through_links_of_the_task(tmp_path: Path, link: str) -> None:
    """On Slurm the whole folder belongs to the task's account, and the server is root."""
    folder, victim = tmp_path / "aa-1", tmp_path / "victim"
    for kept in (victim / "session/inner", victim / "config"):
        kept.mkdir(parents=True)
    for file in ("session/environment", "session/inner/file", "config/env.sh", "environment"):
        (victim / file).write_text("kept")
    (folder / link).parent.mkdir(parents=True)
    (folder / link).symlink_to(victim / "session" if link == "session" else victim)
    attempt_folder.remove_secrets(folder)
    kept_files = sorted(str(path.relative_to(victim)) for path in victim.rglob("*") if path.is_file())
    assert kept_files == ["config/env.sh", "environment", "session/environment", "session/inner/file"]


@pytest.mark.parametrize("name", ["session", "shared/session", "config"])
def test_secrets_are_removed_from_a_folder_that_the_task_has_filled(tmp_path: Path, name: str) -> None:
    """Without the time that it takes to remove the rest: the server does nothing else meanwhile."""
    secrets, filling = tmp_path / name, tmp_path / name / "filling"
    filling.mkdir(parents=True)
    for folder in (secrets, filling):
        for number in range(5000):
            (folder / str(number)).touch()
    (secrets / "environment").write_text("secret")
    attempt_folder.remove_secrets(tmp_path)
    assert not (secrets / "environment").exists()
    assert len(list(filling.iterdir())) == 5000 and len(list(secrets.iterdir())) > 4000


def test_folders_with_secrets_alone_are_removed(tmp_path: Path) -> None:
    for name in ("config/env.sh", "session/environment", "shared/session/complete", "spec.json", "kept"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("secret")
    attempt_folder.remove_secrets(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "shared"]
    assert list((tmp_path / "shared").iterdir()) == []
    attempt_folder.remove_secrets(tmp_path / "missing")
