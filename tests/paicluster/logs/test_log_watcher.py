"""Log watcher: followers are woken when a log grows, or know that they must poll."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from paicluster.logs import log_watcher
from paicluster.logs.log_watcher import LogWatcher
from paicluster.logs.reader import LogReader
from pairuntime.local_files import network_fs


async def _wait_woken(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 90)
    event.clear()


def test_only_watchers_of_the_changed_folder_are_wait_woken(tmp_path: Path) -> None:
    async def scenario() -> None:
        grown, quiet = tmp_path / "grown", tmp_path / "quiet"
        grown.mkdir()
        quiet.mkdir()
        watcher = LogWatcher()
        one, two, other = (watcher.watch(path, "stdout") for path in (grown, grown, quiet))
        assert one.has_inotify and two.has_inotify and other.has_inotify
        (grown / "stdout.0").write_bytes(b"first")
        await _wait_woken(one.event)
        await _wait_woken(two.event)
        one.close()
        with (grown / "stdout.0").open("ab") as f:
            f.write(b"more")
        await _wait_woken(two.event)
        assert not other.event.is_set()
        # State files of the task do not wake readers of the log.
        (grown / "exit.json").write_bytes(b"{}")
        (grown / "all.0").write_bytes(b"another stream")
        (quiet / "stdout.0").write_bytes(b"first")
        await _wait_woken(other.event)
        assert not two.event.is_set()
        two.close()
        other.close()
        watcher.close()

    asyncio.run(scenario())


def test_closed_watches_release_their_inotify_descriptors(tmp_path: Path) -> None:
    async def scenario() -> None:
        # Only of inotify: objects of other tests may release theirs at any time.
        assert _inotify_descriptors() == []
        watcher = LogWatcher()
        for _ in range(3):
            watches = [watcher.watch(tmp_path, "all") for _ in range(5)]
            for watch in watches:
                watch.close()
                watch.close()
        (fd,) = _inotify_descriptors()
        assert "inotify wd" not in Path(f"/proc/self/fdinfo/{fd.name}").read_text()
        watcher.close()
        assert _inotify_descriptors() == []

    asyncio.run(scenario())


def _inotify_descriptors() -> list[Path]:
    return [path for path in Path("/proc/self/fd").iterdir() if "inotify" in _target(path)]


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def test_missing_folder_has_no_inotify_watch(tmp_path: Path) -> None:
    async def scenario() -> None:
        watcher = LogWatcher()
        watch = watcher.watch(tmp_path / "nowhere", "all")
        assert not watch.has_inotify
        watch.close()
        watcher.close()

    asyncio.run(scenario())


def test_inotify_overflow_wakes_all_watchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        watcher = LogWatcher()
        watch = watcher.watch(tmp_path, "all")
        overflow = log_watcher._EVENT.pack(-1, 0x4000, 0, 0)
        with monkeypatch.context() as patch:
            patch.setattr(os, "read", lambda fd, size: overflow)
            watcher._read()
        assert watch.event.is_set()
        watch.close()
        watcher.close()

    asyncio.run(scenario())


def test_network_file_system_is_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not network_fs.is_on_network(tmp_path)
    monkeypatch.setattr(network_fs, "_by_device", {})
    monkeypatch.setattr(network_fs, "network_type", lambda path: "nfs4")

    async def poll() -> None:
        watcher = LogWatcher()
        watch = watcher.watch(tmp_path, "all")
        assert not watch.has_inotify
        watch.close()
        watcher.close()

    asyncio.run(poll())


def test_readers_of_one_place_share_what_the_first_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow() -> None:
        watcher = LogWatcher()
        watches = [watcher.watch(tmp_path, "all") for _ in range(3)]
        opened = []
        system_open = os.open
        monkeypatch.setattr(os, "open", lambda *words: opened.append(words) or system_open(*words))

        async def read_next(offset: int) -> bytes:
            for watch in watches:
                await _wait_woken(watch.event)
            opened.clear()
            chunks = [watch.read(LogReader(tmp_path, "all"), offset, is_complete=False) for watch in watches]
            assert all(chunk is chunks[0] for chunk in chunks)
            assert len(opened) == 1
            return chunks[0].data

        with (tmp_path / "all.0").open("ab", buffering=0) as log:
            log.write(b"first")
            assert await read_next(0) == b"first"
            log.write(b"more")
            assert await read_next(5) == b"more"
            # Of a task that has ended: the file, whatever was noticed.
            log.write(b"end")
            assert watches[0].read(LogReader(tmp_path, "all"), 5, is_complete=True).data == b"moreend"
            assert watches[0].read(LogReader(tmp_path, "all"), 5, is_complete=False).data == b"more"
        # A new segment.
        (tmp_path / "all.12").write_bytes(b"last")
        for watch in watches:
            await _wait_woken(watch.event)
        assert watches[0].read(LogReader(tmp_path, "all"), 12, is_complete=False).data == b"last"
        for watch in watches:
            watch.close()
        watcher.close()

    asyncio.run(follow())
