"""Storages that are mounted for one task: where they may be, and what their end says about lost files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pairuntime.fuse import mount_point
from pairuntime.supervisor import attempt, exit_record, storage_mounts
from pairuntime.supervisor.storage_mounts import FILES_LOST, FILES_LOST_STATUS, StorageMounts

OWNER = (os.getuid(), os.getgid())
SERVES = 'read -r request; echo "$request" > {seen}; echo mounted; cat; exit {status}'
IGNORES_STOP = "read -r _; echo mounted; while :; do sleep 0.01; done"

Make = Callable[..., StorageMounts]


@pytest.fixture(name="host")
def folder_of_mounts(tmp_path: Path) -> Path:
    """Stands for /mnt."""
    folder = tmp_path / "mnt"
    folder.mkdir()
    return folder


@pytest.fixture(name="make")
def mounts_factory(tmp_path: Path) -> Make:
    def make(
        *targets: str,
        program: str = "",
        status: int = 0,
        host_folder: Path = tmp_path / "mnt",
        timeouts: Mapping[str, float] = MappingProxyType({}),
        **spec: Any,
    ) -> StorageMounts:
        attempt = tmp_path / "home/tasks/attempt"
        attempt.mkdir(parents=True, exist_ok=True)
        script = program or SERVES.format(status=status, seen=tmp_path / "request")
        folder = tmp_path / "home/mounts/attempt"
        complete = {
            "argv": ["/bin/sh", "-c", script],
            "env": {"PATH": os.environ["PATH"]},
            "folder": str(folder),
            "mounts": [
                {
                    "target": target,
                    "folder": str(folder / str(number)),
                    "variable": f"PAI_MOUNT_{number}",
                    "request": {"name": f"sets{number}"},
                }
                for number, target in enumerate(targets)
            ],
            **spec,
        }
        return StorageMounts(complete, str(attempt), str(host_folder), **timeouts)

    return make


def never() -> bool:
    return False


def always() -> bool:
    return True


def problem_of(mounts: StorageMounts) -> str:
    problem = mounts.mount(True, OWNER, never)
    if not problem:
        mounts.unmount(never)
    return problem


def test_storage_is_mounted_directly_below_the_folder_of_mounts(host: Path, make: Make) -> None:
    for path in (host / "sets", f"{host}//sets/"):
        assert problem_of(make(str(path))) == ""
    (host / "link").symlink_to(host / "sets")
    (host / "file").write_text("")
    (host / "full").mkdir()
    (host / "full/file").write_text("")
    outside = f": without a container, storages are directly below {host}."
    for path, reason in {
        "/etc/sets": outside,
        "/": outside,
        str(host): outside,
        f"{host}/..": outside,
        f"{host}/.": outside,
        f"{host}/a/../sets": outside,
        f"{host}/link": ": something else is there.",
        f"{host}/file": ": something else is there.",
        f"{host}/full": ": something else is there.",
    }.items():
        expected = f"The storage sets0 cannot be mounted at {path}{reason} Change its mountPath."
        assert problem_of(make(path)) == expected
    assert problem_of(make(f"{host}/two", f"{host}//two")) == (
        f"The storage sets1 cannot be mounted at {host}//two, where another storage of the job is. "
        "Change its mountPath."
    )


def test_storage_never_hides_programs_or_the_cluster(
    host: Path, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = ", where the cluster has its files."
    assert reason in problem_of(make(f"{host}/data", protected=[f"{host}/data/home"]))
    assert reason in problem_of(make(f"{host}/data", protected=[f"{host}/data"]))
    assert problem_of(make(f"{host}/data", protected=[f"{host}/data-of-others"])) == ""
    assert reason in problem_of(make(f"{host}/data", env={"LD_LIBRARY_PATH": f"/usr/lib:{host}/data/lib"}))
    for name in ("prefix", "base_prefix", "executable"):
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, f"{host}/data/miniconda")
            assert reason in problem_of(make(f"{host}/data"))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, f"{host}/data/site-packages"])
        assert reason in problem_of(make(f"{host}/data"))
        # Also where the user writes the path with a link.
        linked = tmp_path / "linked"
        linked.symlink_to(host)
        assert reason in problem_of(make(f"{linked}/data", host_folder=linked))


def test_mount_gets_the_path_that_was_checked(host: Path, make: Make, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.symlink_to(host)
    assert problem_of(make(f"{linked}/sets", host_folder=linked)) == ""
    request = json.loads((tmp_path / "request").read_text())
    assert (request["folder"], request["shown_at"]) == (f"{host}/sets", f"{host}/sets")


def test_end_tells_whether_files_are_lost(host: Path, make: Make) -> None:
    kept = make(f"{host}/sets")
    assert kept.mount(True, OWNER, never) == ""
    assert kept.unmount(never)
    assert "".join(kept.take_messages()) == ""
    lost = make(f"{host}/sets", status=FILES_LOST_STATUS)
    assert lost.mount(True, OWNER, never) == ""
    assert not lost.unmount(never)
    assert lost.take_messages()[-1] == FILES_LOST


def test_end_does_not_wait_for_a_storage_that_never_answers(host: Path, make: Make) -> None:
    mounts = make(f"{host}/sets", program=IGNORES_STOP, timeouts={"stopped_timeout_s": 0.1})
    assert mounts.mount(True, OWNER, never) == ""
    began = time.monotonic()
    assert not mounts.unmount(always)
    assert time.monotonic() - began < storage_mounts._STOP_TIMEOUT_S / 2
    messages = mounts.take_messages()
    assert messages[0] == "The storage sets0 did not accept the last files in time.\n"
    assert messages[-1] == FILES_LOST


def test_process_that_cannot_be_killed_does_not_keep_the_supervisor(
    host: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts = {"stopped_timeout_s": 0.1, "kill_timeout_s": 0.1}
    mounts = make(f"{host}/sets", program=IGNORES_STOP, timeouts=timeouts)
    assert mounts.mount(True, OWNER, never) == ""
    (pid,) = mounts.pids() - set(storage_mounts.process_tree.descendants(next(iter(mounts._names))))
    with monkeypatch.context() as patch:
        patch.setattr(storage_mounts.process_tree, "send", lambda pid, signum: None)
        assert not mounts.unmount(always)
    os.kill(pid, 9)
    os.waitpid(pid, 0)


def test_leftovers_are_found_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "real/mounts/attempt"
    (real / "0").mkdir(parents=True)
    (real / "1").mkdir()
    (real / "1/written").write_text("")
    (real / "0" / storage_mounts.marker_of("attempt")).write_text("")
    (tmp_path / "home").symlink_to("real")
    detached: list[str] = []
    mounted = {str(real / "0"): "fuse.pai"}

    def detach(place: str) -> None:
        detached.append(place)
        mounted.pop(place)

    monkeypatch.setattr(mount_point, "mounted_folders", lambda: dict(mounted))
    monkeypatch.setattr(mount_point, "detach", detach)
    left = storage_mounts.remove_leftovers(
        f"{tmp_path}/home/mounts/attempt", storage_mounts.marker_of("attempt")
    )
    assert detached == [str(real / "0")]
    assert left == [str(real / "1")]
    assert not (real / "0").exists() and (real / "1/written").exists()


def test_what_killed_supervisors_left_is_removed_by_the_next(make: Make, tmp_path: Path) -> None:
    node = tmp_path / "node"
    kept = make("/data", in_container=True, folder=str(node / "mounts-running"), prefix="mounts-")
    kept._spec["mounts"][0]["folder"] = str(node / "mounts-running/0")
    assert kept.mount(False, OWNER, never) == ""
    hosts = dict.fromkeys(("mounts-killed.5f", "mounts-new", "others"), os.uname().nodename)
    hosts["mounts-elsewhere"] = "another-node"
    for name, host in hosts.items():
        (node / name / "0").mkdir(parents=True)
        (node / name / "host").write_text(host)
    (node / "mounts-unknown/0").mkdir(parents=True)
    (node / "mounts-empty").mkdir()
    (node / "mounts-killed.5f/0" / storage_mounts.marker_of("killed")).write_text("")
    (node / "mounts-file").write_text("")
    left = {"mounts-running", "mounts-file", "mounts-elsewhere", "mounts-unknown", "others"}
    for name in (*left, "mounts-killed.5f", "mounts-empty"):
        os.utime(node / name, (0, 0))
    left.add("mounts-new")
    storage_mounts.remove_stale(str(node), "mounts-")
    assert {path.name for path in node.iterdir()} == left
    assert kept.unmount(never)
    assert {path.name for path in node.iterdir()} == left - {"mounts-running"}


def test_folder_that_another_account_can_change_is_not_used(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "home/mounts/attempt"
    (folder / "0").mkdir(parents=True)
    environment: dict[str, str] = {}

    def problem() -> str:
        mounts = make("/mnt/sets")
        found = mounts.mount(False, OWNER, never)
        if not found:
            mounts.unmount(never)
        return found

    folder.chmod(0o770)
    assert problem() == f"The folder {folder} cannot be used: other accounts can write to it."
    folder.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: OWNER[0] + 1)
        assert problem() == f"The folder {folder} cannot be used: another account has created it."
        storage_mounts.set_variables(make("/mnt/sets")._spec, environment)
    assert environment == {}
    assert (folder / "0").is_dir()  # nothing of others is removed
    (folder / "0").chmod(0o770)
    assert problem() == f"The folder {folder}/0 cannot be used: other accounts can write to it."
    folder.mkdir()
    (folder / "0").symlink_to(tmp_path)
    assert problem() == f"The folder {folder}/0 cannot be used: another account has created it."
    (folder / "0").unlink()
    assert problem() == ""


def test_mount_point_that_every_account_can_replace_is_not_used(
    host: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = host / "sets"
    host.chmod(0o777)
    assert problem_of(make(str(place))) == f"The folder {place} cannot be used: every account can replace it."
    host.chmod(0o1777)
    assert problem_of(make(str(place))) == ""
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", lambda path: os.stat_result((0o40755, 0, 0, 1, 4321, 0, 0, 0, 0, 0)))
        found = problem_of(make(str(place)))
    assert found == f"The folder {place} cannot be used: every account can replace it."
    host.chmod(0o755)
    # Created between the check and the mount.
    place.rmdir()
    make_folders = os.makedirs

    def make_link(path: str, **options: Any) -> None:
        Path(path).symlink_to(host.parent)
        make_folders(path, **options)

    monkeypatch.setattr(os, "makedirs", make_link)
    assert problem_of(make(str(place))) == f"The folder {place} cannot be used: it is no folder."


def test_program_that_is_missing_is_a_sentence(host: Path, make: Make) -> None:
    mounts = make(f"{host}/sets", argv=["/none/python"], hint="Install it.")
    assert mounts.mount(True, OWNER, never) == (
        "The storage sets0 cannot be mounted: /none/python cannot be started (no such file or directory). "
        "Install it."
    )


def test_python_without_ctypes_is_a_sentence(make: Make, tmp_path: Path) -> None:
    spec = {
        "attempt": "uid",
        "argv": ["/bin/sh", "-c", "echo started"],
        "cwd": str(tmp_path),
        "env": {},
        "storage_mounts": make("/mnt/sets")._spec,
    }
    (tmp_path / attempt.SPEC).write_text(json.dumps(spec))
    program = (
        "import sys; sys.modules['ctypes'] = None\n"
        "from pairuntime.supervisor import attempt_factory, process_tree\n"
        "attempt_factory.supervise(sys.argv[1], process_tree.Cgroup(process_tree.PROC, ''))"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=90)
    sentence = f"Storages cannot be mounted: {sys.executable} has no ctypes."
    ended = exit_record.read(str(tmp_path))
    assert ended is not None and ended["start_error"] == sentence
    assert (tmp_path / "stderr.0").read_text() == sentence + "\n"
    assert not (tmp_path / "stdout.0").exists()


def test_stop_does_not_wait_for_a_storage_that_is_not_mounted_yet(host: Path, make: Make) -> None:
    mounts = make(f"{host}/sets", program="trap '' TERM; while :; do sleep 0.01; done")
    stops = iter((False, False, True))
    began = time.monotonic()
    assert mounts.mount(True, OWNER, lambda: next(stops, True)) == ""
    assert time.monotonic() - began < storage_mounts._STOPPED_TIMEOUT_S / 2
    assert not mounts.pids() and not mounts.take_messages()


def test_end_does_not_wait_longer_than_the_supervisor_has(host: Path, make: Make) -> None:
    mounts = make(f"{host}/sets", program=IGNORES_STOP)
    assert mounts.mount(True, OWNER, never) == ""
    began = time.monotonic()
    assert not mounts.unmount(always, always)
    assert time.monotonic() - began < storage_mounts._STOPPED_TIMEOUT_S / 2


def test_files_beside_the_storage_are_lost_files(make: Make, tmp_path: Path) -> None:
    mounts = make("/data", in_container=True)
    assert mounts.mount(False, OWNER, never) == ""
    folder = tmp_path / "home/mounts/attempt/0"
    (marker,) = folder.iterdir()
    assert marker.name == storage_mounts.marker_of("attempt")
    (folder / "written").write_text("")
    assert not mounts.unmount(never)
    assert mounts.take_messages()[-2:] == [f"Files are in {folder} and not on the storage.\n", FILES_LOST]
    assert [path.name for path in folder.iterdir()] == ["written"]


def test_variables_name_the_folder_where_only_root_could_mount_at_the_path(
    make: Make, tmp_path: Path
) -> None:
    mounts = make("/mnt/sets")
    folder = tmp_path / "home/mounts/attempt"
    environment = {"PAI_MOUNT_0": "/mnt/sets"}
    storage_mounts.set_variables(mounts._spec, environment)
    assert environment == {"PAI_MOUNT_0": "/mnt/sets"}
    assert mounts.mount(False, OWNER, never) == ""
    storage_mounts.set_variables(mounts._spec, environment)
    assert environment == {"PAI_MOUNT_0": f"{folder}/0"}
    encoded = {b"PAI_MOUNT_0": b"/mnt/sets"}
    storage_mounts.set_variables(mounts._spec, encoded)
    assert encoded == {b"PAI_MOUNT_0": os.fsencode(f"{folder}/0")}
    assert mounts.unmount(never)
    assert not folder.exists()
