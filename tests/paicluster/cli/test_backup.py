"""`paicluster backup --with-files` of folders that hostile jobs write to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tarfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.cli import main
from pairuntime.local_files.remove_tree import remove_tree
from support.hostile_tar import MEMBER_KINDS, write_endless_header
from support.prepared_database import prepare_database

KEY = b"canary-key-of-the-cluster"

# Exchanges folders and files of a job for links to the keys, and back, as fast as it can.
SWAP = """
import ctypes, os, sys
home, work = sys.argv[1:]
exchange = ctypes.CDLL(None, use_errno=True).renameat2
pairs = []
for number in range(40):
    folder, link = f"{work}/folder{number}", f"{work}/.link{number}"
    os.mkdir(folder)
    os.symlink(f"{home}/keys", link)
    pairs.append((folder.encode(), link.encode()))
    file, link = f"{work}/file{number}", f"{work}/.file-link{number}"
    open(file, "wb").write(b"x" * 100)
    os.symlink(f"{home}/keys/sealing", link)
    pairs.append((file.encode(), link.encode()))
    open(f"{folder}/sealing", "wb").write(b"y" * 100)
print("ready", flush=True)
while True:
    for one, other in pairs:
        exchange(-100, one, -100, other, 2)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a cluster that does not run, with a key and the folder of one attempt."""
    made = tmp_path / "home"
    prepare_database(made)
    (made / "keys").mkdir(mode=0o700)
    (made / "keys" / "sealing").write_bytes(KEY)
    work_of(made).mkdir(parents=True)
    return made


def work_of(home: Path) -> Path:
    return home / "tasks" / "ab" / "abcd" / "work"


WORK = "tasks/ab/abcd/work"


def back_up(home: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, str]:
    """A backup with files; its path, and what was printed about files that were not saved."""
    saved = home.parent / "saved.tar"
    capsys.readouterr()
    assert main(["backup", "--home", str(home), "--with-files", str(saved)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Saved "), said
    return saved, said.err


def contents(saved: Path) -> dict[str, bytes | None]:
    """By name, the content of each file; None of what is not a file."""
    found: dict[str, bytes | None] = {}
    with tarfile.open(saved) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            found[member.name] = None if file is None else file.read()
    return found


@pytest.fixture
def swapped(home: Path) -> Iterator[Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", SWAP, str(home), str(work_of(home))], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield home
    process.kill()
    process.wait()
    process.stdout.close()


def test_names_exchanged_for_links_to_the_keys_are_never_followed(
    swapped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(12):
        saved, _ = back_up(swapped, capsys)
        leaked = [
            name
            for name, content in contents(saved).items()
            if content is not None and KEY in content and not name.startswith("keys/")
        ]
        assert leaked == []


def test_backup_that_a_job_disturbs_can_be_restored(
    swapped: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    saved, _ = back_up(swapped, capsys)
    assert main(["restore", "--home", str(tmp_path / "new"), str(saved)]) == 0
    assert (tmp_path / "new" / "keys" / "sealing").read_bytes() == KEY


def test_links_are_saved_as_links_and_restored_after_everything_else(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    work = work_of(home)
    (work / "latest").symlink_to("checkpoint")
    (work / "checkpoint").write_text("weights")
    (work / "outside").symlink_to("/etc")
    saved, said = back_up(home, capsys)
    assert said == ""
    # An archive in which a file lies below a link, as an exchange in the wrong moment makes it.
    with tarfile.open(saved, "a") as archive:
        archive.add(__file__, f"{WORK}/outside/planted")
    assert main(["restore", "--home", str(tmp_path / "new"), str(saved)]) == 0
    restored = work_of(tmp_path / "new")
    assert (restored / "latest").readlink() == Path("checkpoint")
    assert (restored / "latest").read_text() == "weights"
    assert not (restored / "outside").is_symlink()
    assert (restored / "outside" / "planted").is_file()


def test_files_with_several_links_are_listed_and_not_saved(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.link(home / "keys" / "sealing", work_of(home) / "mine")
    saved, said = back_up(home, capsys)
    assert f"{WORK}/mine: it has several names (hard links)" in said
    found = contents(saved)
    assert f"{WORK}/mine" not in found
    assert found["keys/sealing"] == KEY
    assert f"{WORK}/mine" in (found["not-saved"] or b"").decode()


@pytest.fixture
def remove_deep_trees(tmp_path: Path) -> Iterator[None]:
    """pytest itself cannot remove them."""
    yield
    fd = os.open(tmp_path, os.O_RDONLY)
    for name in os.listdir(tmp_path):
        remove_tree(fd, name)
    os.close(fd)


@pytest.mark.usefixtures("remove_deep_trees")
def test_deep_trees_and_long_paths_do_not_break_a_backup(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    work = work_of(home)
    (work / "before").touch()
    for name in ("d", "n" * 250):
        fd = os.open(work, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir(name, dir_fd=fd)
            inner = os.open(name, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inner
        os.close(fd)
    saved, said = back_up(home, capsys)
    assert "it is nested more than 200 folders deep" in said
    assert "its path is longer than 3000 bytes" in said
    assert f"{WORK}/before" in contents(saved)
    assert main(["restore", "--home", str(tmp_path / "new"), str(saved)]) == 0


def test_sparse_files_stay_sparse(home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = work_of(home) / "data.mdb"
    with file.open("wb") as f:
        f.truncate(1 << 40)
        for offset in (0, 5 << 30, (1 << 40) - 4):
            f.seek(offset)
            f.write(b"data")
    (work_of(home) / "hole").touch()
    os.truncate(work_of(home) / "hole", 1 << 40)
    (work_of(home) / "zz-after").write_text("after")
    started = time.monotonic()
    saved, said = back_up(home, capsys)
    assert said == ""
    assert saved.stat().st_size < 2 << 20
    assert main(["restore", "--home", str(tmp_path / "new"), str(saved)]) == 0
    restored = work_of(tmp_path / "new")
    assert time.monotonic() - started < 30
    assert (restored / "zz-after").read_text() == "after"
    for name in ("data.mdb", "hole"):
        status = (restored / name).stat()
        assert status.st_size == 1 << 40
        assert status.st_blocks * 512 < 1 << 20
    with (restored / "data.mdb").open("rb") as f:
        for offset in (0, 5 << 30, (1 << 40) - 4):
            f.seek(offset)
            assert f.read(4) == b"data"
    # Other tar programs read it, too.
    listed = subprocess.run(["tar", "-tvf", saved], capture_output=True, text=True, check=True)
    assert str(1 << 40) in listed.stdout


def test_sparse_file_of_very_many_parts_is_listed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (work_of(home) / "comb").open("wb") as f:
        for number in range(10_001):
            f.seek(number * 16384)
            f.write(b"x")
        f.truncate(1 << 40)
    saved, said = back_up(home, capsys)
    assert "comb: it is a sparse file of more than 10000 parts" in said
    assert saved.stat().st_size < 2 << 20


def test_pipes_and_sockets_are_listed_and_names_are_escaped(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = work_of(home)
    os.mkfifo(work / "pipe\x1b[2Jclears the screen")
    os.mkfifo(work / os.fsdecode(b"not-utf8-\xff"))
    monkeypatch.chdir(work)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        saved, said = back_up(home, capsys)
    assert "\x1b" not in said
    assert r"pipe\x1b[2Jclears the screen: it is a pipe, a socket or a device" in said
    assert f"{WORK}/socket: it is a pipe, a socket or a device" in said
    assert b"not-utf8-" in (contents(saved)["not-saved"] or b"")


def test_of_many_files_that_are_not_saved_a_few_are_printed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(1500):
        os.mkfifo(work_of(home) / f"pipe{number}")
    saved, said = back_up(home, capsys)
    lines = said.splitlines()
    assert lines[0] == "1500 files were not saved:"
    assert lines[-1] == "The file not-saved in the backup names the first 1000."
    assert len(lines) < 20
    assert len((contents(saved)["not-saved"] or b"").splitlines()) == 1001


def test_huge_times_names_and_attributes_are_restored(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = work_of(home) / ("long" * 60)
    file.write_text("content")
    undecodable = work_of(home) / os.fsdecode(b"\xff\xfe")
    undecodable.write_text("content")
    os.utime(file, ns=((1 << 62) - 1, (1 << 62) - 1))
    os.setxattr(file, "user.binary", b"\xff\xfe")
    os.setxattr(file, "user.plain", b"value")
    saved, _ = back_up(home, capsys)
    assert main(["restore", "--home", str(tmp_path / "new"), str(saved)]) == 0
    restored = work_of(tmp_path / "new")
    assert (restored / file.name).read_text() == "content"
    assert (restored / undecodable.name).read_text() == "content"
    assert os.getxattr(restored / file.name, "user.plain") == b"value"


def test_backup_writes_through_no_link_beside_its_target(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "saved.tar.part").symlink_to(victim)
    back_up(home, capsys)
    assert victim.read_text() == "precious"


def test_files_with_secrets_of_attempts_are_not_in_a_backup(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = work_of(home).parent
    for name in ("spec.json", "task.sh", "env", "config/env.sh", "config/task.sh", "claim", "all.0"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("swordfish" if name not in ("claim", "all.0") else "kept")
    (work_of(home) / "task.sh").write_text("the user's own")
    saved, said = back_up(home, capsys)
    assert said == ""
    found = contents(saved)
    assert not [name for name, content in found.items() if b"swordfish" in (content or b"")]
    kept = {name.removeprefix("tasks/ab/abcd/") for name, content in found.items() if content is not None}
    assert {"claim", "all.0", "work/task.sh"} <= kept


def _link(kind: bytes, name: str, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize("has_filters", [True, False])
@pytest.mark.parametrize(
    "member",
    [
        _link(tarfile.SYMTYPE, "keys/../../planted", "/etc"),
        _link(tarfile.DIRTYPE, "keys/../../planted"),
        _link(tarfile.LNKTYPE, "keys/planted", "../canary"),
        _link(tarfile.FIFOTYPE, "keys/planted"),
        _link(tarfile.CHRTYPE, "keys/planted"),
    ],
    ids=["link outside", "folder outside", "hard link", "pipe", "device"],
)
def test_archive_with_what_no_backup_has_is_refused(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    member: tarfile.TarInfo,
    has_filters: bool,
) -> None:
    if not has_filters:  # as in Python 3.11.2
        monkeypatch.delattr(tarfile, "tar_filter", raising=False)
    saved, _ = back_up(home, capsys)
    with tarfile.open(saved, "a") as archive:
        archive.addfile(member)
    new = tmp_path / "below" / "new"
    assert main(["restore", "--home", str(new), str(saved)]) == 1
    assert "is not a backup of a cluster, or it is damaged" in capsys.readouterr().err
    assert list(tmp_path.rglob("planted")) == [] and not new.exists()


@pytest.mark.parametrize("kind", MEMBER_KINDS)
def test_header_of_gigabytes_is_no_backup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: bytes
) -> None:
    saved = write_endless_header(tmp_path / "saved.tar", kind)
    tracemalloc.start()
    try:
        assert main(["restore", "--home", str(tmp_path / "new"), str(saved)]) == 1
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert "is not a backup of a cluster, or it is damaged" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("has_filters", [True, False])
def test_restored_files_have_their_owners_and_modes(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_filters: bool,
) -> None:
    if not has_filters:
        monkeypatch.delattr(tarfile, "tar_filter", raising=False)
    script = work_of(home) / "run.sh"
    script.write_text("true")
    script.chmod(0o750)
    os.chown(script, 1234, 1235)
    os.chown(work_of(home), 1234, 1235)
    saved, _ = back_up(home, capsys)
    assert main(["restore", "--home", str(tmp_path / "new"), str(saved)]) == 0
    restored = work_of(tmp_path / "new")
    owners = [(path.stat().st_uid, path.stat().st_gid) for path in (restored, restored / "run.sh")]
    assert owners == [(1234, 1235)] * 2
    assert (restored / "run.sh").stat().st_mode & 0o7777 == 0o750
