"""`Job` and `Cluster` in a script: build, change, save, await."""

import asyncio
import json
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest

from openpaisdk import Cluster, ClusterList, Job
from openpaisdk.client.transport import CONNECTION_LOST
from openpaisdk.io_utils import from_file, to_file
from paiprotocol.errors import ConfigError, NotFound, PaiError, ProtocolError, UsageError


def test_values_of_a_job(here) -> None:
    job = (
        Job("values")
        .set_param("lr", 0.1)
        .set_secret("key", "hush")
        .set_extra("x", 1)
        .add_tag("a")
        .add_tag("a")
    )
    assert (job.param("lr"), job.secret("key"), job.extra("x"), job.tags()) == (0.1, "hush", 1, ["a"])
    assert job.has_tag("a") and job.param("none", 7) == 7
    assert "hush" not in str(job) and "lr: 0.1" in str(job)
    assert Job("x").new("other").get_config()["name"] == "other"


def test_program_that_changes_home_starts_no_cluster_there(here, monkeypatch) -> None:
    cluster = Cluster("local")
    user = cluster.client.user
    other = here / "other"
    other.mkdir()
    monkeypatch.setenv("HOME", str(other))
    with ThreadPoolExecutor(1) as thread:
        # A thread of its own, as a future has it, connects again.
        with pytest.raises(ConfigError, match=r"HOME has changed: the embedded cluster of .*/\.openpai "):
            thread.submit(lambda: cluster.client).result()
    with pytest.raises(ConfigError, match="HOME has changed"):
        cluster.client.transport.renew(CONNECTION_LOST, cluster.client.transport.endpoint)
    assert list(other.iterdir()) == [] and cluster.client.user == user


def test_invalid_job_is_rejected_with_all_problems(here) -> None:
    with pytest.raises(ProtocolError):
        Job("nothing").validate()
    with pytest.raises(ProtocolError):
        Job("nothing").submit("local")
    with pytest.raises(UsageError, match="is not a valid job name"):
        Job("no name")
    with pytest.raises(UsageError, match="no command"):
        Job("x").one_liner("")


def test_job_save_and_load(here) -> None:
    job = Job("kept").one_liner(["echo a", "echo b"], image="img", gpu=1, mem="1g", pip_installs=["numpy"])
    for name in ("job.yaml", "job.json"):
        job.save(name)
        assert Job().load(name).get_config() == job.get_config()
        assert Job.of(name).name == "kept"
    assert json.loads((here / "job.json").read_text())["taskRoles"]["main"]["commands"] == [
        "echo a",
        "echo b",
    ]
    assert Job.of(str(job)).name == "kept"


def test_sources_are_uploaded_and_job_can_be_loaded_from_cluster(here) -> None:
    (here / "data").write_text("content")
    job = Job("sources_$").one_liner("cat data", sources=["data"], mem="32m").submit()
    assert job.wait() == "SUCCEEDED" and job.logs() == "content"
    again = Job().load(job_name=job.name, cluster_alias="local")
    again.name = "again_$"
    assert again.submit().wait() == "SUCCEEDED" and again.logs() == "content"
    assert again.name != job.name and again.link.endswith(f"jobName={again.name}")


def test_wait_with_timeout(here) -> None:
    job = Job("long_$").one_liner("sleep 60", mem="32m").submit()
    with pytest.raises(TimeoutError):
        job.wait(timeout=0.2)
    assert job.stop().wait(timeout=90) == "STOPPED"
    job.cluster.delete(job.name)
    with pytest.raises(NotFound):
        job.get_status()


def test_methods_can_be_awaited_concurrently(here) -> None:
    async def both() -> tuple[list[str], list[str]]:
        jobs = [Job(f"aio{i}_$").one_liner(f"echo {i}; sleep 0.2", mem="32m") for i in range(2)]
        await asyncio.gather(*(job.aio.submit("local") for job in jobs))
        states = await asyncio.gather(*(job.aio.wait() for job in jobs))
        lines = [line for job in jobs for line in [line async for line in job.aio.follow()]]
        assert await jobs[0].aio.logs() == "0\n"
        cluster = Cluster("local").aio
        assert (await cluster.jobs(jobs[0].name)).state == "SUCCEEDED"
        assert len(await cluster.jobs(state="SUCCEEDED")) >= 2
        return states, lines

    states, lines = asyncio.run(both())
    assert states == ["SUCCEEDED"] * 2 and lines == ["0\n", "1\n"]


def test_cluster_is_thread_safe(here) -> None:
    cluster = Cluster("local")
    seen: list[int] = []
    threads = [
        threading.Thread(target=lambda: seen.append(len(cluster.virtual_clusters()))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert seen == [1] * 8


def test_cluster_list_reports_errors(here) -> None:
    clusters = ClusterList(
        [{"cluster_alias": "down", "pai_uri": "http://127.0.0.1:1", "user": "me", "info": {}}]
    )
    with pytest.warns(UserWarning, match="does not respond"):
        assert clusters.available_resources() == {}
    for act in (lambda: clusters.delete("none"), lambda: clusters.get_client("none")):
        with pytest.raises(UsageError, match="no cluster called 'none'"):
            act()
    with pytest.raises(UsageError, match="no pai_uri"):
        clusters.add({"cluster_alias": "x"})
    with pytest.raises(PaiError, match="does not respond"):
        clusters.add({"cluster_alias": "x", "pai_uri": "http://127.0.0.1:1", "user": "me", "token": "t"})
    assert clusters.add({"cluster_alias": "x", "pai_uri": "http://h"}, check=False).aliases == ["down", "x"]
    clusters.select_storage("down", "nfs", "work")
    assert clusters.select("down")["workspace"] == "/me/work" and "ALIAS" in repr(clusters)


def test_one_cluster_or_one_name_is_a_list_of_one(here) -> None:
    assert ClusterList({"cluster_alias": "one", "pai_uri": "http://h"}).aliases == ["one"]
    cluster = Cluster("local")
    assert cluster.rest_api_storage_configs("none") == cluster.rest_api_storage_configs(["none"])
    assert cluster.rest_api_storage_servers("none") == cluster.rest_api_storage_servers(["none"])
    assert Job("tagged").set_extra("tags", "a").add_tag("b").tags() == ["a", "b"]


def test_files_of_scripts(here) -> None:
    assert from_file("none.yaml", default=[]) == []
    with pytest.raises(ConfigError, match="There is no file"):
        from_file("none.yaml")
    to_file({"a": 1}, "x.yaml")
    assert from_file(here / "x.yaml") == {"a": 1} and (here / "x.yaml").stat().st_mode & 0o077 == 0
    (here / "bad.yaml").write_text("- [")
    with pytest.raises(ConfigError, match="not valid YAML"):
        from_file("bad.yaml", default=[])


def test_unknown_state_is_rejected(here) -> None:
    with pytest.raises(UsageError, match="Did you mean RUNNING"):
        Cluster().jobs(state="runing")
    assert isinstance(Cluster().jobs(state="running,failed"), list)


def test_uncaught_error_shows_hint() -> None:
    error = UsageError("It is wrong.", hint="Do it right.")
    assert str(error) == "It is wrong."
    assert "".join(traceback.format_exception(error)).endswith("UsageError: It is wrong.\nDo it right.\n")


def test_embedded_cluster_is_in_the_list(here) -> None:
    assert "on this machine" in repr(ClusterList([{"cluster_alias": "local", "type": "embedded"}]))
