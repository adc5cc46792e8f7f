"""Loops that an engine runs for as long as the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

RESTART_DELAY_S = 1.0


async def restart_on_error(work: Callable[[], Coroutine[Any, Any, None]], log: logging.Logger) -> None:
    """Run a loop, and run it again when it fails: without it no change would be noticed any more."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("A background loop of the engine failed; restarting it.")
            await asyncio.sleep(RESTART_DELAY_S)
