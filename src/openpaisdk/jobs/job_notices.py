"""Notices of a followed job: the changes that a user who waits for it should see."""

from __future__ import annotations

from openpaisdk.client.models import is_pending_event, number, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from openpaisdk.client.follow_stream import Frame

WAITING = "WAITING"
STATE, EVENT, CONNECTION = "state", "event", "connection"
"""Kinds of notices."""
DEGRADED, RECOVERED = "Degraded", "Recovered"
UNMET_REQUESTS = frozenset(("ImageNotUsed", "StorageNotMounted"))
"""Events of a job about what it asked for and the cluster does not have."""
# Steps that take minutes and would otherwise look like a hang, and the end of a reported problem.
_SHOWN_REASONS = frozenset(("Pulling", "Pulled", RECOVERED))
# A job that is retried has the same reasons in turn, each time: they are reported again after this time.
_REPEAT_INTERVAL_MS = 5 * 60 * 1000


class JobNotice:
    """A new state of a job, or a message about it or about the connection to its cluster."""

    __slots__ = ("is_warning", "kind", "text")

    def __init__(self, kind: str, text: str, is_warning: bool = False):
        self.kind = kind
        self.text = text
        self.is_warning = is_warning


class EventFilter:
    """Selects the events that are worth a notice; each message once, until a problem has ended.

    ``already_shown``: messages that are not reported again.
    """

    def __init__(self, already_shown: Iterable[str] = ()) -> None:
        self._reported: set[str] = set(already_shown)

    def notice(self, frame: Frame) -> JobNotice | None:
        """The notice of an event or of a change of the connection; None if there is nothing to show."""
        if frame.kind == "lost":
            lost = "Connection to the cluster lost. Reconnecting (Ctrl-C stops following; the job continues)."
            return JobNotice(CONNECTION, lost)
        if frame.kind == "back":
            return JobNotice(CONNECTION, "Reconnected to the cluster.")
        is_warning = text(frame.head, "type") == "Warning"
        if frame.kind != "event" or not (is_warning or text(frame.head, "reason") in _SHOWN_REASONS):
            return None
        if text(frame.head, "reason") == RECOVERED:
            self._reported.clear()
        message = text(frame.head, "message")
        if message in self._reported:
            return None
        self._reported.add(message)
        return JobNotice(EVENT, message, is_warning)

    def forget(self, message: str) -> None:
        """Report this message again when it comes again."""
        self._reported.discard(message)


def job_notices(frames: Iterable[Frame], already_shown: Iterable[str] = ()) -> Iterator[JobNotice]:
    """The changes of state, the reason while the job is pending, what it asked for and does not get, and
    problems of cluster and connection.

    ``already_shown``: messages that are not reported again.
    """
    events, unmet = EventFilter(), EventFilter(already_shown)
    state = ""
    pending: Frame | None = None
    since = 0
    reported_at: dict[str, int] = {}  # times of pending reasons in ms
    for frame in frames:
        notice = None
        if frame.kind in ("state", "end"):
            now = text(frame.head, "state")
            notice = JobNotice(STATE, now) if now != state else None
            state = now
        elif frame.kind == "event" and text(frame.head, "reason") in UNMET_REQUESTS:
            notice = unmet.notice(frame)
        elif frame.kind == "event" and text(frame.head, "reason") not in (DEGRADED, RECOVERED):
            # After a reconnect all events are sent again; only later ones are new.
            event_time = number(frame.head, "time") or since + 1
            if is_pending_event(frame.head) and event_time >= since:
                pending, since = frame, event_time
        else:
            notice = events.notice(frame)
        if notice:
            yield notice
        # Events may arrive before the state, and the events of a running job describe its past.
        if pending and state == WAITING:
            reason = text(pending.head, "message")
            if since - reported_at.get(reason, since) >= _REPEAT_INTERVAL_MS:
                events.forget(reason)
            notice = events.notice(pending)
            pending = None
            if notice:
                reported_at[reason] = since
                yield notice
