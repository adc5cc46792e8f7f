"""Page of a job: status, tasks with links to their logs, events, configuration."""

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
from openpaisdk.protocol.states import framework_name, job_state
from paicluster.api.context import Context, context
from paicluster.api.degraded import degraded_reason
from paicluster.api.pages.html import Html, element, join, page
from paicluster.api.pages.session import handle_login_form, session_user, sign_in_page, sign_out_form
from paicluster.api.permissions import check_may_see
from paicluster.api.request_fields import USERNAME
from paicluster.api.responses import error_response, int_param
from paicluster.api.v1.task_logs import log_url
from paicluster.api.v2.job_detail import job_status, port_lists
from paicluster.api.v2.jobs import config_as_json, job_and_attempt
from paicluster.auth.tokens import Identity
from paicluster.services.admission import no_job
from paicluster.store import jobs
from paicluster.store.job_list import reasons_of
from paicluster.store.rows import AttemptRow, EventRow, JobRow, JobSpecRow, TaskRow

_REFRESH_INTERVAL_S = 10
_MAX_TASKS = 500
_MAX_EVENTS = 50
# Bytes of a log that a link shows.
_TAIL_BYTES = 200_000
_STREAMS = ("all", "stdout", "stderr")


async def job_detail(request: Request) -> Response:
    """The page of a job; a login form without a session."""
    try:
        framework = _framework(request)
        identity = await session_user(request)
        if identity is None:
            return sign_in_page(_title(framework), _shell_commands(framework))
        return await _job_page(request, identity, framework)
    except PaiError as error:
        return _error_page(error)


async def sign_in_or_out(request: Request) -> Response:
    """Sign in or out with the page's form."""
    try:
        framework = _framework(request)
    except PaiError as error:
        return _error_page(error)
    try:
        return await handle_login_form(request)
    except PaiError as error:
        response = sign_in_page(_title(framework), _shell_commands(framework), error=error)
        response.headers.update(
            {k: v for k, v in error_response(error).headers.items() if k in _ERROR_HEADERS}
        )
        return response


_ERROR_HEADERS = frozenset({"retry-after"})


def _framework(request: Request) -> str:
    get = request.query_params.get
    user, name = get("username", ""), get("jobName", "")
    if "~" in name and not user:
        user, _, name = name.partition("~")
    if not (USERNAME.fullmatch(user) and USERNAME.fullmatch(name)):
        raise PaiError("The URL names no job: it needs a username and a jobName.", status=400)
    return framework_name(user, name)


def _title(framework: str) -> str:
    user, _, name = framework.partition("~")
    return f"Job {name} of {user}"


def _error_page(error: PaiError) -> Response:
    return page("Job", element("h1", "Job"), element("p", error.message), status=error.status)


def _shell_commands(framework: str) -> Html:
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
    pending_reason: str | None
    degraded: str


async def _job_page(request: Request, identity: Identity, framework: str) -> Response:
    get = request.query_params.get
    attempt_number = int_param(get("attempt"), "attempt", maximum=10**9) if get("attempt") else None
    ctx = context(request)

    def read(conn: Connection) -> _JobView | None:
        found = job_and_attempt(conn, framework, attempt_number)
        if found is None:
            return None
        row, attempt, number = found
        check_may_see(identity, row)
        _, events = jobs.page_of_events(conn, row.id, None, 0, _MAX_EVENTS)
        tasks = jobs.tasks_of(conn, row.id, number)
        degraded = degraded_reason(row, ctx.degraded_reason(framework))
        is_pending = row.state == "WAITING" and not degraded
        reason = reasons_of(conn, [framework]).get(framework) if is_pending else None
        return _JobView(row, attempt, number, tasks, events, jobs.job_spec(conn, row.id), reason, degraded)

    view = await ctx.store.read(read)
    if view is None:
        raise no_job(framework)
    finished = view.row.sub_state == "Completed"
    return page(
        f"{view.row.state} {framework}",
        element("div", element("h1", _title(framework)), sign_out_form(identity), class_="top"),
        _status(view),
        _attempts(view),
        _tasks(view, log_url(request)),
        _events(view.events),
        await _config(ctx, identity, view),
        _shell_commands(framework),
        refresh_s=None if finished else _REFRESH_INTERVAL_S,
    )


def _status(view: _JobView) -> Html:
    status: dict[str, Any] = job_status(view.row, view.attempt)
    spec = status["appExitSpec"] or {}
    facts = {
        "Virtual cluster": status["virtualCluster"],
        "Priority": view.row.priority,
        "Submitted": _time(status["submissionTime"]),
        "Started": _time(view.row.launched_ms),
        "Ended": _time(status["completedTime"]),
        "Retries": status["retries"] or None,
        "Tags": ", ".join(json.loads(view.row.tags)) or None,
        "Pending reason": view.pending_reason,
        "Degraded": view.degraded or None,
        "Exit code": _exit_code(status),
        "Reason": spec.get("reason") if status["appExitCode"] else None,
        "What to do": _lines(spec.get("solution") or ()) if status["appExitCode"] else None,
        "Diagnostics": status["appExitDiagnostics"],
    }
    rows = [
        element("tr", element("th", key), element("td", value))
        for key, value in facts.items()
        if value is not None
    ]
    return join(element("p", _badge(view.row.state)), element("table", *rows))


def _exit_code(status: dict[str, Any]) -> object:
    runtime = (status["appExitMessages"] or {}).get("runtime") or {}
    return _exit_codes(status["appExitCode"], runtime)


def _exit_codes(code: int | None, exit_info: Mapping[str, Any]) -> object:
    """Exit code of the program, and the reported one where it differs."""
    own = exit_info.get("originUserExitCode", code)
    return code if own in (None, code) else f"{own} (reported as {code})"


def _lines(texts: Sequence[str]) -> Html | None:
    return join(*(element("div", text) for text in texts)) if texts else None


def _badge(state: str) -> Html:
    return element("span", state, class_=f"state {state}")


def _attempts(view: _JobView) -> Html | None:
    """Links to all attempts, if there was a retry."""
    if not view.row.attempt:
        return None
    links = []
    for number in range(view.row.attempt + 1):
        query = urlencode({"username": view.row.username, "jobName": view.row.name, "attempt": number})
        label = element("strong", number) if number == view.number else element("a", number, href=f"?{query}")
        links.append(join(" ", label))
    return element("p", "Attempt", *links)


def _tasks(view: _JobView, log_url_of: Callable[[TaskRow], str]) -> Html:
    names = ("Task", "State", "Node", "Ports", "Exit code", "Logs")
    heads = element("tr", *(element("th", name) for name in names))
    rows = [_task(task, log_url_of(task)) for task in view.tasks[:_MAX_TASKS]]
    rest = len(view.tasks) - len(rows)
    return join(
        element("h2", "Tasks"),
        element("table", heads, *rows) if rows else element("p", "None yet.", class_="quiet"),
        element("p", f"and {rest} more", class_="quiet") if rest else None,
    )


def _task(task: TaskRow, log: str) -> Html:
    ports = ", ".join(f"{label} {numbers}" for label, numbers in port_lists(task.ports).items())
    links = [
        join(element("a", name, href=f"{log}user.pai.{name}/?start=-{_TAIL_BYTES}"), " ") for name in _STREAMS
    ]
    return element(
        "tr",
        element("td", f"{task.role}[{task.task_index}]"),
        element("td", _badge(job_state(task.sub_state, task.exit_code))),
        element("td", task.node, " ", task.ip),
        element("td", ports),
        element("td", _exit_codes(task.exit_code, json.loads(task.exit_info or "{}"))),
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
    return element("details", element("summary", "Events"), element("table", *rows))


async def _config(ctx: Context, identity: Identity, view: _JobView) -> Html | None:
    if view.spec is None:
        return None
    text = await config_as_json(ctx, identity, view.row, view.spec)
    text = await ctx.job_parser.convert(identity.username, "json_as_yaml", text)
    return element("details", element("summary", "Job configuration"), element("pre", text))


def _time(ms: int | None) -> str | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
