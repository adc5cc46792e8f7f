"""Parallel calls to several clusters: one that is down does not delay the others for long."""

from __future__ import annotations

from paiprotocol.errors import ConnectionFailed, PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CALL_TIMEOUT_S = 12.0
"""Slightly longer than a connect timeout, so that an unreachable cluster reports its own error."""
NOTICE_AFTER_S = 1.5


class ClusterCall:
    """One call to one cluster. After ``run`` either ``result`` or ``error`` is set."""

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


def report_failures(calls: list[ClusterCall], report: Callable[[str], None]) -> int:
    """Report the clusters that failed and return the exit status; the error of a single call is raised."""
    failed = [call for call in calls if call.error is not None]
    if len(calls) == 1 and failed and failed[0].error:
        raise failed[0].error
    for call in failed:
        if call.error:
            report(f"pai: {call.error.message}" + (f" {call.error.hint}" if call.error.hint else ""))
    return 1 if failed else 0


def call_all(
    calls: list[ClusterCall], timeout_s: float = CALL_TIMEOUT_S, notify: Callable[[str], None] | None = None
) -> None:
    """Run all calls and wait for them; a call that does not return in time gets an error."""
    if len(calls) == 1:  # no thread needed: most users have one cluster
        calls[0].run()
        return
    import threading
    import time

    threads = [threading.Thread(target=c.run, daemon=True) for c in calls]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    for wait in (min(NOTICE_AFTER_S, timeout_s), timeout_s):
        for thread in threads:
            thread.join(max(0.0, began + wait - time.monotonic()))
        late = [c for thread, c in zip(threads, calls, strict=True) if thread.is_alive()]
        if late and wait < timeout_s and notify:
            notify(f"Waiting for {', '.join(c.alias for c in late)} ...")
    for c in late:
        if c.error is None and c.result is None:
            c.error = ConnectionFailed(
                f"The cluster {c.alias} did not respond within {timeout_s:.0f} seconds."
            )
