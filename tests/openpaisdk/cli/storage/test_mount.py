"""`pai mount` and `pai unmount`: files of a storage as a folder, through the kernel."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support.cli_user import until
from support.fuse import fuse_fixture  # noqa: F401

needs_fuse = pytest.mark.usefixtures("fuse")

NUMBERS = itertools.count()


def is_mounted(folder: Path) -> bool:
    return f" {folder} " in Path("/proc/self/mountinfo").read_text()


@contextmanager
def mounting(user, address: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A running `pai mount`, and its folder."""
    folder = user.project / f"mount{next(NUMBERS)}"
    folder.mkdir()
    process = user.begin("mount", *options, address, folder.name)
    try:
        line = process.stdout.readline()
        assert line == f"Mounted {address} on {folder}\n", line + process.stderr.read()
        yield process, folder
    finally:
        process.kill()
        process.communicate()
        until(lambda: not is_mounted(folder))


@pytest.fixture(name="there")
def folder_on_the_storage(user, tmp_path) -> str:
    """An empty folder of the storage."""
    address = f"pai://local/0/mounts/{tmp_path.name}"
    assert user.pai("makedir", address).status == 0
    return address


@pytest.fixture(name="mounted")
def mounted_fixture(user, there) -> Iterator[Path]:
    with mounting(user, there) as (_, folder):
        yield folder


def names(user, address: str) -> list[str]:
    done = user.pai("listdir", address)
    assert done.status == 0, done
    return done.out.split()


def fails_with(number: int):
    return pytest.raises(OSError, match=rf"\[Errno {number}\]")


@needs_fuse
def test_files_of_the_storage_are_read_like_any_others(user, there, mounted: Path) -> None:
    content = os.urandom(3_000_001)
    (user.project / "up/deep").mkdir(parents=True)
    (user.project / "up/deep/random").write_bytes(content)
    (user.project / "up/empty").touch()
    assert user.pai("copy", "up", there).status == 0
    assert (mounted / "up/deep/random").read_bytes() == content
    with (mounted / "up/deep/random").open("rb") as f:
        f.seek(2_999_990)
        assert f.read(100) == content[2_999_990:]
    assert (mounted / "up/empty").read_bytes() == b""
    assert [(path, folders, sorted(files)) for path, folders, files in os.walk(mounted / "up")] == [
        (str(mounted / "up"), ["deep"], ["empty"]),
        (str(mounted / "up/deep"), [], ["random"]),
    ]
    before, after = (user.project / "up/deep/random").stat(), (mounted / "up/deep/random").stat()
    assert (before.st_size, int(before.st_mtime), before.st_mode) == (
        after.st_size,
        int(after.st_mtime),
        after.st_mode,
    )
    with fails_with(errno.ENOENT):
        (mounted / "missing").read_bytes()


@needs_fuse
def test_file_is_on_the_storage_when_it_is_closed_and_not_before(user, there, mounted: Path) -> None:
    with (mounted / "new").open("w") as f:
        f.write("a" * 100_000)
        f.flush()
        os.fsync(f.fileno())
        assert (mounted / "new").stat().st_size == 100_000  # programs on this machine see it
        assert os.listdir(mounted) == ["new"]
        assert names(user, there) == []
    assert names(user, there) == ["new"]
    with (mounted / "new").open("w") as f:
        f.write("b")
        f.flush()
        assert user.pai("copy", f"{there}/new", "-").out == "a" * 100_000
    assert user.pai("copy", f"{there}/new", "-").out == "b"


@needs_fuse
def test_output_of_several_programs_of_a_shell_is_one_file(user, there, mounted: Path) -> None:
    shell = subprocess.Popen(
        ["bash", "-c", f"{{ /bin/echo one; read -r _; /bin/echo two; }} > {mounted}/log"],
        stdin=subprocess.PIPE,
    )
    until(lambda: (mounted / "log").exists() and (mounted / "log").stat().st_size == 4)
    assert names(user, there) == []
    shell.communicate(b"\n")
    until(lambda: names(user, there) == ["log"])
    assert user.pai("copy", f"{there}/log", "-").out == "one\ntwo\n"


@needs_fuse
def test_files_are_changed_in_place(user, there, mounted: Path) -> None:
    file = mounted / "file"
    file.write_text("0123456789")
    with file.open("a") as f:
        f.write("abc")
    with file.open("r+") as f:
        f.seek(3)
        f.write("X")
    os.truncate(file, 12)
    assert user.pai("copy", f"{there}/file", "-").out == "012X456789ab"
    assert file.read_text() == "012X456789ab"
    os.utime(file)  # accepted, as `touch` does it
    file.chmod(0o600)


@needs_fuse
def test_names_are_created_renamed_and_removed(user, there, mounted: Path) -> None:
    (mounted / "folder").mkdir()
    (mounted / "folder/ä b").write_text("first")
    (mounted / "other").write_text("second")
    (mounted / "other").rename(mounted / "folder/ä b")  # replaces it
    (mounted / "folder").rename(mounted / "renamed")
    assert user.pai("copy", f"{there}/renamed/ä b", "-").out == "second"
    with fails_with(errno.ENOTEMPTY):
        (mounted / "renamed").rmdir()
    with fails_with(errno.EEXIST):
        (mounted / "renamed").mkdir()
    with fails_with(errno.ENOTDIR):
        (mounted / "renamed/ä b/below").mkdir()
    with fails_with(errno.EISDIR):
        (mounted / "renamed").write_text("")
    with fails_with(errno.ENOENT):
        (mounted / "none").unlink()
    (mounted / "renamed/ä b").unlink()
    (mounted / "renamed").rmdir()
    assert os.listdir(mounted) == [] and names(user, there) == []


@needs_fuse
def test_file_deleted_or_renamed_while_it_is_written(user, there, mounted: Path) -> None:
    with (mounted / "deleted").open("w") as f:
        f.write("x")
        (mounted / "deleted").unlink()
    with (mounted / "before").open("w") as f:
        f.write("moved")
        (mounted / "before").rename(mounted / "after")
    assert names(user, there) == ["after"]
    assert (mounted / "after").read_text() == "moved"


@needs_fuse
def test_change_by_another_user_of_the_storage_is_seen(user, there, mounted: Path) -> None:
    user.write(file="one")
    assert user.pai("copy", "file", f"{there}/file").status == 0
    assert (mounted / "file").read_text() == "one"
    user.write(file="and two")
    assert user.pai("copy", "file", f"{there}/file").status == 0
    assert (mounted / "file").read_text() == "and two"
    assert user.pai("remove", "--yes", f"{there}/file").status == 0
    until(lambda: not (mounted / "file").exists())


@needs_fuse
def test_read_only_mount_refuses_every_change(user, there) -> None:
    user.write(file="one")
    assert user.pai("copy", "file", f"{there}/file").status == 0
    with mounting(user, there, "--read-only") as (_, mounted):
        assert (mounted / "file").read_text() == "one"
        for change in (
            lambda: (mounted / "new").write_text(""),
            lambda: (mounted / "file").write_text(""),
            lambda: (mounted / "file").unlink(),
            lambda: (mounted / "folder").mkdir(),
        ):
            with fails_with(errno.EROFS):
                change()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)]
)
@needs_fuse
def test_signal_unmounts(user, there, number: signal.Signals, status: int) -> None:
    with mounting(user, there) as (process, mounted):
        (mounted / "file").write_text("complete")
        process.send_signal(number)
        assert process.wait(60) == status
        until(lambda: not is_mounted(mounted))
        assert os.listdir(mounted) == []
    assert user.pai("copy", f"{there}/file", "-").out == "complete"


@needs_fuse
def test_file_open_for_writing_when_the_mount_ends_is_reported(user, there) -> None:
    with mounting(user, there) as (process, mounted):
        fd = os.open(mounted / "open", os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"x")
        process.terminate()
        _, err = process.communicate(timeout=60)
        assert err == f"pai: {mounted}/open was still open for writing and is lost.\n"
        with fails_with(errno.ENOTCONN):
            os.close(fd)
        assert names(user, there) == []


@needs_fuse
def test_background_and_unmount(user, there) -> None:
    folder = user.project / "background"
    folder.mkdir()
    done = user.pai("mount", "--background", there, "background")
    assert (done.status, done.out, done.err) == (0, f"Mounted {there} on {folder}\n", "")
    (folder / "file").write_text("x")
    again = user.pai("mount", "--background", there, "background")
    assert again.status == 2 and "background is mounted already.\n" in again.err, again
    assert "Unmount it first: pai unmount background\n" in again.err, again
    with (folder / "file").open():
        busy = user.pai("unmount", "background")
        assert busy.status == 2 and "background is in use" in busy.err, busy
    done = user.pai("unmount", "background")
    assert (done.status, done.out, done.err) == (0, "", "") and not is_mounted(folder)
    assert names(user, there) == ["file"]
    missing = user.pai("unmount", "background")
    assert missing.status == 2 and missing.err == "pai: background is not mounted.\n", missing


@needs_fuse
def test_what_a_mount_in_the_background_could_not_write_is_in_a_private_file(user, there) -> None:
    folder = user.project / "lost"
    folder.mkdir()
    assert user.pai("mount", "--background", there, str(folder)).status == 0
    fd = os.open(folder / "open", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"x")
    os.kill(background_process(folder), signal.SIGTERM)
    log = user.home / ".openpai/mount.log"
    lost = f" {folder}/open was still open for writing and is lost.\n"
    until(lambda: lost in log.read_text())
    assert log.stat().st_mode & 0o777 == 0o600
    until(lambda: not is_mounted(folder))
    with suppress(OSError):  # which error depends on whether the process has ended already
        os.close(fd)


def background_process(folder: Path) -> int:
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            words = command.read_bytes().split(b"\0")
            if b"--background" in words and os.fsencode(folder) in words:
                return int(command.parent.name)
    raise AssertionError(f"No process has mounted {folder}.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("{there}/none", "empty"), "there is no such file or folder."),
        (("{there}", "none"), "pai: none: there is no such folder.\n     Create it: mkdir -p none\n"),
        (("{there}", "full"), "pai: full is not empty: a mount would hide its files.\n"),
        (("{there}", "full/file"), "pai: full/file is a file; a folder is needed to mount on.\n"),
        (("empty", "empty"), "pai: empty is a path on this machine; only a storage can be mounted.\n"),
        (("--background", "{there}/none", "empty"), "there is no such file or folder."),
    ],
)
@needs_fuse
def test_what_cannot_be_mounted_is_one_sentence(user, there, words: tuple[str, ...], message: str) -> None:
    (user.project / "empty").mkdir()
    (user.project / "full").mkdir()
    (user.project / "full/file").touch()
    done = user.pai("mount", *(word.format(there=there) for word in words))
    assert done.status == 2 and message in done.err and done.out == "", done
    assert not is_mounted(user.project / "empty")


def test_machine_without_fuse_is_one_sentence(user, there) -> None:
    (user.project / "empty").mkdir()
    without = "from pairuntime.fuse import mount_point; mount_point.DEVICE = '/dev/none'; "
    command = f"{without}import sys; from openpaisdk.cli.main import run; sys.exit(run(sys.argv[1:]))"
    done = user.run([sys.executable, "-c", command, "mount", there, "empty"])
    assert done.status == 2 and done.err.startswith("pai: This machine has no /dev/none, so nothing"), done
