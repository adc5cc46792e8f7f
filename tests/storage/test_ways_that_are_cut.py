"""How long a part is tried again when the way to the storage is cut."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

import pytest

from openpaisdk.errors import ConnectionFailed
from openpaisdk.storage import lines
from openpaisdk.storage.lines import persistent


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PATIENCE", 0.3)


class Way:
    """Cut so often, each time after a while."""

    def __init__(self, cuts: int, after_s: float):
        self.cuts = cuts
        self.after_s = after_s
        self.tries = 0

    def __call__(self) -> str:
        self.tries += 1
        if self.tries <= self.cuts:
            time.sleep(self.after_s)
            raise ConnectionFailed("cut")
        return "all of it"


def test_a_cut_after_a_long_while_is_tried_again_like_one_at_once() -> None:
    assert persistent(Way(1, 0.0)) == "all of it"
    assert persistent(Way(1, 0.5)) == "all of it"
    assert persistent(Way(3, 0.4)) == "all of it"


def test_nobody_tries_for_ever() -> None:
    for after_s in (0.0, 0.35):
        way = Way(1000, after_s)
        with pytest.raises(ConnectionFailed):
            persistent(way)
        assert 1 < way.tries < 10


def test_patience_inside_patience_takes_no_longer() -> None:
    way = Way(1000, 0.0)
    began = time.monotonic()
    with pytest.raises(ConnectionFailed):
        persistent(lambda: persistent(lambda: persistent(way)))
    assert time.monotonic() - began < 0.9
    assert way.tries > 1
    assert persistent(Way(1, 0.0)) == "all of it"


@pytest.mark.skipif(sys.platform != "linux", reason="open files are handed over on Linux only")
def test_all_who_talk_to_a_server_that_is_gone_are_told_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from openpaisdk.storage.handover import Conversation

    monkeypatch.setattr(lines, "PATIENCE", 0.8)

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("")
    listener.listen()
    name = listener.getsockname()[1:].decode()
    answers = iter([{"socket": name, "ticket": "t", "pid": os.getpid(), "uid": os.geteuid()}])

    def invited() -> dict[str, object]:
        if (answer := next(answers, None)) is None:
            raise ConnectionFailed("gone")
        return dict(answer)

    def serve_once() -> None:
        talk, _ = listener.accept()
        talk.recv(1 << 16)
        talk.sendall(b"{}\n")
        talk.close()

    server = threading.Thread(target=serve_once)
    server.start()
    talk = Conversation(invited)
    server.join()
    listener.close()
    told: list[float] = []

    def ask() -> None:
        began = time.monotonic()
        with pytest.raises(ConnectionFailed):
            talk.finish("an upload", {})
        told.append(time.monotonic() - began)

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert len(told) == 4 and max(told) < 1.6
