"""Why jobs wait, beside a page of the list of jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from openpaisdk.protocol.states import KEEP_WAITING
from paicluster.store.compiled_statements import execute
from paicluster.store.job_listing import ListPage

_AT_ONCE = 500
_decode = msgspec.json.Decoder(list[dict[str, Any]]).decode
_encode = msgspec.json.encode


def with_reasons(conn: Connection, page: ListPage, trouble: Callable[[str], str]) -> ListPage:
    """The same page; of each job that waits it also tells why, or None where the cluster never said it.

    ``trouble`` of a job, by its full name, comes before all that was said of it.
    """
    if b'"WAITING"' not in page.json:
        return page
    found = _decode(b"[%b]" % page.json)
    waiting = {f"{one['username']}~{one['name']}": one for one in found if one["state"] == "WAITING"}
    reasons = {name: why for name in waiting if (why := trouble(name))}
    names = [name for name in waiting if name not in reasons]
    for start in range(0, len(names), _AT_ONCE):
        reasons.update(reasons_of(conn, names[start : start + _AT_ONCE]))
    for name, one in waiting.items():
        one["reason"] = reasons.get(name)
    return ListPage(_encode(found)[1:-1], page.total)


def reasons_of(conn: Connection, names: Sequence[str]) -> dict[str, str]:
    """What was last said of each of these jobs, by full name, about why it waits."""
    text = (
        "SELECT jobs.framework, events.message FROM jobs JOIN events ON events.job_id = jobs.id"
        f" WHERE jobs.framework IN ({_marks(names)}) AND events.reason IN ({_marks(KEEP_WAITING)})"
        " ORDER BY events.id"
    )
    return dict(execute(conn, text, (*names, *KEEP_WAITING)).fetchall())


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
