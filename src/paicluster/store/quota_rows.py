"""Quotas of users and groups. Plain functions over a connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy import Connection, delete, insert, select

from paicluster.store.rows import QuotaRow
from paicluster.store.tables import group_members, group_quotas, user_quotas

_NO_LIMITS = QuotaRow()


def user_quotas_by_name(conn: Connection) -> dict[str, QuotaRow]:
    return {row[0]: QuotaRow(*row[1:]) for row in conn.execute(select(user_quotas))}


def group_quotas_by_name(conn: Connection) -> dict[str, QuotaRow]:
    return {row[0]: QuotaRow(*row[1:]) for row in conn.execute(select(group_quotas))}


def groups_with_quota(conn: Connection) -> dict[str, tuple[str, ...]]:
    """For each user that is in some, the groups with a quota, by name."""
    query = (
        select(group_members.c.username, group_members.c.groupname)
        .join(group_quotas, group_quotas.c.groupname == group_members.c.groupname)
        .order_by(group_members.c.groupname)
    )
    groups: dict[str, tuple[str, ...]] = {}
    for username, groupname in conn.execute(query):
        groups[username] = (*groups.get(username, ()), groupname)
    return groups


def change_user_quota(conn: Connection, username: str, limits: Mapping[str, int | None]) -> None:
    """Set these limits of a user and keep the others; None removes a limit. The user must exist."""
    _change(conn, "username", username, limits)


def change_group_quota(conn: Connection, groupname: str, limits: Mapping[str, int | None]) -> None:
    """Set these limits of a group and keep the others; None removes a limit. The group must exist."""
    _change(conn, "groupname", groupname, limits)


def _change(conn: Connection, key: str, name: str, limits: Mapping[str, int | None]) -> None:
    table = user_quotas if key == "username" else group_quotas
    row = conn.execute(select(table).where(table.c[key] == name)).fetchone()
    changed = replace(_NO_LIMITS if row is None else QuotaRow(*row[1:]), **limits)
    conn.execute(delete(table).where(table.c[key] == name))
    if changed != _NO_LIMITS:
        conn.execute(insert(table).values({key: name, **changed.limits()}))
