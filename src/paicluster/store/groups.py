"""Groups: members and rights. Plain functions over a connection.

A group's `extension.acls` has `admin`, `virtualClusters` and `storageConfigs`. Every user is in `default`;
members of a group with `admin` are administrators, and the column `users.admin` repeats that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from paicluster.store.rows import GroupRow, UserGrants
from paicluster.store.tables import group_members as members
from paicluster.store.tables import user_groups as groups
from paicluster.store.tables import users
from paicluster.store.tokens import touch_all_tokens, touch_tokens_of
from paiprotocol.errors import Conflict, Forbidden

DEFAULT = "default"
ADMINS = "admingroup"

# Above this number of users it is faster to touch all tokens.
_MAX_TOUCHED_USERS = 50


def insert_predefined(conn: Connection) -> None:
    """Insert the groups that every cluster has, into a new database."""
    default = with_acls({"acls": {"virtualClusters": ["default"]}})
    admins = with_acls({"acls": {"admin": True}})
    columns = ("groupname", "description", "external_name", "extension")
    rows = (DEFAULT, "group for default vc", "", _text(default)), (ADMINS, "", "", _text(admins))
    conn.execute(insert(groups), [dict(zip(columns, row, strict=True)) for row in rows])


def get_group(conn: Connection, groupname: str) -> GroupRow | None:
    row = conn.execute(select(groups).where(groups.c.groupname == groupname)).fetchone()
    return None if row is None else GroupRow(*row)


def list_groups(conn: Connection, *, offset: int = 0, limit: int | None = None) -> list[GroupRow]:
    query = select(groups).order_by(groups.c.groupname).limit(limit).offset(offset)
    return [GroupRow(*row) for row in conn.execute(query)]


def existing(conn: Connection, names: Collection[str]) -> set[str]:
    """Those of these groups that exist."""
    return set(conn.execute(select(groups.c.groupname).where(groups.c.groupname.in_(names))).scalars())


def add_group(
    conn: Connection,
    groupname: str,
    *,
    description: str = "",
    external_name: str = "",
    extension: Mapping[str, Any] | None = None,
) -> None:
    if get_group(conn, groupname) is not None:
        raise Conflict(f"Group name {groupname} already exists.", code="ConflictGroupError")
    # In the storage every user has a private group of the same name.
    if conn.execute(select(users.c.username).where(users.c.username == groupname)).first() is not None:
        raise Conflict(
            f"There is a user {groupname}, and no group may have the name of a user.",
            code="ConflictGroupError",
        )
    conn.execute(
        insert(groups).values(
            groupname=groupname,
            description=description,
            external_name=external_name,
            extension=_text(with_acls(extension or {})),
        )
    )


def update_group(conn: Connection, groupname: str, **columns: Any) -> bool:
    """Set columns of a group (``extension`` as a mapping); False when there is no such group."""
    row = get_group(conn, groupname)
    if row is None:
        return False
    if "extension" in columns:
        columns["extension"] = _text(with_acls(columns["extension"]))
    if columns:
        conn.execute(update(groups).where(groups.c.groupname == groupname).values(**columns))
    if columns.get("extension", row.extension) != row.extension:
        refresh_admins(conn, [name for name, _ in members_of(conn, groupname)])
    return True


def delete_group(conn: Connection, groupname: str) -> bool:
    """Delete a group and its memberships; False when there is no such group."""
    if groupname in (DEFAULT, ADMINS):
        raise Forbidden(f"The group {groupname} cannot be removed: the cluster needs it.")
    former_members = [name for name, _ in members_of(conn, groupname)]
    conn.execute(delete(members).where(members.c.groupname == groupname))
    deleted = conn.execute(delete(groups).where(groups.c.groupname == groupname)).rowcount > 0
    refresh_admins(conn, former_members)
    return deleted


def members_of(
    conn: Connection, groupname: str, *, offset: int = 0, limit: int | None = None
) -> list[tuple[str, bool]]:
    """Members of a group by name, and whether each is an administrator."""
    query = (
        select(users.c.username, users.c.admin)
        .join(members, members.c.username == users.c.username)
        .where(members.c.groupname == groupname)
        .order_by(users.c.username)
    )
    return [(name, bool(admin)) for name, admin in conn.execute(query.limit(limit).offset(offset))]


def groups_of(conn: Connection, username: str) -> list[str]:
    """Groups of a user, `default` first."""
    return groups_by_user(conn, username, username).get(username, [])


def groups_by_user(conn: Connection, first: str, last: str) -> dict[str, list[str]]:
    """Groups of each user whose name is between these two, `default` first."""
    by_user: dict[str, list[str]] = {}
    query = select(members.c.username, members.c.groupname).where(
        members.c.username >= first, members.c.username <= last
    )
    for username, groupname in conn.execute(
        query.order_by(members.c.groupname != DEFAULT, members.c.groupname)
    ):
        by_user.setdefault(username, []).append(groupname)
    return by_user


def add_member(conn: Connection, username: str, groupname: str) -> None:
    """Add a user to a group. Both must exist; adding a member again has no effect."""
    if groupname not in groups_of(conn, username):
        conn.execute(insert(members).values(username=username, groupname=groupname))
        refresh_admins(conn, [username])


def remove_member(conn: Connection, username: str, groupname: str) -> None:
    conn.execute(delete(members).where(members.c.username == username, members.c.groupname == groupname))
    refresh_admins(conn, [username])


def set_groups(conn: Connection, username: str, groupnames: Iterable[str]) -> None:
    """Make these the groups of a user."""
    conn.execute(delete(members).where(members.c.username == username))
    rows = [{"username": username, "groupname": name} for name in dict.fromkeys(groupnames)]
    if rows:
        conn.execute(insert(members), rows)
    refresh_admins(conn, [username])


def set_admin(conn: Connection, username: str, admin: bool) -> None:
    """Grant or revoke administrator rights, by changing the groups of a user."""
    current = groups_of(conn, username)
    if admin:
        if not any(_acls(group)["admin"] for group in _rows(conn, current)):
            set_groups(conn, username, (*current, ADMINS))
        return
    set_groups(conn, username, [row.groupname for row in _rows(conn, current) if not _acls(row)["admin"]])


def access_of(conn: Connection, username: str) -> UserGrants:
    """Rights of a user's groups. All users may use the virtual cluster `default`."""
    return combine(_rows(conn, groups_of(conn, username)))


def combine(rows: Sequence[GroupRow]) -> UserGrants:
    """Combined rights of these groups."""
    acls = [_acls(row) for row in rows]
    storages = dict.fromkeys(name for acl in acls for name in acl["storageConfigs"])
    return UserGrants(
        admin=any(acl["admin"] for acl in acls),
        groups=tuple(row.groupname for row in rows),
        clusters=frozenset((DEFAULT, *(name for acl in acls for name in acl["virtualClusters"]))),
        storages=tuple(storages),
        default_storages=tuple(
            dict.fromkeys(acl["storageConfigs"][0] for acl in acls if acl["storageConfigs"])
        ),
    )


def groups_of_clusters(conn: Connection, names: Collection[str]) -> dict[str, str]:
    """For each of these virtual clusters its own group: the one with that virtual cluster only."""
    group_of = {}
    for row in _rows(conn, names):
        if _acls(row)["virtualClusters"] == [row.groupname]:
            group_of[row.groupname] = row.groupname
    return group_of


def ensure_group_of_cluster(
    conn: Connection, vc: str, description: str = "", external_name: str = ""
) -> None:
    """Every virtual cluster has a group of the same name, whose members may use it."""
    row = get_group(conn, vc)
    if row is None:
        acls = {"acls": {"virtualClusters": [vc]}}
        add_group(conn, vc, description=description, external_name=external_name, extension=acls)
    elif vc not in _acls(row)["virtualClusters"]:
        raise Conflict(f"Group name {vc} already exists.", code="ConflictVcError")


def forget_cluster(conn: Connection, vc: str) -> None:
    """A virtual cluster was deleted: delete its own group and remove it from all others."""
    for row in list_groups(conn):
        acls = _acls(row)
        if vc not in acls["virtualClusters"]:
            continue
        if row.groupname == vc and acls["virtualClusters"] == [vc]:
            delete_group(conn, vc)
            continue
        rest = [name for name in acls["virtualClusters"] if name != vc]
        extension = {**extension_of(row), "acls": {**acls, "virtualClusters": rest}}
        update_group(conn, row.groupname, extension=extension)


def extension_of(row: GroupRow) -> dict[str, Any]:
    extension: dict[str, Any] = msgspec.json.decode(row.extension)
    return extension


def with_acls(extension: Mapping[str, Any]) -> dict[str, Any]:
    """The extension with complete `acls`."""
    acls = extension.get("acls")
    acls = acls if isinstance(acls, dict) else {}
    return {**extension, "acls": {"admin": False, "virtualClusters": [], "storageConfigs": [], **acls}}


def require_admin(conn: Connection) -> None:
    """Reject a change that leaves the cluster without an administrator who is not disabled."""
    enabled = select(users.c.username).where(users.c.admin, users.c.disabled_ms.is_(None))
    if conn.execute(enabled.limit(1)).first() is None:
        raise Forbidden("This would leave the cluster without an administrator.")


def refresh_admins(conn: Connection, usernames: Collection[str]) -> None:
    """After a change of groups: update `users.admin` and touch the tokens of these users.

    A change that would leave the cluster without an administrator is rejected.
    """
    before = set(conn.execute(select(users.c.username).where(users.c.admin)).scalars())
    of_admins = [row.groupname for row in list_groups(conn) if _acls(row)["admin"]]
    now = set(conn.execute(select(members.c.username).where(members.c.groupname.in_(of_admins))).scalars())
    for username in usernames:
        if (username in now) != (username in before):
            conn.execute(update(users).where(users.c.username == username).values(admin=username in now))
    if not before.isdisjoint(usernames):
        require_admin(conn)
    if len(usernames) > _MAX_TOUCHED_USERS:
        touch_all_tokens(conn)
    else:
        for username in usernames:
            touch_tokens_of(conn, username)


def _rows(conn: Connection, names: Collection[str]) -> list[GroupRow]:
    """These groups in this order, without those that do not exist."""
    query = select(groups).where(groups.c.groupname.in_(names))
    rows = {row.groupname: GroupRow(*row) for row in conn.execute(query)}
    return [rows[name] for name in names if name in rows]


def _acls(row: GroupRow) -> dict[str, Any]:
    acls: dict[str, Any] = with_acls(extension_of(row))["acls"]
    return acls


def _text(extension: Mapping[str, Any]) -> str:
    return msgspec.json.encode(extension).decode()
