"""The Python API exactly as documented."""

import subprocess
import sys

import pytest
import yaml


def test_the_version(here) -> None:
    code = "from openpaisdk import __version__; print(__version__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    from openpaisdk import __version__

    assert out.strip() == __version__


def test_available_resources(here) -> None:
    from openpaisdk import __cluster_config_file__
    from openpaisdk.cluster import ClusterList
    from openpaisdk.io_utils import from_file

    cfg = from_file(__cluster_config_file__, default=[])
    free = ClusterList(cfg).available_resources()
    assert set(free) == {"local"} and set(free["local"]["default"]) == {"GPUs", "vCores", "memory"}
    assert free["local"]["default"]["vCores"] >= 0


def test_adding_and_deleting_a_cluster(here, server, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    from openpaisdk.core import ClusterList

    cluster_alias = "mine"
    cluster_cfg = {
        "cluster_alias": cluster_alias,
        "pai_uri": server["url"],
        "user": server["user"],
        "token": server["token"],
    }
    ClusterList().load().add(cluster_cfg).save()
    kept = yaml.safe_load((tmp_path / ".openpai/clusters.yaml").read_text())
    assert kept[0]["cluster_alias"] == "mine" and kept[0]["virtual_clusters"] == ["default"]
    clusters = ClusterList().load()
    assert clusters.aliases == ["mine"] and clusters.select("mine")["pai_uri"] == server["url"]
    client = clusters.get_client("mine")
    assert client.user == server["user"] and "mine" in clusters and len(clusters) == 1
    assert server["token"] not in repr(clusters) + repr(client) + repr(clusters.tell())
    ClusterList().load().delete(cluster_alias).save()
    assert ClusterList().load().aliases == []


def test_cluster_queries_and_submits_jobs(here) -> None:
    from openpaisdk.core import ClusterList

    clusters = ClusterList().load()
    client = clusters.get_client("local")
    job_config = {
        "protocolVersion": 2,
        "name": "binding-rest",
        "type": "job",
        "prerequisites": [{"name": "i", "type": "dockerimage", "uri": "host"}],
        "taskRoles": {
            "main": {
                "dockerImage": "i",
                "resourcePerInstance": {"cpu": 1, "memoryMB": 32, "gpu": 0},
                "commands": ["echo hello"],
            }
        },
    }
    name = client.rest_api_submit(job_config)
    assert name == "binding-rest" and client.wait(name) == "SUCCEEDED"
    assert client.jobs(name).state == "SUCCEEDED" and client.jobs(name)["jobStatus"]["username"]
    assert name in repr(client.jobs()) and "<table>" in client.jobs()._repr_html_()
    assert client.logs(name) == "hello\n" and list(client.follow(name)) == ["hello\n"]


def test_rest_api_methods(here) -> None:
    from openpaisdk.core import Cluster

    client = Cluster("local")
    name = client.submit({**_config("binding-names"), "jobRetryCount": 0}).name
    client.wait(name)
    assert client.rest_api_cluster_info()["name"] == "PAI RESTful API"
    assert name in [job["name"] for job in client.rest_api_job_list()]
    assert client.rest_api_jobs(name)["name"] == name
    assert client.rest_api_job_info(name)["jobStatus"]["state"] == "SUCCEEDED"
    assert client.rest_api_job_info(name, "config")["name"] == name
    assert "default" in client.rest_api_virtual_clusters()
    assert "jobName=binding-names" in client.get_job_link(name)


def _config(name: str) -> dict:
    from openpaisdk.core import Job

    return Job(name).one_liner("true", mem="32m").get_config()


def test_job_is_built_submitted_and_waited_for(here) -> None:
    from openpaisdk.core import Job

    job = Job("binding_$")
    job.one_liner("echo out; echo err >&2; exit 3", mem="32m", env={"A": "1"})
    job.submit("local")
    assert job.wait() == "FAILED" and job.state == "FAILED"
    assert sorted(job.logs().split()) == ["err", "out"] and job.logs(stream="stderr") == "err\n"
    assert job.get_status().origin_exit_code == 3 and job.name in repr(job)


def test_client_inside_a_job_from_environment(here, server, monkeypatch) -> None:
    from openpaisdk.core import OpenPAIClient

    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("PAI_REST_SERVER_URI", server["url"])
    monkeypatch.setenv("PAI_USER_NAME", server["user"])
    monkeypatch.setenv("PAI_USER_TOKEN", server["token"])
    client = OpenPAIClient()
    made = client.submit(_config_anywhere("inside_$"))
    assert client.wait(made.name, timeout=90) == "SUCCEEDED"
    assert client.status(made.name).state == "SUCCEEDED"
    assert made.name in [job.name for job in client.jobs()]
    assert isinstance(client.storage.list("/"), list)


# The cluster records the start a moment after the program has started.
INSIDE = """\
import time
import openpaisdk
client = openpaisdk.OpenPAIClient()
assert openpaisdk.in_job_container()
me = __import__("os").environ["PAI_JOB_NAME"].split("~")[-1]
while client.status(me).state == "WAITING":
    time.sleep(0.05)
print(client.status(me).state, me in [job.name for job in client.jobs()])
"""


def test_program_inside_a_job_uses_its_cluster(here) -> None:
    from openpaisdk.core import Job

    (here / "inside.py").write_text(INSIDE)
    job = Job("knows_$").one_liner(f"{sys.executable} inside.py", sources=["inside.py"], mem="128m")
    assert job.submit("local").wait() == "SUCCEEDED", job.logs()
    assert job.logs() == "RUNNING True\n"


def test_cluster_storage(here) -> None:
    from openpaisdk.core import Cluster

    (here / "a.txt").write_text("content")
    storage = Cluster("local").storage
    storage.upload("a.txt", "/binding/a.txt")
    assert "a.txt" in str(storage.list("/binding"))
    storage.download("/binding/a.txt", "b.txt")
    assert (here / "b.txt").read_text() == "content"


def test_client_from_arguments_logs_in_with_token(here, server) -> None:
    from openpaisdk import OpenPAIClient, PaiError

    client = OpenPAIClient(server["url"], server["user"])
    with pytest.raises(PaiError, match="no token"):
        client.jobs()
    assert client.login(server["token"]).jobs() is not None


def _config_anywhere(name: str) -> dict:
    from openpaisdk.config import ClusterEntry, Defaults
    from openpaisdk.jobs.command_job import command_job
    from openpaisdk.jobs.job_names import expand_name
    from openpaisdk.jobs.job_options import JobOptions

    return command_job(JobOptions(expand_name(name), ["true"]), ClusterEntry.embedded(), Defaults([]))


def test_names_are_loaded_lazily() -> None:
    code = (
        "import sys, openpaisdk; before = len(sys.modules); dir(openpaisdk);"
        "assert len(sys.modules) == before; openpaisdk.Job; assert 'openpaisdk.binding.job' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
