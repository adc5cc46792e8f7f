"""What only a person at a terminal sees: a bar, and a question before a folder goes."""

from __future__ import annotations

import os
import pty
import subprocess

from support.faulty_proxy import BadWire
from support.storage_fixture import Desk


def at_terminal(desk: Desk, words: list[str], typed: str = "") -> tuple[int, str]:
    """Run `pai` at a terminal; what it showed there."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["pai", *words], stdin=slave, stdout=slave, stderr=slave, cwd=desk.here, env=desk.person.env()
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
    return process.wait(30), shown.decode()


def test_a_full_folder_is_asked_about_once(desk: Desk) -> None:
    desk.write("d/f")
    desk.ok("copy", "d", desk.there)
    status, shown = at_terminal(desk, ["remove", f"{desk.there}/d"], "n\n")
    assert status == 1 and "with all contents? [y/N]" in shown and desk.names() == ["d/f"]
    status, _ = at_terminal(desk, ["remove", f"{desk.there}/d/f"])
    assert status == 0
    status, shown = at_terminal(desk, ["remove", f"{desk.there}/d"])
    assert status == 0 and "?" not in shown  # it is empty now
    desk.ok("copy", "d", desk.there)
    status, shown = at_terminal(desk, ["remove", f"{desk.there}/d"], "y\n")
    assert status == 0 and shown.count("?") == 1 and desk.names() == []
    desk.ok("copy", "d", desk.there)
    status, shown = at_terminal(desk, ["remove", "-y", f"{desk.there}/d"])
    assert status == 0 and "?" not in shown


def test_a_bar_shows_rate_and_time_left_and_goes_away(desk: Desk) -> None:
    wire = BadWire(desk.url)
    wire.rate = 8e6
    try:
        book = desk.person.home / ".openpai/clusters.yaml"
        before = book.read_text()
        book.write_text(before.replace(desk.url, wire.url))
        desk.write("f", os.urandom(1 << 20) * 24)
        status, shown = at_terminal(desk, ["copy", "--http", "f", f"{desk.there}/f"])
        assert status == 0
        assert "1 file, 24 MB, all new" in shown
        assert "%" in shown and "MB/s" in shown and "left" in shown and " of 24 MB" in shown
        assert shown.endswith("\r\x1b[K")
    finally:
        book.write_text(before)
        wire.close()


def test_in_a_pipe_there_is_no_bar(desk: Desk) -> None:
    desk.write("f", os.urandom(1 << 20) * 24)
    done = desk.pai("copy", "f", f"{desk.there}/f")
    assert (done.out, done.err) == ("", "1 file, 24 MB, all new\n")


def test_an_address_of_hdfs_finds_the_cluster_that_has_it(desk: Desk) -> None:
    desk.write("f", b"1")
    desk.ok("copy", "f", f"{desk.there}/f")
    where = desk.url.removeprefix("http://")
    assert desk.ok("listdir", f"hdfs://{where}{desk.path}") == "f\n"
    other = {"PAI_DEFAULT_FS_URI": "hdfs://somewhere:9000"}
    assert desk.ok("listdir", f"hdfs://somewhere:9000{desk.path}", env=other) == "f\n"
