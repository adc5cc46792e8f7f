"""What goes wrong on the way: one clear sentence, a status that is not zero, the old target untouched."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from openpaisdk.cli.storage import remove
from openpaisdk.errors import PaiError, UsageError
from openpaisdk.storage.backends.local import LocalBackend
from openpaisdk.storage.catalog import StorageOpener
from openpaisdk.storage.location import parse_location
from openpaisdk.storage.transfer.copy import CopyOperation, to_stream
from support.cli_user import CommandResult, until
from support.faulty_proxy import BadWire
from support.small_disk import mounted
from support.storage_fixture import Desk

LARGE = os.urandom(1 << 20) * 40


def far(desk: Desk) -> str:
    return desk.there.replace("pai://team/", "pai://far/")


def refused(done: CommandResult, *words: str) -> None:
    """One sentence (and perhaps what to do), a status, no traceback."""
    assert done.status in (1, 2), done
    said = [line for line in done.err.splitlines() if line.startswith("pai: ")]
    assert len(said) == 1 and "Traceback" not in done.err, done
    for word in words:
        assert word in done.err, done


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if "pai-part" in name]


def begun(desk: Desk, *words: str) -> subprocess.Popen[str]:
    return desk.person.begin(*words)


def ended(process: subprocess.Popen[str]) -> CommandResult:
    out, err = process.communicate(timeout=60)
    return CommandResult(process.returncode, out, err)


def test_a_source_that_is_not_there(desk: Desk) -> None:
    refused(desk.pai("copy", "nothing", desk.there), "nothing: there is no such file or folder")
    refused(desk.pai("copy", f"{desk.there}/nothing", "."), "there is no such file or folder")
    refused(desk.pai("sync", f"{desk.there}/nothing", "."), "there is no such file or folder")
    refused(desk.pai("getinfo", f"{desk.there}/nothing"), "there is no such file or folder")
    refused(desk.pai("remove", f"{desk.there}/nothing"), "there is no such file or folder")
    refused(desk.pai("listdir", "pai://team/nope/x"), "no storage called 'nope'")
    refused(desk.pai("listdir", "pai://nobody/0/x"), "no cluster called 'nobody'")
    refused(desk.pai("getinfo", "pai://team"), "must name a cluster and a storage")
    refused(desk.pai("listdir", "s3://bucket/x"), "s3://")
    refused(desk.pai("listdir", "hdfs://elsewhere:9000/x"), "No configured storage has the address")


def test_a_closed_stream_is_no_empty_file(desk: Desk) -> None:
    desk.write("f", b"kept")
    desk.ok("copy", "f", f"{desk.there}/f")
    refused(desk.person.sh(f"pai copy - {desk.there}/f <&-"), "Standard input is closed")
    refused(desk.person.sh(f"pai copy {desk.there}/f - >&-"), "Standard output is closed")
    assert desk.read("f") == b"kept"


def test_a_pipe_that_is_empty_for_the_moment_has_not_ended(desk: Desk) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    copy = subprocess.Popen(
        ["pai", "copy", "-", f"{desk.there}/f"], stdin=reading, cwd=desk.here, env=desk.person.env()
    )
    os.close(reading)
    for word in (b"one ", b"two"):
        os.write(writing, word)
        until(lambda: _unread(writing) == 0)  # it has been taken, so the next read finds nothing
    os.close(writing)
    assert copy.wait(60) == 0
    assert desk.read("f") == b"one two"


def _unread(pipe: int) -> int:
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def test_names_that_hdfs_forbids_are_refused_before_anything_moves(desk: Desk) -> None:
    desk.write("d/fine")
    desk.write("d/at 10:30")
    refused(desk.pai("copy", "d", desk.there), "'at 10:30'", "colon")
    refused(desk.pai("copy", "d/fine", f"{desk.there}/a:b"), "colon")
    refused(desk.pai("makedir", f"{desk.there}/a:b"), "colon")
    refused(desk.pai("copy", "d/fine", f"{desk.there}/a:b/c"), "colon")
    refused(desk.pai("copy", "d/fine", f"{desk.there}/../x"), "'..'")
    assert desk.names() == []


def test_a_folder_is_not_copied_into_itself(desk: Desk) -> None:
    desk.write("d/f")
    refused(desk.pai("copy", "d", "d/inside"), "lies inside")
    refused(desk.pai("copy", "d", "d"), "lies inside")
    desk.ok("copy", "d", desk.there)
    refused(desk.pai("copy", f"{desk.there}/d", f"{desk.there}/d/inside"), "lies inside")
    refused(desk.pai("sync", f"{desk.there}/d", f"{desk.there}/d"), "are the same")
    assert os.listdir(desk.here / "d") == ["f"] and desk.names() == ["d/f"]


def test_a_storage_is_the_same_one_by_all_its_names(desk: Desk) -> None:
    """By ``0`` and by its name, by pai:// and by hdfs://, by its address on this machine."""
    desk.write("d/e/f")
    desk.ok("copy", "d", desk.there)
    of_hdfs = f"hdfs://{desk.url.partition('://')[2]}{desk.path}"
    for other in (desk.there.replace("/0/", "/home/"), of_hdfs):
        refused(desk.pai("copy", f"{desk.there}/d", f"{other}/d/inside"), "lies inside")
        refused(desk.pai("sync", f"{desk.there}/d", f"{other}/d"), "are the same")
    assert desk.names() == ["d/e/f"]
    desk.ok("add-storage-cluster", "-a", "disks", "--type", "mount", "--path", str(desk.here))
    refused(desk.pai("copy", "pai://disks/0/d", "d/inside"), "lies inside")
    refused(desk.pai("sync", "d", "pai://disks/mount/d"), "are the same")
    assert os.listdir(desk.here / "d") == ["e"]


def test_a_sync_does_not_delete_what_it_copies_from(desk: Desk) -> None:
    desk.write("d/e/f")
    desk.ok("copy", "d", desk.there)
    refused(desk.pai("sync", "--delete", "d/e", "d"), "d/e lies inside d", "--delete would remove")
    refused(desk.pai("sync", "--delete", f"{desk.there}/d/e", f"{desk.there}/d"), "--delete would remove")
    assert os.listdir(desk.here / "d") == ["e"] and desk.names() == ["d/e/f"]
    desk.ok("sync", "d/e", "d")
    assert sorted(os.listdir(desk.here / "d")) == ["e", "f"]


def test_nothing_is_put_below_a_file(desk: Desk) -> None:
    desk.write("f")
    desk.write("d/f")
    desk.write("large", b"x" * 20_000_000)
    desk.ok("copy", "f", f"{desk.there}/f")
    for source in ("f", "d", "large"):
        for way in ([], ["--http"]):
            done = desk.pai("copy", *way, source, f"{desk.there}/f/below")
            assert done.status == 1
            assert "/f is a file and not a folder." in done.err


def test_what_a_file_holds_is_no_folder(desk: Desk) -> None:
    desk.write("f")
    desk.ok("makedir", f"{desk.there}/there")
    desk.ok("copy", "f", f"{desk.there}/f")
    for source in ("f/.", f"{desk.there}/f/."):
        for target in (f"{desk.there}/new", f"{desk.there}/there", "new"):
            done = desk.pai("copy", source, target)
            assert (done.status, "is a file, but a trailing slash" in done.err) == (2, True)
    assert desk.names() == ["f"] and not (desk.here / "new").exists()


def test_a_file_and_a_folder_do_not_take_each_others_place(desk: Desk) -> None:
    desk.write("d/x/f")
    desk.write("x", b"file")
    desk.ok("copy", "d", f"{desk.there}/d")
    refused(desk.pai("copy", "d", f"{desk.there}/d/x/f"), "is a file")
    desk.write("e/x", b"file")
    refused(desk.pai("sync", "e", f"{desk.there}/d"), "would have to replace")
    refused(desk.pai("makedir", f"{desk.there}/d/x/f"), "is a file")
    assert desk.names() == ["d/x/f"]


def test_a_person_keeps_the_ground_he_stands_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, where nothing is really deleted."""
    gone: list[str] = []
    monkeypatch.setattr(LocalBackend, "delete", lambda _, path: gone.append(path))
    folder = desk.write("d/e/f").parent
    (folder / "up").symlink_to("/")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(desk.write("homes/me/f").parent))
    for path, why in {
        "/": "is a system folder",
        "//": "is a system folder",
        "/usr": "is a system folder",
        "/etc/": "is a system folder",
        ".": "is the current folder",
        "..": "is the current folder",
        str(folder.parent): "is the current folder",
        "~": "is your home folder",
        str(desk.here / "homes"): "is your home folder",
    }.items():
        with pytest.raises(UsageError, match=f"{why}.* and is not removed"):
            remove(["-y", path])
    remove(["-y", "f", "up"])
    assert gone == [str(folder / "f"), str(folder / "up")]


def test_a_person_keeps_it_also_where_it_is_mounted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, where nothing is really deleted."""
    gone: list[str] = []
    monkeypatch.setattr(LocalBackend, "delete", lambda _, path: gone.append(path))
    home = desk.person.home
    monkeypatch.setenv("HOME", str(home))
    desk.ok("add-storage-cluster", "-a", "above", "--type", "mount", "--path", str(home.parent))
    with pytest.raises(UsageError, match="is your home folder or contains it, and is not removed"):
        remove(["-y", f"pai://above/mount/{home.name}"])
    (home.parent / "other").mkdir()
    remove(["-y", "pai://above/mount/other"])
    assert gone == ["/other"]


def test_a_home_is_not_made_like_another_folder(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    source, home = desk.write("d/f").parent, desk.write("homes/me/mine").parent
    monkeypatch.setenv("HOME", str(home))
    for target in (home, home.parent, "/"):
        with pytest.raises(UsageError, match="is your home folder or contains it: --delete would"):
            CopyOperation.plan(
                StorageOpener(),
                parse_location(str(source)),
                parse_location(str(target)),
                sync=True,
                delete=True,
            )
    CopyOperation.plan(
        StorageOpener(), parse_location(str(source)), parse_location(str(home)), sync=True
    ).run()
    assert sorted(os.listdir(home)) == ["f", "mine"]


def test_the_root_of_a_storage_is_never_removed(desk: Desk) -> None:
    for root in ("pai://team/0/", "pai://team/0//", "pai://team/0/."):
        refused(desk.pai("remove", "-y", root), "never removed")


def test_a_file_that_grows_while_it_is_sent_is_noticed(desk: Desk, wire: BadWire) -> None:
    desk.write("target", b"old")
    desk.ok("copy", "target", f"{desk.there}/f")
    grows = desk.write("grows", LARGE)
    wire.rate = 20e6
    process = begun(desk, "copy", "--http", "grows", f"{far(desk)}/f")
    until(lambda: wire.carried > 2 << 20)
    with grows.open("ab") as f:
        f.write(b"more")
    refused(ended(process), "grows grew while it was copied", "the target is unchanged")
    assert desk.read("f") == b"old" and desk.names() == ["f"]


def test_a_file_that_changed_on_its_way_to_a_stream_is_not_to_be_used(desk: Desk) -> None:
    grows = desk.write("grows", LARGE)

    def write(_: object) -> None:
        with grows.open("ab") as f:
            f.write(b"more")

    with pytest.raises(PaiError, match="grows changed while it was copied: do not use the output"):
        to_stream(StorageOpener(), parse_location(str(grows)), write)


def test_a_file_that_vanishes_while_it_is_sent_is_noticed(desk: Desk, wire: BadWire) -> None:
    goes = desk.write("goes", LARGE)
    wire.rate = 20e6
    process = begun(desk, "copy", "--http", "goes", f"{far(desk)}/f")
    until(lambda: wire.carried > 2 << 20)
    goes.unlink()
    refused(ended(process), "goes vanished while it was copied")
    assert desk.names() == []


@pytest.mark.slow
def test_a_file_that_changes_while_it_is_fetched_is_noticed(desk: Desk, wire: BadWire) -> None:
    desk.write("one", LARGE)
    desk.write("two", LARGE[:-5])
    desk.ok("copy", "one", f"{desk.there}/f")
    kept = desk.write("kept", b"kept")
    wire.rate = 20e6
    process = begun(desk, "copy", "--http", f"{far(desk)}/f", "kept")
    until(lambda: wire.carried > 2 << 20)
    desk.ok("copy", "two", f"{desk.there}/f")
    refused(ended(process), "while it was copied")
    assert kept.read_bytes() == b"kept" and leftovers(desk.here) == []


def test_a_connection_that_is_cut_now_and_then_does_no_harm(desk: Desk, wire: BadWire) -> None:
    desk.write("f", LARGE)
    wire.question_limit, wire.cuts = 3 << 20, 4
    desk.ok("copy", "--http", "f", f"{far(desk)}/f")
    assert wire.cuts == 0
    assert desk.read("f") == LARGE


def test_a_download_whose_connection_is_cut_goes_on_by_itself(desk: Desk, wire: BadWire) -> None:
    desk.write("f", LARGE)
    desk.ok("copy", "f", f"{desk.there}/f")
    wire.rate = 20e6
    process = begun(desk, "copy", "--http", f"{far(desk)}/f", "back")
    until(lambda: wire.carried > 2 << 20)
    wire.cut()
    wire.rate = 0
    assert ended(process).status == 0
    assert (desk.here / "back").read_bytes() == LARGE and leftovers(desk.here) == []


@pytest.mark.slow
def test_a_connection_that_stays_cut_is_said_and_the_next_run_continues(
    desk: Desk, wire: BadWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAI_TRANSFER_RETRY_S", "1")
    desk.write("f", LARGE)
    desk.write("old", b"old")
    desk.ok("copy", "old", f"{desk.there}/f")
    wire.rate = 60e6
    process = begun(desk, "copy", "--http", "f", f"{far(desk)}/f")
    until(lambda: wire.carried > 34 << 20)
    wire.close()
    refused(ended(process), "does not respond", "it resumes the copy")
    assert desk.read("f") == b"old"
    again = BadWire(desk.url)
    try:
        book = desk.person.home / ".openpai/clusters.yaml"
        book.write_text(book.read_text().replace(wire.url, again.url))
        desk.ok("copy", "--http", "f", f"{far(desk)}/f")
        assert desk.read("f") == LARGE
        assert again.carried < 36 << 20
    finally:
        again.close()


@pytest.mark.slow
def test_a_proxy_that_cuts_answers_off_is_noticed(desk: Desk, wire: BadWire) -> None:
    desk.write("f", LARGE)
    desk.write("d/small", b"x" * 300_000)
    desk.ok("copy", "f", f"{desk.there}/f")
    desk.ok("copy", "d", f"{desk.there}/d")
    kept = desk.write("kept", b"kept")
    wire.answer_limit = 200_000
    short = {"PAI_TRANSFER_RETRY_S": "1"}
    refused(desk.pai("copy", "--http", f"{far(desk)}/f", "kept", env=short), "in the middle of a response")
    assert kept.read_bytes() == b"kept"
    refused(desk.pai("copy", "--http", f"{far(desk)}/d", "back", env=short))
    assert not (desk.here / "back/small").exists()


@pytest.mark.slow
def test_an_interrupted_download_continues(desk: Desk, wire: BadWire) -> None:
    desk.write("f", LARGE)
    desk.ok("copy", "f", f"{desk.there}/f")
    wire.rate = 30e6
    process = begun(desk, "copy", "--http", f"{far(desk)}/f", "back")
    until(lambda: len(journal(desk.here)) >= 1)
    process.kill()
    process.wait()
    assert not (desk.here / "back").exists() and len(leftovers(desk.here)) == 2
    wire.carried = 0
    wire.rate = 0
    desk.ok("copy", "--http", f"{far(desk)}/f", "back")
    assert (desk.here / "back").read_bytes() == LARGE
    assert wire.carried < 36 << 20
    assert leftovers(desk.here) == []


def journal(folder: Path) -> list[str]:
    for name in leftovers(folder):
        if name.endswith(".done"):
            return (folder / name).read_text().splitlines()
    return []


@pytest.mark.slow
def test_an_upload_of_a_killed_client_continues_and_an_abandoned_one_leaves_nothing(
    desk: Desk, wire: BadWire
) -> None:
    before = partial(desk)
    source = desk.write("f", LARGE)
    wire.rate = 60e6
    process = begun(desk, "copy", "--http", "f", f"{far(desk)}/f")
    until(lambda: wire.carried > 34 << 20)
    process.kill()
    process.wait()
    assert desk.names() == []
    wire.carried, wire.rate = 0, 40e6
    desk.ok("copy", "--http", "f", f"{far(desk)}/f")
    assert wire.carried < 36 << 20
    assert desk.read("f") == LARGE
    assert partial(desk) == before
    process = begun(desk, "copy", "--http", "f", f"{far(desk)}/g")
    until(lambda: len(partial(desk)) > len(before))
    os.utime(source)
    assert ended(process).status == 1
    assert partial(desk) == before


def partial(desk: Desk) -> list[str]:
    """Uploads that wait to be continued."""
    return sorted(os.listdir(next(desk.person.cluster_home.rglob(".pai")) / "partial"))


def test_a_disk_that_is_full_here_is_said_before_and_during(desk: Desk) -> None:
    with mounted(desk.here / "small", "size=8m") as small:
        desk.write("d/large", LARGE[: 10 << 20])
        desk.write("d/tiny", b"x")
        desk.ok("copy", "d", f"{desk.there}/d")
        done = desk.pai("copy", f"{desk.there}/d", "small/d")
        refused(done, "10 MB do not fit", "large (10 MB)", "tiny (1 B)")
        assert os.listdir(small) == []


def test_a_small_file_of_which_a_part_has_room_leaves_the_old_one(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=1m") as small:
        target = small / "f"
        target.write_bytes(b"old")
        (small / "others").write_bytes(bytes(700 << 10))
        with pytest.raises(PaiError, match="The disk is full"):
            LocalBackend().write_small(str(target), bytes(500 << 10), 0, 0o644)
        assert target.read_bytes() == b"old"
        assert sorted(os.listdir(small)) == ["f", "others"]


def test_ctrl_c_says_that_it_can_be_continued(desk: Desk, wire: BadWire) -> None:
    import signal

    desk.write("f", LARGE)
    wire.rate = 20e6
    process = begun(desk, "copy", "--http", "f", f"{far(desk)}/f")
    until(lambda: wire.carried > 2 << 20)
    process.send_signal(signal.SIGINT)
    done = ended(process)
    assert done.status == 130 and "continues where it was" in done.err
