"""Terminal of a given size: starts a program on it, collects what it writes, and types."""

import fcntl
import os
import pty
import re
import selectors
import signal
import struct
import subprocess
import termios
import time

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HOME, _CLEAR_BELOW, _LEAVE = "\x1b[H", "\x1b[J", "\x1b[?7h\x1b[?25h\x1b[?1049l"


def is_readable(fd: int, timeout_s: float) -> bool:
    """Whether there is something to read within the time."""
    # `select.select` refuses descriptors above 1023, which the process of many tests may have.
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


class Terminal:
    """A program on a pseudo-terminal. ``text`` is what it has written so far."""

    def __init__(self, command: list[str], columns: int = 80, lines: int = 24, **options):
        self._master, slave = pty.openpty()
        self._slave_name = os.ttyname(slave)
        self.resize(columns, lines)
        self.text = ""
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            # The terminal becomes the program's own, so that typed control characters reach it as signals.
            preexec_fn=lambda: (
                fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                signal.signal(signal.SIGINT, signal.SIG_DFL),
            ),
            **options,
        )
        os.close(slave)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def read(self, timeout_s: float = 0.05) -> bool:
        """Read what there is; False when the program has closed the terminal."""
        if is_readable(self._master, timeout_s):
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:
                return False
            self.text += data.decode("utf-8", "replace")
            return bool(data)
        return True

    def wait_for(self, text: str, within_s: float = 90.0) -> None:
        deadline = time.monotonic() + within_s
        while text not in self.text:
            assert self.read(), f"the program ended without {text!r}: {self.text}"
            assert time.monotonic() < deadline, f"{text!r} did not appear: {self.text}"

    def finish(self, within_s: float = 90.0) -> int:
        """Read until the program ends; returns its exit status."""
        deadline = time.monotonic() + within_s
        while self.read():
            assert time.monotonic() < deadline, f"the program did not end: {self.text}"
        status = self.process.wait(90)
        os.close(self._master)
        return status

    @property
    def lines(self) -> list[str]:
        """The written lines without control sequences."""
        return [line.rstrip("\r") for line in _CONTROL.sub("", self.text).split("\n")]

    def pictures(self) -> list[list[str]]:
        """The complete pictures of a display that is redrawn from its top."""
        return [
            [line.rstrip("\r") for line in _CONTROL.sub("", picture).split("\n")]
            for picture in self.text.partition(_LEAVE)[0].split(_HOME)[1:]
            if _CLEAR_BELOW in picture  # its end; the last one may not have arrived whole
        ]


def run_on_terminal(user, *words: str, columns: int = 80, lines: int = 24) -> Terminal:
    """``pai`` on a terminal, until it ends."""
    terminal = start_on_terminal(user, *words, columns=columns, lines=lines)
    assert terminal.finish() == 0, terminal.text
    return terminal


def start_on_terminal(user, *words: str, columns: int = 80, lines: int = 24) -> Terminal:
    env = {name: value for name, value in user.env().items() if name not in ("COLUMNS", "LINES")}
    return Terminal(["pai", *words], columns, lines, cwd=user.project, env=env)
