"""Job templates: job files that users keep to start from. Plain functions over a connection."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, case, delete, func, insert, or_, select, update

from paicluster.store.tables import job_templates as templates
from paicluster.store.tables import user_groups as groups
from paiprotocol.errors import Forbidden, NotFound

MAX_PER_USER = 100
"""Templates of one user."""
MAX_LISTED = 1000
"""Templates in a list: those of the caller come first."""


class TemplateSummary(NamedTuple):
    """A template without its job file; ``groupname``: the group that may use it, None for its owner alone."""

    username: str
    name: str
    groupname: str | None
    description: str
    modified_ms: int


_SUMMARY = tuple(templates.c[name] for name in TemplateSummary._fields)


def list_templates(
    conn: Connection, username: str, groupnames: Collection[str] | None
) -> list[TemplateSummary]:
    """A user's templates by name, then those of others by group; None stands for all groups."""
    shared = (
        templates.c.groupname.is_not(None) if groupnames is None else templates.c.groupname.in_(groupnames)
    )
    query = select(*_SUMMARY).where(or_(templates.c.username == username, shared))
    is_others = templates.c.username != username
    order = (
        is_others,
        case((is_others, templates.c.groupname), else_=""),
        templates.c.name,
        templates.c.username,
    )
    return [TemplateSummary(*row) for row in conn.execute(query.order_by(*order).limit(MAX_LISTED))]


def find_template(conn: Connection, username: str, name: str) -> tuple[TemplateSummary, str] | None:
    """A template and its job file."""
    row = conn.execute(select(*_SUMMARY, templates.c.protocol).where(*_named(username, name))).fetchone()
    return None if row is None else (TemplateSummary(*row[:-1]), row[-1])


def put_template(conn: Connection, summary: TemplateSummary, protocol: str, *, may_add: bool) -> None:
    """Add a template, or replace the one of its name; where it may not be added, there has to be one."""
    groupname = summary.groupname
    if (
        groupname is not None
        and not conn.execute(select(groups).where(groups.c.groupname == groupname)).first()
    ):
        raise NotFound(f"Group {groupname} is not found.", code="NoGroupError")
    values = {**summary._asdict(), "protocol": protocol}
    change = update(templates).where(*_named(summary.username, summary.name)).values(values)
    if conn.execute(change).rowcount:
        return
    if not may_add:
        raise no_template(summary.username, summary.name)
    count = select(func.count()).where(templates.c.username == summary.username)
    if conn.execute(count).scalar_one() >= MAX_PER_USER:
        raise Forbidden(
            f"User {summary.username} has {MAX_PER_USER} job templates, which is the limit.",
            code="TooManyTemplatesError",
            hint="Delete one that is no longer used.",
        )
    conn.execute(insert(templates).values(values))


def delete_template(conn: Connection, username: str, name: str) -> bool:
    """Whether there was one."""
    return conn.execute(delete(templates).where(*_named(username, name))).rowcount > 0


def no_template(username: str, name: str) -> NotFound:
    return NotFound(f"User {username} has no job template {name}.", code="NoTemplateError")


def _named(username: str, name: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return templates.c.username == username, templates.c.name == name
