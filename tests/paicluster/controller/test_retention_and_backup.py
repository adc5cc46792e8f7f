"""Retention, backup and restore with a real store and real files."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import math
import os
import shutil
import tarfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import text

from paicluster.cli import main
from paicluster.config.settings import Settings
from paicluster.controller.retention import RetentionPolicy, RetentionSweeper, SweepResult
from paicluster.engines.process.engine import ProcessEngine
from paicluster.engines.process.local_node import detect_node
from paicluster.store import Store
from paiprotocol.errors import StoreError, UsageError
from support.process_template import run_paicluster
from support.server_fixture import Cluster, eventually, job

T = TypeVar("T")
NOTHING = RetentionPolicy(days=None, jobs=None, size_mb=None)


def sweep(home: Path, policy: RetentionPolicy) -> SweepResult:
    return with_store(
        home, lambda store, engine: RetentionSweeper(store, engine, policy, home / "sources").sweep()
    )


def with_store(home: Path, work: Callable[[Store, ProcessEngine], Awaitable[T]]) -> T:
    """Run work with the store and the engine of a home whose server is down."""

    async def run() -> T:
        store = Store.open(home / "cluster.db")
        try:
            return await work(store, ProcessEngine(home, detect_node()))
        finally:
            store.close()

    return asyncio.run(run())


def rows_of(home: Path) -> dict[str, int]:
    """Number of rows of each table that depends on jobs."""

    async def count(store: Store, _: ProcessEngine) -> dict[str, int]:
        tables = ("jobs", "job_specs", "job_tags", "attempts", "tasks", "events", "idempotency")
        return await store.read(
            lambda conn: {
                name: int(conn.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()) for name in tables
            }
        )

    return with_store(home, count)


def age(home: Path, name: str, days: float) -> None:
    """Make a job as if it had ended so many days ago."""

    async def write(store: Store, _: ProcessEngine) -> None:
        then = int((time.time() - days * 86400) * 1000)
        change = text("UPDATE jobs SET completed_ms = :then WHERE name = :name")
        await store.write(lambda conn: conn.execute(change, {"then": then, "name": name}).rowcount)

    with_store(home, write)


def folders(home: Path) -> set[str]:
    return {path.name for path in (home / "tasks").glob("*/*")}


def uid_of(cluster: Cluster, name: str) -> str:
    roles = cluster.detail(name)["taskRoles"]
    return str(roles["main"]["taskStatuses"][0]["containerId"])


def names(cluster: Cluster) -> set[str]:
    return {one["name"] for one in cluster.get("/api/v2/jobs").json()}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "home").start()
    yield made
    made.close()


# -- retention ------------------------------------------------------------------------------------


def test_old_jobs_are_removed_with_folders_and_names(cluster: Cluster) -> None:
    uids = {}
    for name in ("old", "young"):
        assert cluster.run(job(name, "echo hello"))["state"] == "SUCCEEDED"
        uids[name] = uid_of(cluster, name)
    cluster.ask("PUT", cluster.path("old", "/tag"), {"value": "keepsake"})
    cluster.terminate()
    age(cluster.home, "old", 31)
    removed = sweep(cluster.home, RetentionPolicy(days=30))
    assert (removed.jobs, removed.folders) == (1, 1)
    assert folders(cluster.home) == {uids["young"]}
    left = rows_of(cluster.home)
    assert {left[name] for name in ("jobs", "job_specs", "attempts", "tasks")} == {1}
    assert left["job_tags"] == 0
    cluster.start()
    assert names(cluster) == {"young"}
    assert cluster.get(cluster.path("old")).status == 404
    assert cluster.get("/api/v2/jobs?keyword=old").json() == []
    assert cluster.log_of("young") == b"hello\n"
    assert cluster.run(job("old", "echo again"))["state"] == "SUCCEEDED"
    assert cluster.log_of("old") == b"again\n"


def test_clock_jump_does_not_expire_jobs(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("old", "new"):
        cluster.run(job(name, "true"))
    cluster.terminate()
    age(cluster.home, "old", days=40)

    async def sweep_twice(store: Store, engine: ProcessEngine) -> list[SweepResult]:
        sweeper = RetentionSweeper(store, engine, RetentionPolicy(days=30), cluster.home / "sources")
        year_s, now = 365 * 86400, time.time
        monkeypatch.setattr(time, "time", lambda: now() + year_s)
        first = await sweeper.sweep()
        monkeypatch.setattr(time, "time", lambda: now() - year_s)
        return [first, await sweeper.sweep()]

    assert with_store(cluster.home, sweep_twice) == [SweepResult(jobs=1, folders=1), SweepResult()]
    assert rows_of(cluster.home)["jobs"] == 1


def test_job_limit_removes_the_jobs_that_finished_first(cluster: Cluster) -> None:
    for number in range(4):
        cluster.run(job(f"j{number}", "true"))
    cluster.terminate()
    age(cluster.home, "j3", 1)  # submitted last, finished first
    assert sweep(cluster.home, RetentionPolicy(days=None, jobs=2)).jobs == 2
    assert sweep(cluster.home, RetentionPolicy(days=None, jobs=2)).jobs == 0
    cluster.start()
    assert names(cluster) == {"j1", "j2"}


def test_size_limit_counts_finished_jobs_only(cluster: Cluster, tmp_path: Path) -> None:
    for number in range(3):
        cluster.run(job(f"j{number}", "head -c 1500000 /dev/urandom > file"))
    cluster.accept(job("large", "head -c 9000000 /dev/urandom > file; touch there; sleep 600"))
    large = uid_of_running(cluster, "large")
    eventually(lambda: (cluster.home / "tasks" / large[:2] / large / "work" / "there").exists(), "the file")
    cluster.terminate()
    # The running job has far more than the limit, and does not count.
    assert sweep(cluster.home, RetentionPolicy(days=None, jobs=None, size_mb=4)).jobs == 1
    assert sweep(cluster.home, RetentionPolicy(days=None, jobs=None, size_mb=4)).jobs == 0
    cluster.start()
    assert names(cluster) == {"j1", "j2", "large"}


def uid_of_running(cluster: Cluster, name: str) -> str:
    cluster.wait_state(name, "RUNNING")
    return uid_of(cluster, name)


def test_templates_keep_the_sources_of_their_owner(cluster: Cluster) -> None:
    digests = []
    for content in (b"a template names this", b"this was named"):
        digest = hashlib.sha256(content).hexdigest()
        assert cluster.ask("PUT", f"/api/v2/sources/{digest}", content).status == 201
        spec = job("kept", "true", extras={"openpaisdk": {"sources": {"sha256": digest, "size": 1}}})
        path = f"/api/v2/job-templates/{cluster.user}/{len(digests)}"
        assert cluster.ask("PUT", path, {"protocol": json.dumps(spec)}).status == 200
        digests.append(digest)
    assert cluster.ask("DELETE", path).status == 200
    cluster.terminate()
    for file in (cluster.home / "sources").iterdir():
        os.utime(file, (1, 1))
    assert sweep(cluster.home, RetentionPolicy(days=0)).sources == 1
    assert [file.stem for file in (cluster.home / "sources").iterdir()] == digests[:1]


def test_unfinished_jobs_keep_their_sources_and_dependencies(cluster: Cluster, tmp_path: Path) -> None:
    bundle = io.BytesIO()
    with tarfile.open(fileobj=bundle, mode="w") as archive:
        about = tarfile.TarInfo("said")
        about.size = 5
        archive.addfile(about, io.BytesIO(b"hello"))
    digests = []
    for content in (bundle.getvalue(), b"no job names this"):
        digest = hashlib.sha256(content).hexdigest()
        assert cluster.ask("PUT", f"/api/v2/sources/{digest}", content).status == 201
        digests.append(digest)
    sources = {"sources": {"sha256": digests[0], "size": len(bundle.getvalue())}}
    cluster.run(job("first", "true"))
    cluster.accept(job("gate", f"until [ -e {tmp_path / 'open'} ]; do sleep 0.02; done"))
    waits = {"after": [{"job": "first"}, {"job": "gate"}], **sources}
    cluster.accept(job("waits", "cat said", extras={"openpaisdk": waits}))
    cluster.wait_state("gate", "RUNNING")
    cluster.terminate()
    for path in (cluster.home / "sources").iterdir():
        os.utime(path, (1, 1))
    removed = sweep(cluster.home, RetentionPolicy(days=0, jobs=0, size_mb=0))
    # `first` is finished, but an unfinished job depends on its state.
    assert (removed.jobs, removed.sources) == (0, 1)
    assert [path.stem for path in (cluster.home / "sources").iterdir()] == [digests[0]]
    cluster.start()
    assert names(cluster) == {"first", "gate", "waits"}
    (tmp_path / "open").touch()
    assert cluster.wait_over("waits")["state"] == "SUCCEEDED"
    assert cluster.log_of("waits") == b"hello"
    cluster.terminate()
    assert sweep(cluster.home, RetentionPolicy(days=0)).jobs == 3
    assert folders(cluster.home) == set() and rows_of(cluster.home)["jobs"] == 0


def test_next_sweep_completes_a_removal_after_a_crash(cluster: Cluster) -> None:
    cluster.run(job("a", "echo a"))
    cluster.terminate()

    async def crash(store: Store, engine: ProcessEngine) -> None:
        def fail(*_: Any) -> Any:
            raise StoreError("the machine went down here")

        write, store.write = store.write, fail  # type: ignore[method-assign]
        try:
            await RetentionSweeper(store, engine, RetentionPolicy(days=0), cluster.home / "sources").sweep()
        finally:
            store.write = write  # type: ignore[method-assign]

    with pytest.raises(StoreError):
        with_store(cluster.home, crash)
    assert folders(cluster.home) == set()
    cluster.start()
    assert cluster.status("a")["state"] == "SUCCEEDED" and cluster.log_of("a") == b""
    cluster.terminate()
    assert sweep(cluster.home, RetentionPolicy(days=0)).jobs == 1
    assert rows_of(cluster.home)["jobs"] == 0


def test_without_limits_nothing_is_removed(cluster: Cluster) -> None:
    cluster.run(job("a", "true"))
    cluster.terminate()
    age(cluster.home, "a", 10_000)
    assert not sweep(cluster.home, NOTHING)


def test_running_cluster_sweeps_and_logs_it(cluster: Cluster) -> None:
    cluster.run(job("a", "true"))
    cluster.accept(job("goes-on", "sleep 600"))
    cluster.wait_state("goes-on", "RUNNING")
    cluster.terminate()
    cluster.start("--keep-jobs", "0", "--clean-after", "0")
    eventually(lambda: names(cluster) == {"goes-on"}, "the cleaning")
    eventually(lambda: "removed 1 finished jobs with 1 task folders" in cluster.log.read_text(), "the word")
    assert cluster.status("goes-on")["state"] == "RUNNING"
    assert cluster.run(job("a", "true"))["state"] == "SUCCEEDED"


@pytest.mark.parametrize(
    "limit", [{"keep_days": -1}, {"keep_days": math.nan}, {"keep_jobs": -1}, {"keep_mb": -5}]
)
def test_invalid_limit_is_rejected(tmp_path: Path, limit: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"--keep-\w+ is a number, 0 or more"):
        Settings(tmp_path, **limit).check()


# -- backup and restore ---------------------------------------------------------------------------


def test_backup_of_a_running_cluster_restores_into_another_home(cluster: Cluster, tmp_path: Path) -> None:
    saved, new_home = tmp_path / "saved.tar", tmp_path / "new" / "home"
    cluster.run(job("over", "echo done; echo kept > $PAI_OUTPUT_DIR/x"))
    failed = cluster.run(job("failed", "exit 3"))
    seen = tmp_path / "seen"
    command = f"until [ -e {tmp_path / 'open'} ]; do sleep 0.02; done; echo <% $secrets.word %> > {seen}"
    cluster.accept(job("gate", "sleep 600", cpu=64))
    cluster.accept(job("waits", command, secrets={"word": "swordfish"}))
    cluster.wait_state("gate", "RUNNING")
    done = run_paicluster("backup", "--home", str(cluster.home), "--with-files", str(saved))
    assert done.returncode == 0 and done.stdout.startswith("Saved "), done
    assert saved.stat().st_mode & 0o077 == 0
    before = {one["name"]: one["state"] for one in cluster.get("/api/v2/jobs").json()}
    assert cluster.stop("gate").status == 202 and cluster.stop("waits").status == 202
    cluster.wait_over("waits")
    cluster.wait_over("gate")
    cluster.terminate()
    done = run_paicluster("restore", "--home", str(new_home), str(saved))
    assert done.returncode == 0, done
    assert sorted(path.name for path in new_home.iterdir()) == ["cluster.db", "keys", "storage", "tasks"]
    assert new_home.stat().st_mode & 0o077 == 0
    restored = Cluster(new_home)
    with contextlib.ExitStack() as closing:
        closing.callback(restored.close)
        restored.start()
        # Old tokens are valid, and the jobs are unchanged.
        assert restored.token == cluster.token
        assert restored.get("/api/v2/jobs").status == 200
        assert before == {"over": "SUCCEEDED", "failed": "FAILED", "gate": "RUNNING", "waits": "WAITING"}
        assert restored.status("over")["state"] == "SUCCEEDED"
        assert restored.status("failed") == failed
        assert restored.log_of("over") == b"done\n"
        about = restored.get(f"/webhdfs/v1/user/{restored.user}/jobs/over/output/x?op=GETFILESTATUS").json()
        assert (about["FileStatus"]["owner"], about["FileStatus"]["length"]) == (restored.user, 5)
        record = "user.pai.record"
        kept = [home / "storage" / "user" / restored.user / "jobs" for home in (cluster.home, new_home)]
        assert os.getxattr(kept[0], record) == os.getxattr(kept[1], record)
        restored.stop("gate")
        (tmp_path / "open").touch()
        assert restored.wait_over("waits")["state"] == "SUCCEEDED"
        assert seen.read_text() == "swordfish\n"


@pytest.mark.slow
def test_backup_works_while_files_change(cluster: Cluster, tmp_path: Path) -> None:
    churn = "i=0; while true; do echo $i > f$((i % 50)); rm -f f$(((i + 25) % 50)); i=$((i + 1)); done"
    cluster.accept(job("churn", churn))
    cluster.wait_state("churn", "RUNNING")
    for number in range(3):
        saved = tmp_path / f"saved{number}.tar"
        done = run_paicluster("backup", "--home", str(cluster.home), "--with-files", str(saved))
        assert done.returncode == 0, done
        with tarfile.open(saved) as archive:
            assert "cluster.db" in archive.getnames()
    assert sorted(path.name for path in tmp_path.glob("saved*")) == ["saved0.tar", "saved1.tar", "saved2.tar"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a cluster that ran one job."""
    folder = tmp_path_factory.mktemp("saved")
    cluster = Cluster(folder / "home").start()
    cluster.run(job("a", "true"))
    cluster.close()
    assert run_paicluster("backup", "--home", str(folder / "home"), str(folder / "saved.tar")).returncode == 0
    return folder / "saved.tar"


@pytest.mark.slow
def test_rejected_restore_leaves_no_files(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    broken = {"cut": whole[: len(whole) // 2], "empty": b"", "noise": os.urandom(4096)}
    # Random pages: the archive is intact, the database is not.
    broken["rotten"] = whole.replace(b"CREATE TABLE jobs", b"CREATE TABEL jobs")
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
    with tarfile.open(tmp_path / "foreign", "w") as archive:
        archive.add(__file__, "etc/passwd")
    with tarfile.open(tmp_path / "half", "w") as archive:
        archive.add(__file__, "cluster.db")
        archive.add(tmp_path, "keys", recursive=False)
    before = sorted(tmp_path.iterdir())
    for name in (*broken, "foreign", "half", "missing"):
        done = run_paicluster("restore", "--home", str(tmp_path / "home"), str(tmp_path / name))
        assert done.returncode == 1, (name, done)
        assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("paicluster: "), (name, done)
        assert sorted(tmp_path.iterdir()) == before, name


def test_restore_rejects_a_home_that_is_not_empty(saved: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "precious").touch()
    done = run_paicluster("restore", "--home", str(home), str(saved))
    assert done.returncode == 1 and "is not empty" in done.stderr
    assert [path.name for path in home.iterdir()] == ["precious"]
    (home / "precious").unlink()
    assert run_paicluster("restore", "--home", str(home), str(saved)).returncode == 0
    shutil.rmtree(home)


def _tree(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def test_restore_works_without_tar_filters(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 12 has Python 3.11.2; tarfile got its filters in 3.11.4."""
    assert main(["restore", "--home", str(tmp_path / "new"), str(saved)]) == 0
    monkeypatch.delattr(tarfile, "tar_filter", raising=False)
    assert main(["restore", "--home", str(tmp_path / "old"), str(saved)]) == 0
    assert _tree(tmp_path / "old") == _tree(tmp_path / "new")


@pytest.mark.parametrize("has_filters", [True, False])
def test_restore_writes_nothing_outside_its_home(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_filters: bool
) -> None:
    if not has_filters:
        monkeypatch.delattr(tarfile, "tar_filter", raising=False)
    escaping = tmp_path / "escaping.tar"
    shutil.copy(saved, escaping)
    with tarfile.open(escaping, "a") as archive:
        archive.add(__file__, "keys/../../../outside")
    (tmp_path / "inside").mkdir()
    assert main(["restore", "--home", str(tmp_path / "inside" / "home"), str(escaping)]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["escaping.tar", "inside"]
    assert list((tmp_path / "inside").iterdir()) == []


def test_backup_of_a_folder_without_a_cluster_is_rejected(saved: Path, tmp_path: Path) -> None:
    done = run_paicluster("backup", "--home", str(tmp_path), str(tmp_path / "saved.tar"))
    assert done.returncode == 1 and "There is no cluster in" in done.stderr
    (tmp_path / "cluster.db").write_bytes(b"no database at all" * 1000)
    done = run_paicluster("backup", "--home", str(tmp_path), str(tmp_path / "saved.tar"))
    assert done.returncode == 1 and len(done.stderr.splitlines()) <= 2, done
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.db"]


def test_backup_does_not_replace_a_pipe_or_device(saved: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = run_paicluster("backup", "--home", str(saved.parent / "home"), str(tmp_path / "pipe"))
    assert done.returncode == 1 and "exists and is not a regular file" in done.stderr
    assert (tmp_path / "pipe").is_fifo()
