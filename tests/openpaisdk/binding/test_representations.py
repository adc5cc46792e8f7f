"""How objects look in a REPL and in a notebook: readable, escaped, and without tokens and passwords."""

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

import openpaisdk
from openpaisdk import Cluster, ClusterList, Job, OpenPAIClient
from openpaisdk.binding.cluster import SubmittedJob
from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.client.v1_client import V1ClusterClient
from openpaisdk.config import ClusterEntry
from openpaisdk.connect import ClusterConnection
from openpaisdk.storage import Storage
from paiprotocol.jobs import JobBuilder

TOKEN, PASSWORD, SECRET = "t0ken-of-alice", "passw0rd-of-alice", "hush-hush"
ENDPOINT = Endpoint("http://h", "alice", TOKEN)
ENTRY = {
    "cluster_alias": "team",
    "pai_uri": "http://h",
    "user": "alice",
    "token": TOKEN,
    "password": PASSWORD,
}


def shown(value: object) -> dict[str, str]:
    """All texts by which Python and a notebook show an object."""
    formatter = InteractiveShell.instance().display_formatter
    return {"repr": repr(value), "str": str(value), "format": f"{value}", **formatter.format(value)[0]}


# --- readable ---


def cluster() -> Cluster:
    return Cluster("team", f"http://alice:{PASSWORD}@h", "alice", PASSWORD, TOKEN)


def job() -> Job:
    made = Job("train").one_liner("python train.py", image="<img>", gpu=1, mem="4g", secrets={"KEY": SECRET})
    made.protocol["prerequisites"][0]["auth"] = {"username": "alice", "password": PASSWORD}
    made.cluster = cluster()
    return made


def test_job(here) -> None:
    views = shown(job())
    assert views["repr"] == "<Job train on team>"
    assert "name: train" in views["str"] and "secrets: '******'" in views["str"]
    for text in ("train", "team", "python train.py", "&lt;img&gt;", "1 GPU", "4096 MB"):
        assert text in views["text/html"], text
    assert "<img>" not in views["text/html"]


def test_job_without_content_and_version_1_job(here) -> None:
    assert repr(Job()) == "<Job without a name>" and "<table>" in Job()._repr_html_()
    old = Job(protocol={"jobName": "old", "image": "i", "taskRoles": [{"name": "w", "command": "<b>"}]})
    assert "old" in old._repr_html_() and "&lt;b&gt;" in old._repr_html_()


def test_cluster_and_lists(here) -> None:
    views = shown(cluster())
    assert views["repr"] == "<Cluster team http://******@h as alice>"
    assert "team" in views["text/html"] and "alice" in views["text/html"]
    clusters = ClusterList([ENTRY, {"cluster_alias": "<b>", "type": "embedded"}])
    assert "&lt;b&gt;" in clusters._repr_html_() and "on this machine" in clusters._repr_html_()
    assert repr(ClusterList()) == "<no clusters>" and ClusterList()._repr_html_() == "<p>no clusters</p>"


def test_storage(here) -> None:
    views = shown(Cluster("local").storage)
    assert views["repr"].startswith("<Storage pai://local/") and "pai://local/" in views["text/html"]


def test_job_list(here) -> None:
    from openpaisdk.binding.job_list import JobList
    from openpaisdk.client.models import JobSummary

    jobs = JobList([JobSummary({"name": "<b>", "username": "alice", "state": "RUNNING"})])
    assert "&lt;b&gt;" in shown(jobs)["text/html"] and "RUNNING" in shown(jobs)["text/plain"]
    assert JobList()._repr_html_() == "<p>no jobs</p>"


def test_representations_contact_no_cluster(here) -> None:
    unreachable = Cluster("gone", "http://127.0.0.1:9", "alice", token=TOKEN)
    made = Job("x").one_liner("true")
    made.cluster = unreachable
    assert shown(unreachable) and shown(made)


# --- without secrets ---


def spec() -> object:
    builder = JobBuilder("j").image("i", username="u", password=PASSWORD, registry="r")
    return builder.secret("KEY", SECRET).role("main", "echo <% $secrets.KEY %>")


INSTANCES = {
    "binding.async_wrappers.AsyncWrapper": lambda: job().aio,
    "binding.client.OpenPAIClient": lambda: OpenPAIClient("http://h", "alice", PASSWORD, TOKEN),
    "binding.cluster.Cluster": cluster,
    "binding.cluster.SubmittedJob": lambda: SubmittedJob(job().protocol, cluster()),
    "binding.cluster.AsyncCluster": lambda: cluster().aio,
    "binding.cluster_list.ClusterList": lambda: ClusterList([ENTRY]),
    "binding.cluster_list.ClusterSettings": lambda: ClusterList([ENTRY]).select("team"),
    "binding.job.Job": job,
    "binding.job.AsyncJob": lambda: job().aio,
    "connect.ClusterConnection": lambda: ClusterConnection(ClusterEntry(ENTRY)),
    "client.address.Address": lambda: ENDPOINT.address,
    "client.cluster_client.ClusterClient": lambda: ClusterClient("team", ENDPOINT),
    "client.v1_client.V1ClusterClient": lambda: V1ClusterClient("team", ENDPOINT),
    "client.transport.Endpoint": lambda: ENDPOINT,
    "config.clusters.ClusterEntry": lambda: ClusterEntry(ENTRY),
    "protocol.job_builder.JobBuilder": spec,
    "protocol.model.Secrets": lambda: spec().build().secrets,
    "protocol.model.Prerequisite": lambda: spec().build().prerequisites[0],
    "protocol.model.JobSpec": lambda: spec().build(),
    "protocol.model.TaskRole": lambda: spec().build().task_roles[0],
    "storage.storage.Storage": lambda: Storage.of(Cluster("local").client),
}
"""Objects that hold, or are made of something that holds, a token, a password or a secret."""
WITHOUT_SECRETS = {
    "cli.jobs.logs.WaitTimeout",
    "cli.jobs.pending_reason.PendingQueue",
    "cli.setup.optional_parts.Requirements",
    "client.follow_stream.LogPosition",
    "client.http_errors.Redirected",
    "client.models",
    "client.port_forward.PortForward",
    "client.session.ConnectionLost",
    "client.session.SessionRefused",
    "binding.job_list.JobList",
    "binding.run_list.Runs",
    "data.errors",
    "data.folder_records.FolderRecords",
    "data.formats.hadoop_codecs",
    "data.pack_reader.Pack",
    "errors",
    "functions.debug_executor.DebugJob",
    "functions.gang_future.GangFuture",
    "functions.job_environment.JobEnvironment",
    "functions.job_future.JobFuture",
    "functions.job_future.JobFutures",
    "functions.remote_function.RemoteFunction",  # shows the name of the function only
    "functions.task_errors",
    "functions.usage_errors",
    "jobs.runs.Run",
    "jobs.runs.RunMetric",
    "notebook.cell_error",
    "paddlecloud.multipart",
    "protocol.completion",
    "protocol.exit_codes",
    "protocol.extras",
    "protocol.failure_causes",
    "protocol.log_end",
    "protocol.model.Deployment",
    "protocol.model.Resources",
    "protocol.plugins.Plugin",
    "protocol.problems.Problem",
    "protocol.retries",
    "protocol.states",
    "protocol.task_environment.TaskPlacement",
    "protocol.v1",  # version 1 has no secrets
    "protocol.convert",
    "storage.local_walk.SkippedFiles",
    "storage.transfer.plan.TransferPlan",
}
VIEWS = ("__repr__", "__str__", "__format__", "_repr_html_", "_repr_pretty_", "_repr_mimebundle_")


def classes_with_representations() -> list[str]:
    """Classes of the SDK that define how they are shown; all others are shown as ``<... object at ...>``."""
    found = []
    for module in pkgutil.walk_packages(openpaisdk.__path__, "openpaisdk."):
        if module.name.endswith("__main__"):
            continue
        for name, kind in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(kind) and kind.__module__ == module.name:
                ours = [base for base in kind.__mro__ if base.__module__.startswith("openpaisdk")]
                if any(view in vars(base) for view in VIEWS for base in ours):
                    found.append(f"{module.name.removeprefix('openpaisdk.')}.{name}")
    return found


def test_every_class_with_a_representation_is_checked() -> None:
    unknown = [
        name
        for name in classes_with_representations()
        if name not in INSTANCES
        and name not in WITHOUT_SECRETS
        and name.rpartition(".")[0] not in WITHOUT_SECRETS
    ]
    assert not unknown, f"say in INSTANCES or WITHOUT_SECRETS what these show: {unknown}"


@pytest.mark.parametrize("name", INSTANCES)
def test_no_representation_shows_a_secret(here, server, name: str) -> None:
    for view, text in shown(INSTANCES[name]()).items():
        for secret in (TOKEN, PASSWORD, SECRET, server["token"]):
            assert secret not in text, (view, text)


def test_settings_keep_their_values(here, tmp_path) -> None:
    clusters = ClusterList([ENTRY])
    settings = clusters.select("team")
    assert settings["token"] == TOKEN and settings == ENTRY
    assert TOKEN not in repr(clusters.clusters) and "'token': '******'" in repr(settings)
    clusters.save(str(tmp_path / "c.yaml"))
    assert ClusterList().load(str(tmp_path / "c.yaml")).select("team")["token"] == TOKEN
    from openpaisdk.io_utils import from_file, to_file

    to_file(clusters.clusters, tmp_path / "d.yaml")
    assert from_file(tmp_path / "d.yaml") == [ENTRY]


def test_errors_about_secrets_do_not_show_them(here) -> None:
    for wrong in ([f"KEY={SECRET}", 5], {"KE Y": SECRET}, {"KEY": SECRET + "\0"}, [SECRET]):
        with pytest.raises(openpaisdk.PaiError) as caught:
            Job("x").one_liner("true", secrets=wrong)
        assert SECRET not in f"{caught.value!r} {caught.value} {caught.value.hint}"


def test_debug_log_shows_no_token(here, server) -> None:
    code = (
        "from openpaisdk import OpenPAIClient\n"
        f"client = OpenPAIClient({server['url']!r}, {server['user']!r}, token={server['token']!r})\n"
        "client.jobs(); client.storage.list('/'); print(client)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PAI_DEBUG": "1"},
    )
    assert done.returncode == 0 and "GET /" in done.stderr, done
    assert server["token"] not in done.stdout + done.stderr
