"""Several clusters are asked at once: one that is down holds up nobody for long."""

from __future__ import annotations

from openpaisdk.errors import ConnectionFailed, PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CALL_TIMEOUT_S = 12.0
"""A little longer than it takes to find out that nothing answers."""
NOTICE_AFTER_S = 1.5


class ClusterCall:
    """What one cluster is asked. ``answer`` or ``error``, once it was."""

    __slots__ = ("alias", "call", "error", "result")

    def __init__(self, alias: str, call: Callable[[], Any]):
        self.alias = alias
        self.call = call
        self.result: Any = None
        self.error: PaiError | None = None

    def run(self) -> None:
        try:
            self.result = self.call()
        except PaiError as e:
            self.error = e


def call_all(
    calls: list[ClusterCall], timeout_s: float = CALL_TIMEOUT_S, notify: Callable[[str], None] | None = None
) -> None:
    """Put every question, and wait for the answers; one that never comes is an error of its own."""
    if len(calls) == 1:  # no thread for one: most people have one cluster
        calls[0].run()
        return
    import threading
    import time

    threads = [threading.Thread(target=q.run, daemon=True) for q in calls]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    for wait in (min(NOTICE_AFTER_S, timeout_s), timeout_s):
        for thread in threads:
            thread.join(max(0.0, began + wait - time.monotonic()))
        late = [q for thread, q in zip(threads, calls, strict=True) if thread.is_alive()]
        if late and wait < timeout_s and notify:
            notify(f"Waiting for {', '.join(q.alias for q in late)} ...")
    for q in late:
        if q.error is None and q.result is None:
            q.error = ConnectionFailed(
                f"The cluster {q.alias} did not answer within {timeout_s:.0f} seconds."
            )
