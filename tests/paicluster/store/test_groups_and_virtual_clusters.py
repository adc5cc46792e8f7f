"""Groups and changed virtual clusters in the database."""

from __future__ import annotations

from pathlib import Path

import pytest

from paicluster.store import Store, groups, users, virtual_clusters
from paicluster.store.rows import VirtualClusterRow
from paiprotocol.errors import Conflict, Forbidden
from support.old_database import rewind_database


@pytest.fixture
def users_store(store: Store) -> Store:
    store.write_sync(lambda conn: users.add_user(conn, "root", "hash", created_ms=0, admin=True))
    store.write_sync(lambda conn: users.add_user(conn, "alice", "hash", created_ms=0))
    return store


def test_all_users_are_in_default_and_admins_in_admingroup(users_store: Store) -> None:
    assert users_store.read_sync(lambda conn: groups.groups_of(conn, "alice")) == ["default"]
    assert users_store.read_sync(lambda conn: groups.groups_of(conn, "root")) == ["default", "admingroup"]
    assert users_store.read_sync(lambda conn: groups.access_of(conn, "root")).admin is True
    assert users_store.read_sync(lambda conn: groups.access_of(conn, "alice")).clusters == {"default"}
    users_store.write_sync(lambda conn: users.update_user(conn, "alice", admin=True))
    alice = users_store.read_sync(lambda conn: users.get_user(conn, "alice"))
    assert alice is not None and alice.admin is True
    users_store.write_sync(lambda conn: groups.remove_member(conn, "alice", "admingroup"))
    alice = users_store.read_sync(lambda conn: users.get_user(conn, "alice"))
    assert alice is not None and alice.admin is False


def test_rights_of_groups_are_combined(users_store: Store) -> None:
    for name, storages in (("blue", ["a", "b"]), ("red", ["b", "c"])):
        acls = {"acls": {"virtualClusters": [name], "storageConfigs": storages}}
        users_store.write_sync(lambda conn, n=name, a=acls: groups.add_group(conn, n, extension=a))
        users_store.write_sync(lambda conn, n=name: groups.add_member(conn, "alice", n))
    access = users_store.read_sync(lambda conn: groups.access_of(conn, "alice"))
    assert access.clusters == {"default", "blue", "red"} and access.storages == ("a", "b", "c")
    assert access.default_storages == ("a", "b")
    assert access.may_use("red") and not access.may_use("green")
    found = users_store.read_sync(
        lambda conn: groups.groups_of_clusters(conn, ["blue", "default", "admingroup"])
    )
    assert set(found) == {"blue", "default"}
    users_store.write_sync(lambda conn: groups.forget_cluster(conn, "red"))
    assert users_store.read_sync(lambda conn: groups.groups_of(conn, "alice")) == ["default", "blue"]


def test_last_administrator_cannot_be_removed(users_store: Store) -> None:
    with pytest.raises(Forbidden, match="without an administrator"):
        users_store.write_sync(lambda conn: groups.set_groups(conn, "root", ["default"]))
    with pytest.raises(Forbidden):
        users_store.write_sync(lambda conn: groups.delete_group(conn, "admingroup"))
    assert users_store.read_sync(lambda conn: groups.groups_of(conn, "root")) == ["default", "admingroup"]


def test_group_names_are_unique_and_deletion_is_complete(users_store: Store) -> None:
    users_store.write_sync(lambda conn: groups.add_group(conn, "blue"))
    with pytest.raises(Conflict):
        users_store.write_sync(lambda conn: groups.add_group(conn, "blue"))
    with pytest.raises(Conflict):
        users_store.write_sync(lambda conn: groups.ensure_group_of_cluster(conn, "blue"))
    users_store.write_sync(lambda conn: groups.add_member(conn, "alice", "blue"))
    assert users_store.read_sync(lambda conn: groups.members_of(conn, "blue")) == [("alice", False)]
    users_store.write_sync(lambda conn: users.delete_user(conn, "alice"))
    assert users_store.read_sync(lambda conn: groups.members_of(conn, "blue")) == []
    assert users_store.write_sync(lambda conn: groups.delete_group(conn, "blue")) is True
    assert users_store.write_sync(lambda conn: groups.delete_group(conn, "blue")) is False


def test_new_right_of_a_large_group_reaches_all_members(users_store: Store) -> None:
    users_store.write_sync(lambda conn: groups.add_group(conn, "crowd"))
    for number in range(60):
        users_store.write_sync(
            lambda conn, n=number: users.add_user(conn, f"u{n}", "hash", created_ms=0, in_groups=["crowd"])
        )
    touched: list[str] = []
    users_store.changes.subscribe_tokens(touched.append)
    token = users.TokenRow("t", "u7", "session", "", 0, None)
    users_store.write_sync(lambda conn: users.add_token(conn, token))
    users_store.write_sync(lambda conn: groups.update_group(conn, "crowd", description="many"))
    assert touched == [], "a description grants no rights"
    for admin in (True, False):
        acls = {"acls": {"admin": admin}}
        users_store.write_sync(lambda conn, a=acls: groups.update_group(conn, "crowd", extension=a))
        found = users_store.read_sync(lambda conn: dict(groups.members_of(conn, "crowd")))
        assert set(found.values()) == {admin} and len(found) == 60
        assert "t" in touched
        touched.clear()


def test_changed_virtual_cluster_is_stored_until_removed(store: Store) -> None:
    row = VirtualClusterRow("lab", 4, 400, 1, 25.0, 50.0)
    store.write_sync(lambda conn: virtual_clusters.put_cluster(conn, row))
    store.write_sync(lambda conn: virtual_clusters.set_status(conn, "lab", "stopped"))
    store.write_sync(lambda conn: virtual_clusters.set_status(conn, "fixed", "stopped"))
    found = store.read_sync(virtual_clusters.list_clusters)
    assert found == [
        VirtualClusterRow("fixed", None, None, None, None, None, "stopped"),
        VirtualClusterRow("lab", 4, 400, 1, 25.0, 50.0, "stopped"),
    ]
    assert store.write_sync(lambda conn: virtual_clusters.delete_cluster(conn, "lab")) is True
    assert store.write_sync(lambda conn: virtual_clusters.delete_cluster(conn, "lab")) is False


def test_migration_adds_users_to_groups(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    store = Store.open(path)
    store.write_sync(lambda conn: users.add_user(conn, "root", "hash", created_ms=0, admin=True))
    store.write_sync(lambda conn: users.add_user(conn, "alice", "hash", created_ms=0))
    store.close()
    rewind_database(path, "0001")
    store = Store.open(path)
    try:
        assert store.read_sync(lambda conn: groups.groups_of(conn, "alice")) == ["default"]
        assert store.read_sync(lambda conn: groups.groups_of(conn, "root")) == ["default", "admingroup"]
    finally:
        store.close()
