"""Opening of a page in the user's web browser, where there is one."""

from __future__ import annotations

import os
import sys


def open_page(address: str) -> bool:
    """Open an address in the browser; False if it could not be started."""
    import webbrowser

    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False


def has_display() -> bool:
    """Whether pages can be shown. Without a display the browser would be one that occupies the terminal."""
    return sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    )
