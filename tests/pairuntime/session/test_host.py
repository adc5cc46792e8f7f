"""Host of exec sessions as a process."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

from paicluster.engines.common import session_host
from pairuntime.session import host as session_process
from pairuntime.session import messages, websocket
from pairuntime.supervisor import exit_record
from support.import_budget import HEAVY


def test_host_imports_little(tmp_path: Path) -> None:
    """Every command waits for the start of its host."""
    python, *arguments = session_host.host_in_task(tmp_path)
    ran = subprocess.run(
        [python, "-X", "importtime", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "pairuntime.session.host" in imported
    assert not imported & (HEAVY | {"ctypes", "enum", "re", "json.decoder", "socket", "struct", "termios"})


def test_client_of_a_task_that_has_just_ended_is_told_so(tmp_path: Path) -> None:
    """Nothing of the attempt is left in its folder."""
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(session_host.host_in_task(tmp_path), stdin=theirs) as host:
        start = json.dumps({"type": messages.START, "command": ["true"]}).encode()
        ours.sendall(websocket.frame(websocket.TEXT, start, masked=True))
        assert host.wait(60) == 0
        ours.settimeout(60)
        received = ours.recv(1 << 16)
    assert b'"message": "The task has just ended, so no command can be run in it."' in received


def test_host_knows_the_exit_record_by_its_name() -> None:
    assert session_process._EXIT_RECORD == exit_record.NAME
