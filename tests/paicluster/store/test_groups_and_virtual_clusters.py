"""Groups and changed virtual clusters in the database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from openpaisdk.errors import Conflict, Forbidden
from paicluster.store import Store, groups, users, virtual_clusters
from paicluster.store.rows import VirtualClusterRow


@pytest.fixture
def people(store: Store) -> Store:
    store.write_sync(lambda conn: users.add_user(conn, "root", "hash", created_ms=0, admin=True))
    store.write_sync(lambda conn: users.add_user(conn, "alice", "hash", created_ms=0))
    return store


def test_everybody_is_in_default_and_administrators_are_by_their_group(people: Store) -> None:
    assert people.read_sync(lambda conn: groups.groups_of(conn, "alice")) == ["default"]
    assert people.read_sync(lambda conn: groups.groups_of(conn, "root")) == ["default", "admingroup"]
    assert people.read_sync(lambda conn: groups.access_of(conn, "root")).admin is True
    assert people.read_sync(lambda conn: groups.access_of(conn, "alice")).clusters == {"default"}
    people.write_sync(lambda conn: users.update_user(conn, "alice", admin=True))
    alice = people.read_sync(lambda conn: users.get_user(conn, "alice"))
    assert alice is not None and alice.admin is True
    people.write_sync(lambda conn: groups.remove_member(conn, "alice", "admingroup"))
    alice = people.read_sync(lambda conn: users.get_user(conn, "alice"))
    assert alice is not None and alice.admin is False


def test_what_groups_permit_adds_up(people: Store) -> None:
    for name, storages in (("blue", ["a", "b"]), ("red", ["b", "c"])):
        acls = {"acls": {"virtualClusters": [name], "storageConfigs": storages}}
        people.write_sync(lambda conn, n=name, a=acls: groups.add_group(conn, n, extension=a))
        people.write_sync(lambda conn, n=name: groups.add_member(conn, "alice", n))
    access = people.read_sync(lambda conn: groups.access_of(conn, "alice"))
    assert access.clusters == {"default", "blue", "red"} and access.storages == ("a", "b", "c")
    assert access.default_storages == ("a", "b")
    assert access.may_use("red") and not access.may_use("green")
    found = people.read_sync(lambda conn: groups.groups_of_clusters(conn, ["blue", "default", "admingroup"]))
    assert set(found) == {"blue", "default"}
    people.write_sync(lambda conn: groups.forget_cluster(conn, "red"))
    assert people.read_sync(lambda conn: groups.groups_of(conn, "alice")) == ["default", "blue"]


def test_a_cluster_keeps_an_administrator(people: Store) -> None:
    with pytest.raises(Forbidden, match="without an administrator"):
        people.write_sync(lambda conn: groups.set_groups(conn, "root", ["default"]))
    with pytest.raises(Forbidden):
        people.write_sync(lambda conn: groups.delete_group(conn, "admingroup"))
    assert people.read_sync(lambda conn: groups.groups_of(conn, "root")) == ["default", "admingroup"]


def test_names_are_taken_once_and_removed_whole(people: Store) -> None:
    people.write_sync(lambda conn: groups.add_group(conn, "blue"))
    with pytest.raises(Conflict):
        people.write_sync(lambda conn: groups.add_group(conn, "blue"))
    with pytest.raises(Conflict):
        people.write_sync(lambda conn: groups.ensure_group_of_cluster(conn, "blue"))
    people.write_sync(lambda conn: groups.add_member(conn, "alice", "blue"))
    assert people.read_sync(lambda conn: groups.members_of(conn, "blue")) == [("alice", False)]
    people.write_sync(lambda conn: users.delete_user(conn, "alice"))
    assert people.read_sync(lambda conn: groups.members_of(conn, "blue")) == []
    assert people.write_sync(lambda conn: groups.delete_group(conn, "blue")) is True
    assert people.write_sync(lambda conn: groups.delete_group(conn, "blue")) is False


def test_a_right_of_a_large_group_reaches_everybody_in_it(people: Store) -> None:
    people.write_sync(lambda conn: groups.add_group(conn, "crowd"))
    for number in range(60):
        people.write_sync(
            lambda conn, n=number: users.add_user(conn, f"u{n}", "hash", created_ms=0, in_groups=["crowd"])
        )
    told: list[str] = []
    people.changes.subscribe_tokens(told.append)
    token = users.TokenRow("t", "u7", "session", "", 0, None)
    people.write_sync(lambda conn: users.add_token(conn, token))
    people.write_sync(lambda conn: groups.update_group(conn, "crowd", description="many"))
    assert told == [], "a description permits nothing"
    for admin in (True, False):
        acls = {"acls": {"admin": admin}}
        people.write_sync(lambda conn, a=acls: groups.update_group(conn, "crowd", extension=a))
        found = people.read_sync(lambda conn: dict(groups.members_of(conn, "crowd")))
        assert set(found.values()) == {admin} and len(found) == 60
        assert "t" in told
        told.clear()


def test_a_changed_virtual_cluster_is_kept_until_it_is_removed(store: Store) -> None:
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


def test_people_of_a_database_without_groups_are_put_into_them(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    store = Store.open(path)
    store.write_sync(lambda conn: users.add_user(conn, "root", "hash", created_ms=0, admin=True))
    store.write_sync(lambda conn: users.add_user(conn, "alice", "hash", created_ms=0))
    store.close()
    old = sqlite3.connect(path)
    with old:
        for table in ("group_members", "user_groups", "virtual_clusters", "storage_records"):
            old.execute(f"DROP TABLE {table}")
        old.execute("ALTER TABLE job_specs RENAME COLUMN resource_request TO need")
        old.execute("UPDATE alembic_version SET version_num = '0001'")
    old.close()
    store = Store.open(path)
    try:
        assert store.read_sync(lambda conn: groups.groups_of(conn, "alice")) == ["default"]
        assert store.read_sync(lambda conn: groups.groups_of(conn, "root")) == ["default", "admingroup"]
    finally:
        store.close()
