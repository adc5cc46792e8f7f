"""Source checkout: a job's sources are copied to the storage beside its outputs."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from paicluster.api.v2.job_summaries import render_summary
from paicluster.files import Storage, StorageUser
from paicluster.files.staging import STAGED
from paicluster.services import source_checkout
from paicluster.store import Store, users
from paicluster.store.job_inserts import INSERT_JOB, NewJob
from paiprotocol.jobs import read_job
from support.server_fixture import Cluster, eventually, job


def upload_sources(cluster: Cluster, **files: str) -> dict[str, Any]:
    """Upload a source archive; the value of a job's `sources`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    body = buffer.getvalue()
    digest = hashlib.sha256(body).hexdigest()
    reply = cluster.ask("PUT", f"/api/v2/sources/{digest}", body)
    assert reply.status in (200, 201), reply.text
    return {"sha256": digest, "size": len(body)}


def with_sources(cluster: Cluster, name: str, *commands: str, **files: str) -> dict[str, Any]:
    config = job(name, *commands)
    config["prerequisites"] = [{"name": "image", "type": "dockerimage", "uri": "host"}]
    config["extras"] = {"openpaisdk": {"sources": upload_sources(cluster, **files)}}
    return config


def list_names(cluster: Cluster, path: str) -> list[str] | None:
    reply = cluster.get(f"/webhdfs/v1{path}?op=LISTSTATUS")
    if reply.status == 404:
        return None
    assert reply.status == 200, reply.text
    return [one["pathSuffix"] for one in reply.json()["FileStatuses"]["FileStatus"]]


def checkout_path(cluster: Cluster, name: str) -> str:
    return f"/user/{cluster.user}/jobs/{name}/source"


def test_sources_are_checked_out_beside_the_outputs(cluster: Cluster) -> None:
    config = with_sources(cluster, "beside", "cp a.py $PAI_OUTPUT_DIR", lib__b="2", **{"a.py": "3"})
    assert cluster.run(config)["state"] == "SUCCEEDED"
    eventually(lambda: list_names(cluster, checkout_path(cluster, "beside")))
    assert list_names(cluster, checkout_path(cluster, "beside")) == ["a.py", "lib"]
    assert list_names(cluster, f"/user/{cluster.user}/jobs/beside") == ["output", "source"]


def test_deleting_a_checkout_affects_no_job(cluster: Cluster) -> None:
    config = with_sources(cluster, "first", "cat a", a="original")
    assert cluster.run(config)["state"] == "SUCCEEDED"
    eventually(lambda: list_names(cluster, checkout_path(cluster, "first")))
    reply = cluster.ask("DELETE", f"/webhdfs/v1{checkout_path(cluster, 'first')}?op=DELETE&recursive=true")
    assert reply.status == 200
    again = {**config, "name": "second"}
    assert cluster.run(again)["state"] == "SUCCEEDED"
    assert cluster.log_of("second") == b"original"


def test_checkout_is_deleted_with_its_job_and_outputs_stay(cluster: Cluster) -> None:
    config = with_sources(cluster, "deleted", "echo r > $PAI_OUTPUT_DIR/r", a="1")
    assert cluster.run(config)["state"] == "SUCCEEDED"
    eventually(lambda: list_names(cluster, checkout_path(cluster, "deleted")))
    reply = cluster.ask("DELETE", f"/api/v1/jobs/{cluster.user}~deleted")
    if reply.status >= 400:
        pytest.fail(reply.text)
    assert list_names(cluster, f"/user/{cluster.user}/jobs/deleted") == ["output"]
    # The name can be used again, and so can the path.
    assert cluster.run(with_sources(cluster, "deleted", "true", b="2"))["state"] == "SUCCEEDED"
    eventually(lambda: list_names(cluster, checkout_path(cluster, "deleted")) == ["b"])


def test_rejected_job_does_not_change_an_existing_checkout(cluster: Cluster) -> None:
    assert cluster.run(with_sources(cluster, "taken", "true", a="1"))["state"] == "SUCCEEDED"
    eventually(lambda: list_names(cluster, checkout_path(cluster, "taken")))
    reply = cluster.submit(with_sources(cluster, "taken", "true", other="2"))
    assert reply.status == 409
    assert list_names(cluster, checkout_path(cluster, "taken")) == ["a"]


def test_users_folder_is_kept_and_an_event_reports_it(cluster: Cluster) -> None:
    mine = f"/user/{cluster.user}/project"
    assert cluster.ask("PUT", f"/webhdfs/v1{mine}/source/mine?op=MKDIRS").status == 200
    config = with_sources(cluster, "in-a-project", "cat a", a="unaffected")
    config["parameters"] = {"work_directory": mine}
    assert cluster.run(config)["state"] == "SUCCEEDED"
    assert cluster.log_of("in-a-project") == b"unaffected"
    events = eventually(
        lambda: [e for e in cluster.events("in-a-project") if e["reason"] == "SourcesNotKept"]
    )
    assert f"{mine}/source already exists" in json.dumps(events)
    assert list_names(cluster, f"{mine}/source") == ["mine"]


@pytest.mark.slow
def test_checkout_is_finished_after_a_crash(cluster: Cluster) -> None:
    many = {f"file-{n}": "1" for n in range(5000)}
    cluster.accept(with_sources(cluster, "done", "true", a="1"))
    eventually(lambda: list_names(cluster, checkout_path(cluster, "done")))
    # On a busy machine a checkout may be finished before the kill.
    for name in (f"killed-{n}" for n in range(20)):
        on_disk = cluster.home / "storage" / checkout_path(cluster, name).lstrip("/")
        cluster.accept(with_sources(cluster, name, "true", **many))
        cluster.kill()
        if not on_disk.exists():
            break
        cluster.start()
    else:
        pytest.fail("every checkout was finished before the kill")
    shutil.rmtree(cluster.home / "storage" / checkout_path(cluster, "done").lstrip("/"))
    cluster.start()
    eventually(lambda: list_names(cluster, checkout_path(cluster, name)))
    assert sorted(path.name for path in on_disk.iterdir()) == sorted(many)
    # A checkout that was deleted after it was finished is not made again.
    assert list_names(cluster, checkout_path(cluster, "done")) is None


def test_checkout_is_continued_after_a_shutdown(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    with tarfile.open(sources / f"{'0' * 64}.tar", "w") as archive:
        for n in range(5000):
            archive.addfile(tarfile.TarInfo(f"file-{n}"))
    text = json.dumps(
        {**job("large", "true"), "extras": {"openpaisdk": {"sources": {"sha256": "0" * 64, "size": 1}}}}
    )
    alice = StorageUser("alice")
    storage = Storage(tmp_path / "storage")
    folder = tmp_path / "storage/user/alice/jobs/large/source"

    async def main() -> None:
        store = Store.open(tmp_path / "cluster.db", render_summary)
        await store.write(lambda conn: users.add_user(conn, "alice", "!", created_ms=0, admin=False))
        first = source_checkout.SourceCheckouts(storage, store, sources, shutdown_timeout_s=0)
        await first.resume()
        new = NewJob("alice", "large", "default", text, text, 0)
        inserted = await store.write_batched(INSERT_JOB, new)
        await first.check_out(read_job(text), alice, inserted.id)
        await first.close()
        assert not folder.exists() and os.listdir(storage.staging_area.folder(STAGED)) == []
        second = source_checkout.SourceCheckouts(storage, store, sources)
        await second.resume()
        while not folder.exists():
            await asyncio.sleep(0.01)
        await second.close()
        store.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert len(os.listdir(folder)) == 5000
    storage.close()
