"""The SFTP server of tasks, with OpenSSH's client and with broken packets."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pairuntime.session import sftp_server
from support.ssh_client import install_openssh

PROGRAM = Path(sftp_server.__file__)
DEADLINE_S = 60


def serve(data: bytes, folder: Path) -> bytes:
    """What the server answers to these bytes."""
    return subprocess.run(
        [sys.executable, "-I", "-S", PROGRAM],
        input=data,
        capture_output=True,
        cwd=folder,
        timeout=DEADLINE_S,
        check=True,
    ).stdout


def packet(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I", len(body)) + body


def text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def replies(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


def statuses(data: bytes) -> list[int]:
    """Codes of the replies that are statuses."""
    return [int.from_bytes(reply[5:9], "big") for reply in replies(data) if reply[0] == 101]


def test_openssh_client_does_everything_with_files(tmp_path: Path) -> None:
    install_openssh()
    (tmp_path / "data").write_bytes(os.urandom(2_000_000))
    batch = (
        "mkdir d\nput data d/up\nget d/up down\nrename d/up d/moved\nchmod 600 d/moved\n"
        "symlink moved d/link\nln d/moved d/hard\nls -l d\ndf .\n"
        "rm d/hard\nrm d/link\nrm d/moved\nrmdir d\npwd\n"
    )
    done = subprocess.run(
        ["sftp", "-b", "-", "-D", f"{sys.executable} -I -S {PROGRAM}"],
        input=batch,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done
    assert "lrwxrwxrwx" in done.stdout and "-rw-------" in done.stdout
    assert (tmp_path / "down").read_bytes() == (tmp_path / "data").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["data", "down"]


@pytest.mark.parametrize(
    "request_",
    [b"\x03", b"\x03\0\0\0\x01\xff\xff\xff\xff", b"\x05\0\0\0\x01", b"\x0e\0\0\0\x01\0\0\0\x09ab"],
)
def test_short_packet_is_an_error_or_the_end(tmp_path: Path, request_: bytes) -> None:
    answer = serve(packet(b"\x01\0\0\0\x03") + packet(request_), tmp_path)
    assert replies(answer)[0][:5] == b"\x02\0\0\0\x03"
    assert statuses(answer) in ([], [5])


def test_huge_packet_ends_the_session_before_it_is_read(tmp_path: Path) -> None:
    assert serve(struct.pack(">I", 1 << 31) + b"x" * 100, tmp_path) == b""


def test_unknown_operations_handles_and_paths_are_statuses(tmp_path: Path) -> None:
    number = b"\0\0\0\x07"
    requests = [
        packet(b"\x63", number),
        packet(b"\xc8", number, text(b"nosuch@example.com")),
        packet(b"\x04", number, text(b"no handle")),
        packet(b"\x11", number, text(b"missing")),
        packet(b"\x11", number, text(b"zero\0byte")),
        packet(b"\x0d", number, text(b".")),
    ]
    assert statuses(serve(b"".join(requests), tmp_path)) == [8, 8, 4, 2, 2, 4]


def test_number_of_open_files_is_limited(tmp_path: Path) -> None:
    one = packet(b"\x0b", b"\0\0\0\x01", text(b"."))
    answer = serve(one * 901, tmp_path)
    assert len(replies(answer)) == 901 and statuses(answer) == [4]


def test_rename_replaces_only_where_the_client_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "new").write_text("new")
    names = text(b"old") + text(b"new")
    assert statuses(serve(packet(b"\x12", b"\0\0\0\x01", names), tmp_path)) == [4]
    assert (tmp_path / "new").read_text() == "new"
    posix = packet(b"\xc8", b"\0\0\0\x01", text(b"posix-rename@openssh.com"), names)
    assert statuses(serve(posix, tmp_path)) == [0]
    assert (tmp_path / "new").read_text() == "old"
