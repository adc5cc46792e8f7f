"""What travelled with a job lies on the storage beside its results, for people to look at."""

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

from openpaisdk.protocol import read_job
from paicluster.files import Storage, StorageUser
from paicluster.files.staging import STAGED
from paicluster.services import source_checkout
from paicluster.store import Store, users
from paicluster.store.job_inserts import INSERT_JOB, NewJob
from support.server_fixture import Cluster, eventually, job


def bundle(cluster: Cluster, **files: str) -> dict[str, Any]:
    """Bring files to the cluster; what a job then names them by."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    body = made.getvalue()
    digest = hashlib.sha256(body).hexdigest()
    reply = cluster.ask("PUT", f"/api/v2/sources/{digest}", body)
    assert reply.status in (200, 201), reply.text
    return {"sha256": digest, "size": len(body)}


def with_sources(cluster: Cluster, name: str, *commands: str, **files: str) -> dict[str, Any]:
    what = job(name, *commands)
    what["prerequisites"] = [{"name": "image", "type": "dockerimage", "uri": "host"}]
    what["extras"] = {"openpaisdk": {"sources": bundle(cluster, **files)}}
    return what


def listed(cluster: Cluster, path: str) -> list[str] | None:
    reply = cluster.get(f"/webhdfs/v1{path}?op=LISTSTATUS")
    if reply.status == 404:
        return None
    assert reply.status == 200, reply.text
    return [one["pathSuffix"] for one in reply.json()["FileStatuses"]["FileStatus"]]


def source(cluster: Cluster, name: str) -> str:
    return f"/user/{cluster.user}/jobs/{name}/source"


def test_the_files_lie_beside_the_results(cluster: Cluster) -> None:
    what = with_sources(cluster, "laid", "cp a.py $PAI_OUTPUT_DIR", lib__b="2", **{"a.py": "3"})
    assert cluster.run(what)["state"] == "SUCCEEDED"
    eventually(lambda: listed(cluster, source(cluster, "laid")))
    assert listed(cluster, source(cluster, "laid")) == ["a.py", "lib"]
    assert listed(cluster, f"/user/{cluster.user}/jobs/laid") == ["output", "source"]


def test_what_a_person_does_to_them_changes_no_job(cluster: Cluster) -> None:
    what = with_sources(cluster, "first", "cat a", a="as it was")
    assert cluster.run(what)["state"] == "SUCCEEDED"
    eventually(lambda: listed(cluster, source(cluster, "first")))
    reply = cluster.ask("DELETE", f"/webhdfs/v1{source(cluster, 'first')}?op=DELETE&recursive=true")
    assert reply.status == 200
    again = {**what, "name": "second"}
    assert cluster.run(again)["state"] == "SUCCEEDED"
    assert cluster.log_of("second") == b"as it was"


def test_they_go_with_the_job_and_results_stay(cluster: Cluster) -> None:
    what = with_sources(cluster, "gone", "echo r > $PAI_OUTPUT_DIR/r", a="1")
    assert cluster.run(what)["state"] == "SUCCEEDED"
    eventually(lambda: listed(cluster, source(cluster, "gone")))
    reply = cluster.ask("DELETE", f"/api/v1/jobs/{cluster.user}~gone")
    if reply.status >= 400:
        pytest.fail(reply.text)
    assert listed(cluster, f"/user/{cluster.user}/jobs/gone") == ["output"]
    # The name is free again, and so is the place.
    assert cluster.run(with_sources(cluster, "gone", "true", b="2"))["state"] == "SUCCEEDED"
    eventually(lambda: listed(cluster, source(cluster, "gone")) == ["b"])


def test_a_job_that_is_refused_leaves_the_others_files_alone(cluster: Cluster) -> None:
    assert cluster.run(with_sources(cluster, "taken", "true", a="1"))["state"] == "SUCCEEDED"
    eventually(lambda: listed(cluster, source(cluster, "taken")))
    reply = cluster.submit(with_sources(cluster, "taken", "true", other="2"))
    assert reply.status == 409
    assert listed(cluster, source(cluster, "taken")) == ["a"]


def test_a_folder_a_person_made_is_left_as_it_is_and_an_event_says_so(cluster: Cluster) -> None:
    mine = f"/user/{cluster.user}/project"
    assert cluster.ask("PUT", f"/webhdfs/v1{mine}/source/mine?op=MKDIRS").status == 200
    what = with_sources(cluster, "in-a-project", "cat a", a="all the same")
    what["parameters"] = {"work_directory": mine}
    assert cluster.run(what)["state"] == "SUCCEEDED"
    assert cluster.log_of("in-a-project") == b"all the same"
    told = eventually(lambda: [e for e in cluster.events("in-a-project") if e["reason"] == "SourcesNotKept"])
    assert f"{mine}/source already exists" in json.dumps(told)
    assert listed(cluster, f"{mine}/source") == ["mine"]


def test_a_server_killed_before_they_lie_there_leaves_them_to_the_next_one(cluster: Cluster) -> None:
    many = {f"file-{n}": "1" for n in range(5000)}
    what = with_sources(cluster, "killed", "true", **many)
    cluster.accept(with_sources(cluster, "done", "true", a="1"))
    eventually(lambda: listed(cluster, source(cluster, "done")))
    cluster.accept(what)
    cluster.kill()
    on_disk = cluster.home / "storage" / source(cluster, "killed").lstrip("/")
    assert not on_disk.exists()
    shutil.rmtree(cluster.home / "storage" / source(cluster, "done").lstrip("/"))
    cluster.start()
    eventually(lambda: listed(cluster, source(cluster, "killed")))
    assert sorted(path.name for path in on_disk.iterdir()) == sorted(many)
    # What somebody took away since it lay there stays away.
    assert listed(cluster, source(cluster, "done")) is None


def test_a_server_that_leaves_gives_up_a_large_folder_and_the_next_one_takes_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_checkout, "_SHUTDOWN_TIMEOUT_S", 0)
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
        store = Store.open(tmp_path / "cluster.db")
        await store.write(lambda conn: users.add_user(conn, "alice", "!", created_ms=0, admin=False))
        first = source_checkout.SourceCheckouts(storage, store, sources)
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
