"""Output at a terminal: the progress bar, and the prompt before a folder is removed."""

from __future__ import annotations

import os
import pty
import re
import subprocess

from support.faulty_proxy import FaultyProxy
from support.storage_fixture import StorageWorkspace


def at_terminal(
    workspace: StorageWorkspace, words: list[str], typed: str = "", **env: str
) -> tuple[int, str]:
    """Run `pai` at a pseudo-terminal; its status and output."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["pai", *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=workspace.local,
        env=workspace.person.env(**env),
    )
    os.close(slave)
    shown = b""
    if typed:
        os.write(master, typed.encode())
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        shown += data
    os.close(master)
    return process.wait(90), shown.decode()


def test_removal_of_a_non_empty_folder_asks_once(workspace: StorageWorkspace) -> None:
    workspace.write("d/f")
    workspace.ok("copy", "d", workspace.remote)
    status, shown = at_terminal(workspace, ["remove", f"{workspace.remote}/d"], "n\n")
    assert status == 1 and "with all contents? [y/N]" in shown and workspace.names() == ["d/f"]
    status, _ = at_terminal(workspace, ["remove", f"{workspace.remote}/d/f"])
    assert status == 0
    status, shown = at_terminal(workspace, ["remove", f"{workspace.remote}/d"])
    assert status == 0 and "?" not in shown  # it is empty now
    workspace.ok("copy", "d", workspace.remote)
    status, shown = at_terminal(workspace, ["remove", f"{workspace.remote}/d"], "y\n")
    assert status == 0 and shown.count("?") == 1 and workspace.names() == []
    workspace.ok("copy", "d", workspace.remote)
    status, shown = at_terminal(workspace, ["remove", "-y", f"{workspace.remote}/d"])
    assert status == 0 and "?" not in shown


def test_progress_bar_shows_rate_and_time_left(workspace: StorageWorkspace) -> None:
    proxy = FaultyProxy(workspace.url)
    proxy.rate = 8e6
    try:
        book = workspace.person.home / ".openpai/clusters.yaml"
        before = book.read_text()
        book.write_text(before.replace(workspace.url, proxy.url))
        workspace.write("f", os.urandom(1 << 20) * 24)
        status, shown = at_terminal(workspace, ["copy", "--http", "f", f"{workspace.remote}/f"])
        assert status == 0
        assert "1 file, 24 MB, all new" in shown
        assert "%" in shown and "MB/s" in shown and "left" in shown and " of 24 MB" in shown
        assert shown.endswith("\r\x1b[K")
    finally:
        book.write_text(before)
        proxy.close()


def test_progress_of_a_pack_advances_within_a_large_file(workspace: StorageWorkspace) -> None:
    proxy = FaultyProxy(workspace.url)
    proxy.rate = 8e6
    book = workspace.person.home / ".openpai/clusters.yaml"
    before = book.read_text()
    try:
        book.write_text(before.replace(workspace.url, proxy.url))
        workspace.write("d/f", os.urandom(1 << 20) * 24)
        words = ["pack", "d", f"{workspace.remote}/packed"]
        status, shown = at_terminal(workspace, words, PAI_STORAGE_HTTP="1")
    finally:
        book.write_text(before)
        proxy.close()
    assert status == 0 and "1 record in 1 shard, 24 MB: " in shown
    shares = {int(share) for share in re.findall(r"(\d+)%  [\d.]+ MB of 24 MB", shown)}
    assert shares - {0, 100}, shown


def test_no_progress_bar_without_a_terminal(workspace: StorageWorkspace) -> None:
    workspace.write("f", os.urandom(1 << 20) * 24)
    done = workspace.pai("copy", "f", f"{workspace.remote}/f")
    assert (done.out, done.err) == ("", "1 file, 24 MB, all new\n")


def test_hdfs_url_resolves_to_its_cluster(workspace: StorageWorkspace) -> None:
    workspace.write("f", b"1")
    workspace.ok("copy", "f", f"{workspace.remote}/f")
    where = workspace.url.removeprefix("http://")
    assert workspace.ok("listdir", f"hdfs://{where}{workspace.path}") == "f\n"
    other = {"PAI_DEFAULT_FS_URI": "hdfs://somewhere:9000"}
    assert workspace.ok("listdir", f"hdfs://somewhere:9000{workspace.path}", env=other) == "f\n"
