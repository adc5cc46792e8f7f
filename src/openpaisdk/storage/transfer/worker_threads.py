"""Threads that do the same work, while the calling thread shows progress."""

from __future__ import annotations

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WATCH_INTERVAL_S = 0.1


def run_threads(
    work: Callable[[], None],
    count: int,
    name: str,
    *,
    watch: Callable[[], None] | None,
    cancel: Callable[[BaseException], None],
    joins: bool = False,
) -> None:
    """Run ``work`` in that many threads until all of them return; ``watch`` is called from this thread.

    ``cancel`` is called if this thread is interrupted meanwhile: it makes ``work`` return soon. With
    ``joins`` that is waited for, so that unfinished work is abandoned before the process ends.
    """
    threads = [threading.Thread(target=work, daemon=True, name=f"{name}-{i}") for i in range(count)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(WATCH_INTERVAL_S)
                if watch is not None:
                    watch()
    except BaseException as e:
        cancel(e)
        for thread in threads if joins else ():
            thread.join()
        raise
