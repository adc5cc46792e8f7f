"""A folder interrupted on its way: the same command again ends what it began, and leaves nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.cli_user import until
from support.faulty_proxy import BadWire
from support.storage_fixture import Desk, tree_of

ENDS = pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
PIECE = os.urandom(1 << 20)


def folder_of_all_sizes(desk: Desk) -> Path:
    for i in range(60):
        desk.write(f"d/small{i % 3}/{i}", PIECE[: i * 997])
    for i in range(3):
        desk.write(f"d/f{i}", PIECE * (10 + i))
    (desk.here / "d/empty").mkdir()
    return desk.here / "d"


def stop(process: subprocess.Popen[str], how: signal.Signals) -> None:
    assert process.poll() is None, "it was over before it could be interrupted"
    process.send_signal(how)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert how != signal.SIGINT or "run the same command again" in err


def marks(desk: Desk) -> list[Path]:
    """Those of this test: other tests of the same person interrupt copies, too."""
    found = (desk.person.home / ".openpai/copies").glob("*.json")
    return [mark for mark in found if f"{desk.path}/" in mark.read_text()]


def far(desk: Desk) -> str:
    return desk.there.replace("pai://team/", "pai://far/")


def same(one: Path, other: Path) -> bool:
    """Nothing less, nothing more: files, their bytes, and folders."""
    ways = [sorted(str(path.relative_to(top)) for path in top.rglob("*")) for top in (one, other)]
    return ways[0] == ways[1] and tree_of(one) == tree_of(other)


@pytest.mark.slow
@ENDS
def test_an_interrupted_upload_of_a_folder_is_ended_by_the_same_command(
    desk: Desk, wire: BadWire, end: signal.Signals
) -> None:
    source = folder_of_all_sizes(desk)
    words = ["copy", "--http", "d", f"{far(desk)}/target"]
    for carried in (3 << 20, 12 << 20):
        wire.carried, wire.rate = 0, 6e6
        process = desk.person.begin(*words)
        until(lambda carried=carried: wire.carried > carried)
        stop(process, end)
        assert desk.ok("listdir", desk.there) == "target/\n" and len(marks(desk)) == 1
    wire.rate = 0
    done = desk.pai(*words)
    assert done.status == 0 and done.err.startswith("Resuming an interrupted copy: 63 files"), done
    assert desk.ok("listdir", desk.there) == "target/\n" and marks(desk) == []
    desk.ok("copy", f"{desk.there}/target", "back")
    assert same(desk.here / "back", source)
    desk.ok(*words)  # it is whole now: an existing folder receives it
    assert "target/d/f0" in desk.names()


@pytest.mark.slow
@ENDS
def test_an_interrupted_download_of_a_folder_is_ended_by_the_same_command(
    desk: Desk, wire: BadWire, end: signal.Signals
) -> None:
    source = folder_of_all_sizes(desk)
    desk.ok("copy", "d", f"{desk.there}/d")
    back = desk.here / "back"
    words = ["copy", "--http", f"{far(desk)}/d", "back"]
    for carried in (3 << 20, 12 << 20):
        wire.carried, wire.rate = 0, 6e6
        process = desk.person.begin(*words)
        until(lambda carried=carried: wire.carried > carried and any(back.rglob("*")))
        stop(process, end)
        assert not same(back, source) and len(marks(desk)) == 1
    wire.rate = 0
    done = desk.pai(*words)
    assert done.status == 0 and done.err.startswith("Resuming"), done
    assert same(back, source) and marks(desk) == []
    assert sorted(os.listdir(desk.here)) == ["back", "d"]


def interrupted(desk: Desk, wire: BadWire) -> None:
    """A copy of `d` to `target`, of which a small file has arrived and a large one has not."""
    desk.write("d/small", b"1")
    desk.write("d/large", PIECE * 10)
    wire.carried, wire.rate = 0, 4e6
    process = desk.person.begin("copy", "--http", "d", f"{far(desk)}/target")
    storage = desk.storage(over_http=True)
    until(lambda: storage.exists(f"{desk.path}/target/small"))
    stop(process, signal.SIGKILL)
    wire.rate = 0


def test_another_source_or_a_slash_still_goes_into_the_folder(desk: Desk, wire: BadWire) -> None:
    desk.write("e/other", b"2")
    interrupted(desk, wire)
    desk.ok("copy", "e", f"{far(desk)}/target")
    desk.ok("copy", "d", f"{far(desk)}/target/")
    assert {"target/e/other", "target/d/large"} <= set(desk.names())
    link = desk.here / "link"
    link.symlink_to("d")
    desk.ok("copy", "link", f"{far(desk)}/target")  # the same folder by another name
    assert {"target/small", "target/large"} <= set(desk.names()) and marks(desk) == []


def test_what_was_removed_or_made_by_hand_is_no_unfinished_copy(desk: Desk, wire: BadWire) -> None:
    target = f"{far(desk)}/target"
    interrupted(desk, wire)
    desk.ok("remove", "-y", target)
    assert marks(desk) == []
    desk.ok("makedir", target)
    desk.ok("copy", "d", target)
    assert desk.names() == ["target/d/large", "target/d/small"]


def test_a_mark_of_last_week_is_forgotten_and_a_home_that_takes_none_is_no_hindrance(
    desk: Desk, wire: BadWire
) -> None:
    interrupted(desk, wire)
    (mark,) = marks(desk)
    os.utime(mark, (1e9, 1e9))
    desk.ok("copy", "d", f"{far(desk)}/target")
    assert {"target/d/small", "target/d/large"} <= set(desk.names())
    desk.ok("copy", "d", f"{far(desk)}/new")
    assert marks(desk) == []
    folder = mark.parent
    folder.rename(folder.with_name("aside"))
    folder.write_text("in the way")
    try:
        desk.ok("copy", "d", f"{far(desk)}/newer")
        assert {"newer/small", "newer/large"} <= set(desk.names())
    finally:
        folder.unlink()
        folder.with_name("aside").rename(folder)
