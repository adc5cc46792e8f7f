"""Views of futures in a notebook: the progress of calls, up to date while they are displayed.

The states are those that the futures have anyway: a view asks no cluster.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from openpaisdk.output.html import html_fields, html_progress
from openpaisdk.output.live_html import View, show_live

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openpaisdk.output.live_html import Render

STATES = ("done", "failed", "cancelled", "running", "waiting")


class _Cluster(Protocol):
    @property
    def alias(self) -> str: ...


class Call(Protocol):
    """What is shown of a future."""

    @property
    def is_submitted(self) -> bool: ...

    @property
    def job(self) -> str: ...

    @property
    def job_id(self) -> str: ...

    @property
    def cluster(self) -> _Cluster: ...

    @property
    def pending_reason(self) -> str: ...

    def running(self) -> bool: ...

    def done(self) -> bool: ...

    def cancelled(self) -> bool: ...

    def exception(self) -> BaseException | None: ...


def state_of(future: Call) -> str:
    """The state of a call as a word for people."""
    if future.running():
        return "running"
    if not future.done():
        return "waiting" if future.is_submitted else "in a batch"
    if future.cancelled():
        return "cancelled"
    return "done" if future.exception() is None else "failed"


def count_states(futures: Sequence[Call]) -> dict[str, int]:
    """Number of calls in each state; 0 for a state without calls."""
    counts = Counter(map(state_of, futures))
    return {state: counts[state] for state in STATES}


def html_of_call(future: Call) -> str:
    state = state_of(future)
    fields = {"call": future.job_id if future.is_submitted else "", "cluster": future.cluster.alias}
    error = future.exception() if state == "failed" else None
    reason = f": {type(error).__name__}: {error}" if error is not None else ""
    if state == "waiting" and future.pending_reason:
        reason = f": {future.pending_reason}"
    return html_fields({**fields, "state": state + reason})


def html_of_calls(futures: Sequence[Call]) -> str:
    if not futures:
        return "<p>no calls</p>"
    counts = count_states(futures)
    job = futures[0].job if futures[0].is_submitted else ""
    fields = {"job": job, "cluster": futures[0].cluster.alias, "calls": str(len(futures))}
    shown = {state: str(count) for state, count in counts.items() if count}
    ended = sum(future.done() for future in futures)
    return html_progress(ended, len(futures)) + html_fields({**fields, **shown})


def show_call(future: Call) -> None:
    """Show a call with its state until it has ended."""

    def render() -> View:
        is_final = future.done()
        return View(html_of_call(future), is_final)

    _show(html_of_call(future), repr(future), render)


def show_calls(futures: Sequence[Call]) -> None:
    """Show how many calls have ended, until all have."""

    def render() -> View:
        # Before the counts, which are then the last ones.
        is_final = all(future.done() for future in futures)
        return View(html_of_calls(futures), is_final)

    _show(html_of_calls(futures), repr(futures), render)


def _show(html: str, plain: str, render: Render) -> None:
    """Show a view that is updated, or leave it to the ordinary representations where there is no notebook."""
    if not show_live(html, plain, render):
        raise NotImplementedError
