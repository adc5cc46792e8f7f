"""A new database is that of all migrations; upgrades lose no rows."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store, jobs, schema_version
from paicluster.store.jobs import NewJob
from paicluster.store.migrations import upgrade
from paicluster.store.source_owners import archives_of
from paicluster.store.sqlite_sql import SqliteSql
from paicluster.store.users import add_user, get_user
from paiprotocol.errors import StoreError
from support.old_database import migrate_new_database, rewind_database


@dataclass
class Content:
    """A database as its migrations or its creation left it."""

    # By table, index or trigger: the words of its definition.
    definitions: dict[str, list[str]]
    # By table: its columns in their order, each with type, default and constraints.
    columns: dict[str, list[tuple[object, ...]]]
    rows: dict[str, list[tuple[object, ...]]]


def content_of(path: Path) -> Content:
    with closing(sqlite3.connect(path)) as conn:
        definitions = {
            name: sorted(re.findall(r"[\w~']+", text))
            for name, text in conn.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        }
        tables = [name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {name: conn.execute(f"PRAGMA table_info({name})").fetchall() for name in tables}
        # A full-text index without content cannot be read.
        readable = [name for name in tables if name != "job_search"]
        rows = {name: sorted(conn.execute(f"SELECT * FROM {name}"), key=repr) for name in readable}
    return Content(definitions, columns, rows)


def test_new_database_is_that_of_all_migrations(tmp_path: Path) -> None:
    Store.open(tmp_path / "new.db").close()
    migrate_new_database(tmp_path / "migrated.db", schema_version.HEAD)
    new, migrated = content_of(tmp_path / "new.db"), content_of(tmp_path / "migrated.db")
    assert new.definitions == migrated.definitions
    assert new.columns == migrated.columns
    assert new.rows == migrated.rows
    assert new.rows["alembic_version"] == [(schema_version.HEAD,)]
    assert [name for name, *_ in new.rows["user_groups"]] == ["admingroup", "default"]


def test_creation_that_fails_leaves_an_empty_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cluster.db"
    monkeypatch.setattr(SqliteSql, "create_index", (*SqliteSql.create_index, "no SQL"))
    with pytest.raises(DBAPIError):
        Store.open(path)
    assert content_of(path).definitions == {}
    monkeypatch.undo()
    Store.open(path).close()
    assert "jobs" in content_of(path).definitions


def test_revisions_in_the_code_are_those_on_disk() -> None:
    scripts = ScriptDirectory.from_config(upgrade.alembic_config())
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == schema_version.REVISIONS
    assert scripts.get_heads() == [schema_version.HEAD]


def test_alembic_is_imported_only_for_an_upgrade(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "import paicluster.store, paicluster.store.jobs, paicluster.store.users\n"
        "paicluster.store.Store.open(Path(sys.argv[1])).close()\n"
        "print([name for name in ('alembic', 'sqlalchemy.orm') if name in sys.modules])\n"
    )

    def run() -> str:
        path = tmp_path / "cluster.db"
        return subprocess.run(
            [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
        ).stdout.strip()

    assert run() == "[]"  # creates the database
    assert run() == "[]"
    rewind_database(tmp_path / "cluster.db", "0005")
    assert "alembic" in run()


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The code of a later version: one more revision, which the test writes to the returned file."""
    versions = tmp_path / "versions"
    versions.mkdir()
    ours = Path(upgrade.__file__).parent / "versions"
    make = upgrade.alembic_config

    def config(conn: Connection | None = None) -> Config:
        made = make(conn)
        made.set_main_option("version_locations", f"{ours};{versions}")
        made.set_main_option("path_separator", ";")
        made.set_main_option("version_path_separator", ";")
        return made

    monkeypatch.setattr(upgrade, "alembic_config", config)
    monkeypatch.setattr(schema_version, "REVISIONS", (*schema_version.REVISIONS, "next"))
    monkeypatch.setattr(schema_version, "HEAD", "next")
    return versions / "next.py"


STEP = """
import sqlalchemy as sa
from alembic import op

revision = "next"
down_revision = "{before}"

def upgrade():
    with op.batch_alter_table("users", recreate="always") as table:
        table.add_column(sa.Column("quota", sa.Integer(), nullable=True))
    {more}
"""


def old_home(path: Path) -> None:
    store = Store.open(path)
    store.write_sync(lambda conn: add_user(conn, "alice", "hash", created_ms=1))
    store.write_sync(
        lambda conn: conn.exec_driver_sql("INSERT INTO tokens VALUES ('t', 'alice', 'session', '', 1, NULL)")
    )
    store.close()


def columns(path: Path, table: str) -> list[str]:
    conn = sqlite3.connect(path)
    names = [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]
    conn.close()
    return names


def test_upgrade_keeps_every_row_and_leaves_a_backup(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "cluster.db"
    old_home(path)
    before = schema_version.HEAD
    step: Path = request.getfixturevalue("next_version")
    step.write_text(STEP.format(before=before, more=""))
    store = Store.open(path)
    count = store.read_sync(lambda conn: conn.exec_driver_sql("SELECT count(*) FROM tokens").scalar())
    store.close()
    assert count == 1  # rebuilding the table of users did not delete their tokens
    assert "quota" in columns(path, "users")
    backup = tmp_path / "cluster.db.before-next"
    assert backup.stat().st_mode & 0o777 == 0o600
    assert "quota" not in columns(backup, "users")
    assert not list(tmp_path.glob("*.partial"))
    # The backup is a complete database.
    backup.replace(path)
    again = Store.open(path)
    assert again.read_sync(lambda conn: get_user(conn, "alice")) is not None
    again.close()


def test_resource_requests_survive_the_renaming_of_their_column(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    store = Store.open(path, render_summary)
    new = NewJob("alice", "job", "default", "", "{}", 1, resource_request='{"roles":[]}')
    store.write_sync(lambda conn: jobs.insert_jobs(conn, [new]))
    store.close()
    rewind_database(path, "0003")
    store = Store.open(path)
    try:
        assert store.read_sync(lambda conn: jobs.resource_request_of(conn, 1)) == '{"roles":[]}'
    finally:
        store.close()


def test_users_of_older_databases_are_enabled(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    old_home(path)
    rewind_database(path, "0008")
    store = Store.open(path)
    try:
        user = store.read_sync(lambda conn: get_user(conn, "alice"))
        assert user is not None and user.disabled_ms is None
    finally:
        store.close()


def test_archives_of_older_databases_belong_to_the_users_whose_jobs_use_them(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    store = Store.open(path, render_summary)
    for user in ("alice", "bob"):
        store.write_sync(lambda conn, user=user: add_user(conn, user, "hash", created_ms=1))  # type: ignore[misc]
    as_json = json.dumps({"sources": {"sha256": "a" * 64, "size": 1}})
    as_yaml = f"sources:\n  sha256: {'b' * 64}\n"
    specs = [("alice", "one", as_json), ("alice", "two", as_json), ("bob", "one", as_yaml)]
    specs += [("removed", "one", as_yaml), ("bob", "two", "{}")]
    new = [NewJob(user, name, "default", text, text, 1) for user, name, text in specs]
    store.write_sync(lambda conn: jobs.insert_jobs(conn, new))
    store.close()
    rewind_database(path, "0006")
    store = Store.open(path)
    try:
        assert store.read_sync(lambda conn: archives_of(conn, "alice")) == ["a" * 64]
        assert store.read_sync(lambda conn: archives_of(conn, "bob")) == ["b" * 64]
        assert store.read_sync(lambda conn: archives_of(conn, "removed")) == []
    finally:
        store.close()


def test_jobs_of_older_databases_get_the_tags_of_their_submission(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    store = Store.open(path, render_summary)
    as_json = json.dumps({"extras": {"tags": ["night", "größe", "a,b", "", 7, "x" * 256]}})
    as_yaml = "extras: {tags: [night]}"
    texts = {
        "json": (as_json, as_json),
        "masked": ("extras:\n  tags: [night]\n", json.dumps({"extras": {"tags": ["night"]}})),
        "flow": ("{extras: {tags: [night]}}", "{extras: {tags: [night]}}"),
        "tagged": (as_json, as_json),
        "other": (json.dumps({"name": "tags", "extras": {"tags": "night"}}), "[1] tags"),
        "none": (as_yaml.replace("tags", "labels"), "{}"),
        "dates": ("extras: {tags: [2026-01-02, yes, night], since: 2026-99-99}",) * 2,
    }
    new = [NewJob("alice", name, "default", *text, 1000) for name, text in texts.items()]
    store.write_sync(lambda conn: jobs.insert_jobs(conn, new))
    store.write_sync(lambda conn: jobs.add_tag(conn, 4, "mine"))
    store.close()
    rewind_database(path, "0011")
    store = Store.open(path, render_summary)
    try:
        tags = store.read_sync(lambda conn: [jobs.tags_of(conn, number) for number in range(1, 8)])
        assert tags[:4] == [["größe", "night"], ["night"], ["night"], ["größe", "mine", "night"]]
        assert tags[4:] == [[], [], ["2026-01-02", "night", "yes"]]
        listed = store.read_sync(
            lambda conn: conn.exec_driver_sql("SELECT name, summary FROM jobs ORDER BY id").fetchall()
        )
        assert [json.loads(summary)["tags"] for _, summary in listed] == tags
        # As lists read it: filtered by the table of tags, which is that of the jobs.
        rows = store.read_sync(
            lambda conn: conn.exec_driver_sql(
                "SELECT job_id, tag, submission_ms FROM job_tags ORDER BY 1, 2"
            ).fetchall()
        )
        assert [tuple(row) for row in rows] == [
            (number, tag, 1000) for number, named in enumerate(tags, 1) for tag in named
        ]
        # What the migration rendered is what a change of the job renders.
        store.write_sync(lambda conn: jobs.add_tag(conn, 1, "more"))
        store.write_sync(lambda conn: jobs.remove_tag(conn, 1, "more"))
        again = store.read_sync(
            lambda conn: conn.exec_driver_sql("SELECT summary FROM jobs WHERE id = 1").scalar()
        )
        assert again == listed[0][1]
    finally:
        store.close()


def test_events_of_older_databases_get_their_pending_flag(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    store = Store.open(path, render_summary)
    store.write_sync(lambda conn: jobs.insert_jobs(conn, [NewJob("alice", "job", "default", "", "{}", 1)]))
    for reason in ("FailedScheduling", "Pulled"):
        store.write_sync(
            lambda conn, reason=reason: jobs.add_event(  # type: ignore[misc]
                conn, 1, type="Normal", reason=reason, message="m", now_ms=1, source="s"
            )
        )
    store.close()
    rewind_database(path, "0004")
    store = Store.open(path)
    try:
        found = store.read_sync(lambda conn: jobs.events_of(conn, 1))
        assert [(event.reason, event.pending) for event in found] == [
            ("Pulled", False),
            ("FailedScheduling", True),
        ]
    finally:
        store.close()


def test_failed_upgrade_changes_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "cluster.db"
    old_home(path)
    before = schema_version.HEAD
    step: Path = request.getfixturevalue("next_version")
    step.write_text(STEP.format(before=before, more="raise RuntimeError('on purpose')"))
    with pytest.raises(RuntimeError):
        Store.open(path)
    assert "quota" not in columns(path, "users")
    request.getfixturevalue("monkeypatch").undo()
    store = Store.open(path)
    assert store.read_sync(lambda conn: get_user(conn, "alice")) is not None
    store.close()


def test_upgrade_that_breaks_foreign_keys_changes_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "cluster.db"
    old_home(path)
    before = schema_version.HEAD
    step: Path = request.getfixturevalue("next_version")
    step.write_text(STEP.format(before=before, more="op.execute('DELETE FROM users')"))
    with pytest.raises(StoreError, match="nothing was changed"):
        Store.open(path)
    assert "quota" not in columns(path, "users")


def test_new_database_needs_no_backup(tmp_path: Path) -> None:
    Store.open(tmp_path / "cluster.db").close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cluster.db", "cluster.db-session"]
