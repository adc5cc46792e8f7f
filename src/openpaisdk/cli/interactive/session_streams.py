"""Streams of a session on this side: stdin, stdout, stderr, signals and the size of the terminal."""

from __future__ import annotations

import os
import signal
import sys

from openpaisdk.client.session import CHUNK_BYTES, STDERR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client.session import Session

_FD_OF_STREAM = {STDERR: 2}
# The key that ends the input on a terminal (Ctrl-D).
_END_OF_FILE = b"\x04"


def window_size() -> tuple[int, int]:
    """Rows and columns of the terminal of stdin or stdout; the usual size if there is none."""
    for fd in (0, 1):
        try:
            size = os.get_terminal_size(fd)
        except OSError:
            continue
        if size.lines > 0 and size.columns > 0:
            return size.lines, size.columns
    return 24, 80


class SessionStreams:
    """Local streams of a session. ``has_terminal``: the command has one. ``is_raw``: ours sends each key."""

    def __init__(self, session: Session, *, reads_stdin: bool, has_terminal: bool, is_raw: bool):
        self._session = session
        self._has_terminal = has_terminal
        self._reads_stdin = reads_stdin
        self._is_raw = is_raw
        self._is_line_start = True
        self._interrupts = 0
        self._was_resized = False

    def run(self) -> int:
        """Copy until the command has ended; returns its exit status."""
        if not self._reads_stdin:
            self._session.end_stdin()
        if sys.platform == "win32":
            status = self._copy_output()
        else:
            status = self._run_with_signals()
        return status

    if sys.platform != "win32":

        def _run_with_signals(self) -> int:
            restore = _set_raw(0) if self._is_raw else None
            wake_r, wake_w = os.pipe()
            os.set_blocking(wake_w, False)
            signal.set_wakeup_fd(wake_w)
            signal.signal(signal.SIGINT, self._on_interrupt)
            if self._is_raw:
                signal.signal(signal.SIGWINCH, self._on_resize)
            try:
                return self._copy(wake_r)
            finally:
                signal.set_wakeup_fd(-1)
                if restore is not None:
                    restore()
                self._session.close()

    def _on_interrupt(self, signum: int, frame: object) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            # The command does not react to the first one: the end of the connection ends it.
            raise KeyboardInterrupt

    def _on_resize(self, signum: int, frame: object) -> None:
        self._was_resized = True

    def _copy(self, wake: int) -> int:
        import select

        session = self._session
        while session.exit_status is None:
            sources = [session.fileno(), wake]
            if self._reads_stdin and session.stdin_credit > 0:
                sources.append(0)
            ready = select.select(sources, [], [], 0 if session.has_received else None)[0]
            if wake in ready:
                os.read(wake, CHUNK_BYTES)
                self._send_signals()
            if session.fileno() in ready or session.has_received:
                self._receive()
            if 0 in ready:
                self._read_stdin()
        return session.exit_status

    def _copy_output(self) -> int:
        while self._session.exit_status is None:
            self._receive()
        return self._session.exit_status

    def _send_signals(self) -> None:
        if self._interrupts == 1:
            self._session.send_signal("INT")
        if self._was_resized:
            # However often it was resized since the last time.
            self._was_resized = False
            self._session.resize(*window_size())

    def _receive(self) -> None:
        for stream, data in self._session.receive():
            _write(_FD_OF_STREAM.get(stream, 1), data)

    def _read_stdin(self) -> None:
        data = os.read(0, min(CHUNK_BYTES, self._session.stdin_credit))
        if data:
            self._is_line_start = data.endswith(b"\n")
            self._session.send_stdin(data)
        else:
            self._reads_stdin = False
            if self._has_terminal:
                # In the middle of a line, the first one only ends the line.
                self._session.send_stdin(_END_OF_FILE if self._is_line_start else 2 * _END_OF_FILE)
            else:
                self._session.end_stdin()


def _write(fd: int, data: bytes) -> None:
    """Write all of it, also to a terminal or pipe that another program has made non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            import select

            select.select([], [fd], [])


if sys.platform != "win32":
    from collections.abc import Callable

    def _set_raw(fd: int) -> Callable[[], None]:
        """Pass every key on as it is; returns what restores the terminal."""
        import termios
        import tty

        before = termios.tcgetattr(fd)
        # What was typed ahead stays.
        tty.setraw(fd, termios.TCSADRAIN)
        return lambda: termios.tcsetattr(fd, termios.TCSADRAIN, before)
