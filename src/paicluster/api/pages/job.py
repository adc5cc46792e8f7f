"""The page of a job: how it is, its tasks with their logs, what happened, what was submitted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import PaiError
from openpaisdk.protocol import dump_yaml
from openpaisdk.protocol.states import framework_name, job_state
from paicluster.api.context import context
from paicluster.api.degraded import degraded_reason
from paicluster.api.pages.html import Html, element, join, page
from paicluster.api.pages.session import handle_login_form, session_user, sign_in_page, sign_out_form
from paicluster.api.permissions import check_may_see
from paicluster.api.request_fields import USERNAME
from paicluster.api.responses import error_response, int_param
from paicluster.api.v1.task_logs import log_address
from paicluster.api.v2.job_detail import job_status, port_lists
from paicluster.api.v2.jobs import config_as_json, job_and_attempt
from paicluster.auth.tokens import Identity
from paicluster.services.admission import no_job
from paicluster.store import jobs
from paicluster.store.reasons import reasons_of
from paicluster.store.rows import AttemptRow, EventRow, JobRow, JobSpecRow, TaskRow

_AGAIN_AFTER_S = 10
_MOST_TASKS = 500
_MOST_EVENTS = 50
# What a browser gets of a log at once.
_TAIL = 200_000
_STREAMS = ("all", "stdout", "stderr")


async def job_detail(request: Request) -> Response:
    """Where a person can see a job, once he has signed in."""
    try:
        framework = _framework(request)
        identity = await session_user(request)
        if identity is None:
            return sign_in_page(_title(framework), _at_the_command_line(framework))
        return await _job_page(request, identity, framework)
    except PaiError as error:
        return _refused(error)


async def sign(request: Request) -> Response:
    """Sign in at that page, or out."""
    try:
        framework = _framework(request)
    except PaiError as error:
        return _refused(error)
    try:
        return await handle_login_form(request)
    except PaiError as error:
        shown = sign_in_page(_title(framework), _at_the_command_line(framework), error=error)
        shown.headers.update({k: v for k, v in error_response(error).headers.items() if k in _OF_REFUSALS})
        return shown


_OF_REFUSALS = frozenset({"retry-after"})


def _framework(request: Request) -> str:
    get = request.query_params.get
    user, name = get("username", ""), get("jobName", "")
    if "~" in name and not user:
        user, _, name = name.partition("~")
    if not (USERNAME.fullmatch(user) and USERNAME.fullmatch(name)):
        raise PaiError("The address names no job: it needs a username and a jobName.", status=400)
    return framework_name(user, name)


def _title(framework: str) -> str:
    user, _, name = framework.partition("~")
    return f"Job {name} of {user}"


def _refused(error: PaiError) -> Response:
    return page("Job", element("h1", "Job"), element("p", error.message), status=error.status)


def _at_the_command_line(framework: str) -> Html:
    return join(
        element("h2", "From a shell"), element("pre", f"pai job-status {framework}\npai logs {framework}")
    )


@dataclass(frozen=True, slots=True)
class _JobView:
    row: JobRow
    attempt: AttemptRow | None
    number: int
    tasks: Sequence[TaskRow]
    events: Sequence[EventRow]
    spec: JobSpecRow | None
    waits_because: str | None
    trouble: str


async def _job_page(request: Request, identity: Identity, framework: str) -> Response:
    get = request.query_params.get
    wanted = int_param(get("attempt"), "attempt", maximum=10**9) if get("attempt") else None
    ctx = context(request)

    def read(conn: Connection) -> _JobView | None:
        found = job_and_attempt(conn, framework, wanted)
        if found is None:
            return None
        row, attempt, number = found
        check_may_see(identity, row)
        _, events = jobs.page_of_events(conn, row.id, None, 0, _MOST_EVENTS)
        tasks = jobs.tasks_of(conn, row.id, number)
        trouble = degraded_reason(row, ctx.degraded_reason(framework))
        waits = row.state == "WAITING" and not trouble
        why = reasons_of(conn, [framework]).get(framework) if waits else None
        return _JobView(row, attempt, number, tasks, events, jobs.job_spec(conn, row.id), why, trouble)

    seen = await ctx.store.read(read)
    if seen is None:
        raise no_job(framework)
    over = seen.row.sub_state == "Completed"
    return page(
        f"{seen.row.state} {framework}",
        element("div", element("h1", _title(framework)), sign_out_form(identity), class_="top"),
        _status(seen),
        _attempts(seen),
        _tasks(seen, log_address(request)),
        _events(seen.events),
        _config(seen),
        _at_the_command_line(framework),
        again_after_s=None if over else _AGAIN_AFTER_S,
    )


def _status(seen: _JobView) -> Html:
    status: dict[str, Any] = job_status(seen.row, seen.attempt)
    spec = status["appExitSpec"] or {}
    facts = {
        "Virtual cluster": status["virtualCluster"],
        "Priority": seen.row.priority,
        "Submitted": _time(status["submissionTime"]),
        "Started": _time(seen.row.launched_ms),
        "Ended": _time(status["completedTime"]),
        "Retries": status["retries"] or None,
        "Tags": ", ".join(json.loads(seen.row.tags)) or None,
        "Waits because": seen.waits_because,
        "Trouble": seen.trouble or None,
        "Exit code": _exit_code(status),
        "Reason": spec.get("reason") if status["appExitCode"] else None,
        "What to do": _lines(spec.get("solution") or ()) if status["appExitCode"] else None,
        "Said": status["appExitDiagnostics"],
    }
    rows = [
        element("tr", element("th", key), element("td", value))
        for key, value in facts.items()
        if value is not None
    ]
    return join(element("p", _badge(seen.row.state)), element("table", *rows))


def _exit_code(status: dict[str, Any]) -> object:
    runtime = (status["appExitMessages"] or {}).get("runtime") or {}
    return _both_codes(status["appExitCode"], runtime)


def _both_codes(code: int | None, told: Mapping[str, Any]) -> object:
    """The code of the program itself, with what was reported of it where that differs."""
    own = told.get("originUserExitCode", code)
    return code if own in (None, code) else f"{own} (reported as {code})"


def _lines(texts: Sequence[str]) -> Html | None:
    return join(*(element("div", text) for text in texts)) if texts else None


def _badge(state: str) -> Html:
    return element("span", state, class_=f"state {state}")


def _attempts(seen: _JobView) -> Html | None:
    """Links to the attempts before, where there are any."""
    if not seen.row.attempt:
        return None
    links = []
    for number in range(seen.row.attempt + 1):
        query = urlencode({"username": seen.row.username, "jobName": seen.row.name, "attempt": number})
        shown = element("strong", number) if number == seen.number else element("a", number, href=f"?{query}")
        links.append(join(" ", shown))
    return element("p", "Attempt", *links)


def _tasks(seen: _JobView, log: Callable[[TaskRow], str]) -> Html:
    names = ("Task", "State", "Node", "Ports", "Exit code", "Logs")
    heads = element("tr", *(element("th", name) for name in names))
    rows = [_task(task, log(task)) for task in seen.tasks[:_MOST_TASKS]]
    rest = len(seen.tasks) - len(rows)
    return join(
        element("h2", "Tasks"),
        element("table", heads, *rows) if rows else element("p", "None yet.", class_="quiet"),
        element("p", f"and {rest} more", class_="quiet") if rest else None,
    )


def _task(task: TaskRow, log: str) -> Html:
    ports = ", ".join(f"{label} {numbers}" for label, numbers in port_lists(task.ports).items())
    links = [join(element("a", name, href=f"{log}user.pai.{name}/?start=-{_TAIL}"), " ") for name in _STREAMS]
    return element(
        "tr",
        element("td", f"{task.role}[{task.task_index}]"),
        element("td", _badge(job_state(task.sub_state, task.exit_code))),
        element("td", task.node, " ", task.ip),
        element("td", ports),
        element("td", _both_codes(task.exit_code, json.loads(task.exit_info or "{}"))),
        element("td", *links),
    )


def _events(events: Sequence[EventRow]) -> Html | None:
    if not events:
        return None
    rows = [
        element(
            "tr",
            element("td", _time(event.last_ms)),
            element("td", event.type),
            element("td", event.reason),
            element("td", event.message, f" ({event.count} times)" if event.count > 1 else None),
        )
        for event in events
    ]
    return element("details", element("summary", "What happened"), element("table", *rows))


def _config(seen: _JobView) -> Html | None:
    if seen.spec is None:
        return None
    text = dump_yaml(json.loads(config_as_json(seen.row, seen.spec)))
    return element("details", element("summary", "What was submitted"), element("pre", text))


def _time(ms: int | None) -> str | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
