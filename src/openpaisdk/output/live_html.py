"""HTML output of a notebook that is updated while it is displayed.

Where there is no notebook, nothing is shown here, and the object's ordinary representations are used. IPython
is imported only where it runs already.
"""

from __future__ import annotations

import sys
import threading
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Render = Callable[[], "View"]

MAX_LIVE = 16
"""Outputs that are updated at a time, each by a thread with requests; a newer one ends the oldest."""
MAX_TIME_S = 12 * 3600
"""An output is not updated for longer than this: the notebook may have been closed."""
INTERVALS_S = (0.5, 10.0)
"""Pause before the first update and longest pause between two; it grows while nothing changes."""


class View:
    """HTML at one moment; ``is_final`` if it will not change again."""

    __slots__ = ("html", "is_final")

    def __init__(self, html: str, is_final: bool = False):
        self.html = html
        self.is_final = is_final


class LiveOutput:
    """One output of a cell. ``plain`` is shown by frontends without HTML."""

    def __init__(self, html: str, plain: str):
        from IPython.display import display

        self._html, self._plain = html, plain
        self._handle: Any = display(  # type: ignore[no-untyped-call]
            self._content(), raw=True, display_id=True
        )
        self.is_closed = threading.Event()

    def show(self, html: str) -> bool:
        """Replace the output; returns whether that changed anything."""
        if html == self._html:
            return False
        self._html = html
        if self._handle is not None:
            self._handle.update(self._content(), raw=True)
        return True

    def _content(self) -> dict[str, str]:
        return {"text/html": self._html, "text/plain": self._plain}


_live: deque[LiveOutput] = deque()
_live_lock = threading.Lock()


def show_live(html: str, plain: str, render: Render) -> bool:
    """Show HTML in a notebook, and what ``render`` returns from then on; False where there is no notebook.

    ``render`` is called by a thread, and raises nothing that should be seen: an error ends the updates.
    """
    if not is_notebook():
        return False
    output = LiveOutput(html, plain)
    with _live_lock:
        _live.append(output)
        while len(_live) > MAX_LIVE:
            _live.popleft().is_closed.set()
    threading.Thread(target=_update, args=(output, render), name="live output", daemon=True).start()
    return True


def _update(output: LiveOutput, render: Render) -> None:
    import time

    pause, longest = INTERVALS_S
    deadline = time.monotonic() + MAX_TIME_S
    try:
        while time.monotonic() < deadline:
            view = render()
            pause = INTERVALS_S[0] if output.show(view.html) else min(pause * 1.5, longest)
            if view.is_final or output.is_closed.wait(pause):
                return
    except Exception:  # the last view stays; a traceback in a thread would appear in some other cell
        return
    finally:
        with _live_lock:
            if output in _live:
                _live.remove(output)


def is_notebook() -> bool:
    """Whether this program runs in a notebook's kernel. IPython is never imported for the answer."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    return getattr(shell, "kernel", None) is not None
