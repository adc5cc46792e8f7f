"""Host of exec sessions as a process."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from paicluster.engines.common import session_host
from pairuntime.session import host as session_process
from pairuntime.supervisor import exit_record
from pairuntime.transport import session_messages, websocket
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
        start = json.dumps({"type": session_messages.START, "command": ["true"]}).encode()
        ours.sendall(websocket.frame(websocket.TEXT, start, masked=True))
        assert host.wait(60) == 0
        ours.settimeout(60)
        received = ours.recv(1 << 16)
    assert b'"message": "The task has just ended, so no command can be run in it."' in received


def test_host_knows_the_exit_record_by_its_name() -> None:
    assert session_process._EXIT_RECORD == exit_record.NAME


def test_forwarder_of_a_task_that_has_just_ended_ends_without_an_error(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ran = subprocess.run(
            session_host.local_forwarder(tmp_path), stdin=theirs, capture_output=True, timeout=60, check=False
        )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_signals_to_a_command_that_cannot_be_found_wait_once() -> None:
    """It has another environment than it was started with; each wait keeps its output from the client."""
    ours, theirs = socket.socketpair()
    command = ["env", "-i", "/bin/sh", "-c", "echo ready; while :; do sleep 0.05; done"]
    start = json.dumps({"type": session_messages.START, "command": command}).encode()
    winch, term = (
        json.dumps({"type": session_messages.SIGNAL, "name": name}).encode() for name in ("WINCH", "TERM")
    )
    received = b""
    ours.settimeout(60)
    with ours, theirs, subprocess.Popen(session_host.host_of_node(["env"]), stdin=theirs) as host:
        ours.sendall(websocket.frame(websocket.TEXT, start, masked=True))
        while b"ready" not in received:
            received += ours.recv(1 << 16)
        began = time.monotonic()
        for message in (*[winch] * 30, term):
            ours.sendall(websocket.frame(websocket.TEXT, message, masked=True))
        while b'"signal": "TERM"' not in received:
            received += ours.recv(1 << 16)
        # One wait takes half a second.
        assert time.monotonic() - began < 10
        ours.close()
        assert host.wait(60) == 0


# A host that the machine is slow to run: all that one signal brings about happens before the next is sent.
SLOW_HOST = """
import os, time
from pairuntime.session import host, remote_process
kill = os.kill
os.kill = lambda pid, signum: (kill(pid, signum), time.sleep(0.02))
host.run(remote_process.Entrance(prefix=("env",)))
"""


def test_shells_get_a_signal_before_their_children_die_of_it() -> None:
    """Otherwise they go on with their next command."""
    ours, theirs = socket.socketpair()
    # Shells that wait for each other, with gaps between the numbers of their processes, which so are in no
    # order by chance.
    gap = "env true; " * 4
    line = f'[ $1 = 0 ] && echo ready && exec sleep 600; {gap} sh -c "$0" "$0" $(($1 - 1)); echo goes on'
    start = json.dumps({"type": session_messages.START, "command": ["sh", "-c", line, line, "16"]}).encode()
    term = json.dumps({"type": session_messages.SIGNAL, "name": "TERM"}).encode()
    received = b""
    ours.settimeout(60)
    with ours, theirs, subprocess.Popen([sys.executable, "-c", SLOW_HOST], stdin=theirs) as host:
        ours.sendall(websocket.frame(websocket.TEXT, start, masked=True))
        while b"ready" not in received:
            received += ours.recv(1 << 16)
        ours.sendall(websocket.frame(websocket.TEXT, term, masked=True))
        while b'"exit"' not in received:
            received += ours.recv(1 << 16)
        assert b'"signal": "TERM"' in received and b"goes on" not in received, received
        assert host.wait(60) == 0
