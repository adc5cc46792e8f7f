"""Followers are woken when a log grows, and only what can wake them says that it will."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from paicluster.logs import log_watcher
from paicluster.logs.log_watcher import LogWatcher


async def _woken(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 10)
    event.clear()


def test_everybody_who_watches_a_folder_is_woken_and_nobody_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        grown, quiet = tmp_path / "grown", tmp_path / "quiet"
        grown.mkdir()
        quiet.mkdir()
        watching = LogWatcher()
        one, two, other = watching.watch(grown), watching.watch(grown), watching.watch(quiet)
        assert one.has_inotify and two.has_inotify and other.has_inotify
        (grown / "stdout.0").write_bytes(b"first")
        await _woken(one.event)
        await _woken(two.event)
        one.close()
        with (grown / "stdout.0").open("ab") as f:
            f.write(b"more")
        await _woken(two.event)
        assert not other.event.is_set()
        # How the task is stands in files beside; the log is as it was.
        (grown / "exit.json").write_bytes(b"{}")
        (quiet / "all.0").write_bytes(b"first")
        await _woken(other.event)
        assert not two.event.is_set()
        two.close()
        other.close()
        watching.close()

    asyncio.run(scenario())


def test_the_watches_of_followers_that_left_are_given_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = len(os.listdir("/proc/self/fd"))
        watching = LogWatcher()
        for _ in range(3):
            watches = [watching.watch(tmp_path) for _ in range(5)]
            for watch in watches:
                watch.close()
                watch.close()
        (fd,) = [path for path in Path("/proc/self/fd").iterdir() if "inotify" in str(_target(path))]
        assert "inotify wd" not in Path(f"/proc/self/fdinfo/{fd.name}").read_text()
        watching.close()
        assert len(os.listdir("/proc/self/fd")) == before

    asyncio.run(scenario())


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def test_a_folder_that_is_not_there_cannot_be_seen_growing(tmp_path: Path) -> None:
    async def scenario() -> None:
        watching = LogWatcher()
        watch = watching.watch(tmp_path / "nowhere")
        assert not watch.has_inotify
        watch.close()
        watching.close()

    asyncio.run(scenario())


def test_when_the_kernel_could_not_note_everything_everybody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        watching = LogWatcher()
        watch = watching.watch(tmp_path)
        overflow = log_watcher._EVENT.pack(-1, 0x4000, 0, 0)
        with monkeypatch.context() as patch:
            patch.setattr(os, "read", lambda fd, size: overflow)
            watching._read()
        assert watch.event.is_set()
        watch.close()
        watching.close()

    asyncio.run(scenario())


def test_a_file_system_that_other_machines_write_to_is_looked_at_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not log_watcher.is_shared(tmp_path)
    monkeypatch.setattr(log_watcher, "_kind", lambda device: "nfs4")

    async def look() -> None:
        watching = LogWatcher()
        watch = watching.watch(tmp_path)
        assert not watch.has_inotify
        watch.close()
        watching.close()

    asyncio.run(look())
