"""Routes of job templates: job files that a user keeps to start from, alone or with a group."""

from __future__ import annotations

import re
import time

from msgspec import UNSET
from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate, caller
from paicluster.api.routing.authority import CLUSTER
from paicluster.api.routing.route import Routes
from paicluster.api.wire.base import Message
from paicluster.api.wire.job_templates import JobTemplate, JobTemplateBody, JobTemplateSummary
from paicluster.auth.tokens import Identity
from paicluster.store import job_templates
from paicluster.store.job_templates import TemplateSummary, no_template
from paiprotocol.errors import Forbidden, InvalidParameters

route = Routes("job")

MAX_BYTES = 65536
"""Of the job file of a template."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")


@route("GET /api/v2/job-templates", authority=CLUSTER, summary="List job templates", other_methods=405)
async def list_templates(request: Request) -> list[JobTemplateSummary]:
    """Own templates and those of the caller's groups; for administrators those of all groups."""
    identity = await authenticate(request)
    groups = None if identity.admin else identity.access.groups
    found = await context(request).store.read(
        lambda conn: job_templates.list_templates(conn, identity.username, groups)
    )
    return [_summary(identity, one) for one in found]


@route(
    "GET /api/v2/job-templates/{user}/{template}",
    authority=CLUSTER,
    summary="Get a job template",
    other_methods=405,
)
async def one_template(request: Request) -> JobTemplate:
    """A template with its job file, whose secrets are masked."""
    identity = await authenticate(request)
    username, name = _address(request)
    found = await context(request).store.read(lambda conn: job_templates.find_template(conn, username, name))
    if found is None or not _may_use(identity, found[0]):
        raise no_template(username, name)
    summary, protocol = found
    return JobTemplate(*_values(identity, summary), protocol)


@route(
    "PUT /api/v2/job-templates/{user}/{template}",
    authority=CLUSTER,
    summary="Add or replace a job template",
    other_methods=405,
)
async def put_template(request: Request, body: JobTemplateBody) -> JobTemplateSummary:
    """Secrets are masked before the job file is stored. A template is for a group of the caller;
    administrators may replace those of others, for any group.
    """
    identity = caller(request)
    username, name = _address(request)
    _check_may_change(identity, username, name)
    if not _NAME.fullmatch(name):
        raise InvalidParameters(
            f"{name[:64]!r} is no name of a job template.", hint="Use letters, digits and _ . -"
        )
    if (size := len(body.protocol.encode())) > MAX_BYTES:
        raise InvalidParameters(
            f"A job template may have {MAX_BYTES} bytes, and this one has {size}.", status=413
        )
    ctx = context(request)
    known = await ctx.store.read(lambda conn: job_templates.find_template(conn, username, name))
    protocol = body.protocol
    # A stored text is no complete job where its secrets are masked.
    if known is None or known[1] != protocol:
        parsed = await ctx.jobs.parser.parse_v2(identity.username, protocol)
        protocol = protocol if parsed.masked is None else parsed.masked
    group = None if body.group is UNSET else body.group
    if group is not None and not identity.admin and group not in identity.access.groups:
        raise Forbidden(
            f"User {username} does not belong to the group {group}.",
            hint="A template is for a group of yours, or for you alone.",
        )
    description = "" if body.description is UNSET else body.description
    summary = TemplateSummary(username, name, group, description, int(time.time() * 1000))
    is_own = username == identity.username
    await ctx.store.write(lambda conn: job_templates.put_template(conn, summary, protocol, may_add=is_own))
    return _summary(identity, summary)


@route(
    "DELETE /api/v2/job-templates/{user}/{template}",
    authority=CLUSTER,
    summary="Delete a job template",
    other_methods=405,
)
async def delete_template(request: Request) -> Message:
    identity = await authenticate(request)
    username, name = _address(request)
    _check_may_change(identity, username, name)
    if not await context(request).store.write(
        lambda conn: job_templates.delete_template(conn, username, name)
    ):
        raise no_template(username, name)
    return Message(f"Job template {name} is deleted.")


def _address(request: Request) -> tuple[str, str]:
    return request.path_params["user"], request.path_params["template"]


def _may_change(identity: Identity, username: str) -> bool:
    return identity.admin or username == identity.username


def _may_use(identity: Identity, template: TemplateSummary) -> bool:
    return _may_change(identity, template.username) or template.groupname in identity.access.groups


def _check_may_change(identity: Identity, username: str, name: str) -> None:
    if not _may_change(identity, username):
        raise Forbidden(
            f"User {identity.username} is not allowed to change job template {name} of {username}.",
            hint=f"Only {username} and administrators are allowed. Save a template of your own.",
        )


def _values(identity: Identity, one: TemplateSummary) -> tuple[str, str, str | None, str, int, bool]:
    may_change = _may_change(identity, one.username)
    return one.username, one.name, one.groupname, one.description, one.modified_ms, may_change


def _summary(identity: Identity, one: TemplateSummary) -> JobTemplateSummary:
    return JobTemplateSummary(*_values(identity, one))
