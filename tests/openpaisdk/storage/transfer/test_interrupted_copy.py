"""Interrupted folder copies: the same command resumes them and leaves nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.cli_user import until
from support.faulty_proxy import FaultyProxy
from support.storage_fixture import StorageWorkspace, tree_of

ENDS = pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
PIECE = os.urandom(1 << 20)


def folder_of_all_sizes(workspace: StorageWorkspace) -> Path:
    for i in range(60):
        workspace.write(f"d/small{i % 3}/{i}", PIECE[: i * 997])
    for i in range(3):
        workspace.write(f"d/f{i}", PIECE * (10 + i))
    (workspace.local / "d/empty").mkdir()
    return workspace.local / "d"


def stop(process: subprocess.Popen[str], how: signal.Signals) -> None:
    assert process.poll() is None, "it was over before it could be interrupted"
    process.send_signal(how)
    _, err = process.communicate(timeout=90)
    assert process.returncode != 0
    assert how != signal.SIGINT or "run the same command again" in err


def marks(workspace: StorageWorkspace) -> list[Path]:
    """Markers of this test: other tests of the same user interrupt copies, too."""
    found = (workspace.person.home / ".openpai/copies").glob("*.json")
    return [mark for mark in found if f"{workspace.path}/" in mark.read_text()]


def far(workspace: StorageWorkspace) -> str:
    return workspace.remote.replace("pai://team/", "pai://far/")


def same(one: Path, other: Path) -> bool:
    """Assert that both trees have the same files, bytes and folders."""
    ways = [sorted(str(path.relative_to(top)) for path in top.rglob("*")) for top in (one, other)]
    return ways[0] == ways[1] and tree_of(one) == tree_of(other)


@pytest.mark.slow
@ENDS
def test_same_command_resumes_an_interrupted_folder_upload(
    workspace: StorageWorkspace, proxy: FaultyProxy, end: signal.Signals
) -> None:
    source = folder_of_all_sizes(workspace)
    words = ["copy", "--http", "d", f"{far(workspace)}/target"]
    for carried in (3 << 20, 12 << 20):
        proxy.carried, proxy.rate = 0, 6e6
        process = workspace.person.begin(*words)
        until(lambda carried=carried: proxy.carried > carried)
        stop(process, end)
        assert workspace.ok("listdir", workspace.remote) == "target/\n" and len(marks(workspace)) == 1
    proxy.rate = 0
    done = workspace.pai(*words)
    assert done.status == 0 and done.err.startswith("Resuming an interrupted copy: 63 files"), done
    assert workspace.ok("listdir", workspace.remote) == "target/\n" and marks(workspace) == []
    workspace.ok("copy", f"{workspace.remote}/target", "back")
    assert same(workspace.local / "back", source)
    workspace.ok(*words)  # it is complete now: the copy goes into the existing folder
    assert "target/d/f0" in workspace.names()


@pytest.mark.slow
@ENDS
def test_same_command_resumes_an_interrupted_folder_download(
    workspace: StorageWorkspace, proxy: FaultyProxy, end: signal.Signals
) -> None:
    source = folder_of_all_sizes(workspace)
    workspace.ok("copy", "d", f"{workspace.remote}/d")
    back = workspace.local / "back"
    words = ["copy", "--http", f"{far(workspace)}/d", "back"]
    for carried in (3 << 20, 12 << 20):
        proxy.carried, proxy.rate = 0, 6e6
        process = workspace.person.begin(*words)
        until(lambda carried=carried: proxy.carried > carried and any(back.rglob("*")))
        stop(process, end)
        assert not same(back, source) and len(marks(workspace)) == 1
    proxy.rate = 0
    done = workspace.pai(*words)
    assert done.status == 0 and done.err.startswith("Resuming"), done
    assert same(back, source) and marks(workspace) == []
    assert sorted(os.listdir(workspace.local)) == ["back", "d"]


def interrupted(workspace: StorageWorkspace, proxy: FaultyProxy) -> None:
    """A copy of `d` to `target`, of which a small file has arrived and a large one has not."""
    workspace.write("d/small", b"1")
    workspace.write("d/large", PIECE * 10)
    proxy.carried, proxy.rate = 0, 4e6
    process = workspace.person.begin("copy", "--http", "d", f"{far(workspace)}/target")
    storage = workspace.storage(over_http=True)
    until(lambda: storage.exists(f"{workspace.path}/target/small"))
    stop(process, signal.SIGKILL)
    proxy.rate = 0


def test_another_source_or_a_slash_copies_into_the_folder(
    workspace: StorageWorkspace, proxy: FaultyProxy
) -> None:
    workspace.write("e/other", b"2")
    interrupted(workspace, proxy)
    workspace.ok("copy", "e", f"{far(workspace)}/target")
    workspace.ok("copy", "d", f"{far(workspace)}/target/")
    assert {"target/e/other", "target/d/large"} <= set(workspace.names())
    link = workspace.local / "link"
    link.symlink_to("d")
    workspace.ok("copy", "link", f"{far(workspace)}/target")  # the same folder by another name
    assert {"target/small", "target/large"} <= set(workspace.names()) and marks(workspace) == []


def test_removed_or_recreated_target_is_not_resumed(workspace: StorageWorkspace, proxy: FaultyProxy) -> None:
    target = f"{far(workspace)}/target"
    interrupted(workspace, proxy)
    workspace.ok("remove", "-y", target)
    assert marks(workspace) == []
    workspace.ok("makedir", target)
    workspace.ok("copy", "d", target)
    assert workspace.names() == ["target/d/large", "target/d/small"]


def test_expired_marker_is_ignored_and_unwritable_home_tolerated(
    workspace: StorageWorkspace, proxy: FaultyProxy
) -> None:
    interrupted(workspace, proxy)
    (mark,) = marks(workspace)
    os.utime(mark, (1e9, 1e9))
    workspace.ok("copy", "d", f"{far(workspace)}/target")
    assert {"target/d/small", "target/d/large"} <= set(workspace.names())
    workspace.ok("copy", "d", f"{far(workspace)}/new")
    assert marks(workspace) == []
    folder = mark.parent
    folder.rename(folder.with_name("aside"))
    folder.write_text("in the way")
    try:
        workspace.ok("copy", "d", f"{far(workspace)}/newer")
        assert {"newer/small", "newer/large"} <= set(workspace.names())
    finally:
        folder.unlink()
        folder.with_name("aside").rename(folder)
