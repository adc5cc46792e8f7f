"""Told before a job is sent or waited for: requests that never fit, images that are not used."""

import json

import pytest

from openpaisdk.config.clusters import ClusterEntry
from openpaisdk.jobs.preflight import preflight
from paiprotocol.errors import InvalidParameters
from support.cli_user import CliUser, until
from support.http_peer import Peer
from support.recorded_openpai import PASSWORD, USER, V18
from support.team_cluster import PASSWORD as PASSWORD_OF_TEAM
from support.team_cluster import TeamCluster, add_users

V2_JOB = """\
protocolVersion: 2
name: large_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: "ubuntu:24.04"}]
taskRoles:
  main:
    dockerImage: img
    resourcePerInstance: {cpu: CPU, memoryMB: 64, gpu: 0}
    commands: ["true"]
"""
V1_JOB = """\
{"jobName": "large_old_$", "image": "ubuntu:24.04",
 "taskRoles": [{"name": "main", "command": "true", "cpuNumber": CPU, "memoryMB": 64, "shmMB": 8}]}
"""
NUMBERS = "the job asks for 3 cores; the virtual cluster default has at most 2 cores."


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A cluster of two cores that runs no containers, registered as `team` by its user."""
    folder = tmp_path_factory.mktemp("team")
    add_users(folder / "cluster")
    machine = ("--allow-shared-account", "--cpus", "2", "--memory-mb", "8000", "--gpus", "0")
    cluster, user = TeamCluster(folder / "cluster", machine), CliUser(folder / "user")
    try:
        cluster.start()
        cluster.tokens = {"admin": cluster.log_in("admin")}
        assert cluster.get("/api/v2/info", token=None).json()["containers"] is False
        host, port = cluster.address
        words = ["--pai-uri", f"http://{host}:{port}", "--user", "alice", "--password", PASSWORD_OF_TEAM]
        done = user.pai("add-cluster", "-a", "team", *words)
        assert done.status == 0, done
        assert user.pai("select-cluster", "team").status == 0
        yield user
    finally:
        cluster.close()


def test_sub_warns_with_both_numbers_before_it_waits(team: CliUser) -> None:
    done = team.pai("sub", "--no-sources", "--cpu", "3", "true")
    assert done.status == 0, done
    warning = f"The cluster team says: The job stays pending until the cluster changes: {NUMBERS}"
    assert warning in done.err.splitlines()
    waiter = team.begin("sub", "--no-sources", "--cpu", "3", "--wait", "true")
    try:
        lines = [waiter.stderr.readline().strip() for _ in range(2)]
    finally:
        waiter.terminate()
        waiter.communicate(timeout=90)
    assert lines[0] == warning and lines[1].startswith("Job true_"), lines


def _names(team: CliUser) -> list[str]:
    """Of all jobs; other values change while jobs wait."""
    return [job["name"] for job in json.loads(team.pai("list-jobs", "--all", "-o", "json").out)]


@pytest.mark.parametrize(("file", "text"), [("job.yaml", V2_JOB), ("job.json", V1_JOB)])
def test_submit_warns_and_strict_refuses(team: CliUser, file: str, text: str) -> None:
    (team.project / file).write_text(text.replace("CPU", "3"))
    done = team.pai("submit", file)
    assert done.status == 0 and NUMBERS in done.err, done
    before = _names(team)
    refused = team.pai("submit", "--strict", file)
    assert refused.status == 1 and refused.out == "", refused
    assert "can never start as the cluster is now. The job asks for 3 cores;" in refused.err
    assert "Request less" in refused.err and "Nothing was submitted." in refused.err
    assert _names(team) == before
    (team.project / file).write_text(text.replace("CPU", "2"))
    assert team.pai("submit", "--strict", "--wait", file).status == 0


def test_sub_strict_refuses_what_never_fits(team: CliUser) -> None:
    done = team.pai("sub", "--no-sources", "--strict", "--mem", "9g", "true")
    assert done.status == 1 and "asks for 9216 MB of memory; the virtual cluster default" in done.err, done


def test_binding_refuses_what_never_fits_if_strict(team: CliUser) -> None:
    program = (
        "from openpaisdk import Job\n"
        "try:\n"
        "    Job('large_binding_$').one_liner('true', cpu=3).submit('team', strict=True)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    done = team.run(["python", "-c", program])
    assert done.out.startswith("InvalidParameters ") and "The job asks for 3 cores;" in done.out, done


def test_clone_strict_refuses_what_never_fits(team: CliUser) -> None:
    name = team.pai("sub", "--no-sources", "--wait", "true").out.strip()
    more = ["-u", "taskRoles:main:resourcePerInstance:cpu=3"]
    refused = team.pai("clone-job", "--strict", *more, name)
    assert refused.status == 1 and "The job asks for 3 cores;" in refused.err, refused
    assert team.pai("clone-job", "--strict", "--wait", name).status == 0


def test_image_that_is_not_used_is_named_by_every_command(team: CliUser) -> None:
    unused = "This cluster runs tasks without containers: ubuntu:24.04 is not used."
    done = team.pai("sub", "--no-sources", "-i", "ubuntu:24.04", "true")
    assert done.status == 0 and done.err.splitlines()[0] == unused, done
    assert done.err.count(unused) == 1, "the cluster says it as well"
    name = done.out.strip()
    until(lambda: team.state(name) == "SUCCEEDED")
    assert unused in team.pai("wait", name).err
    assert unused in team.pai("job-status", name).err
    followed = team.pai("sub", "--no-sources", "-i", "ubuntu:24.04", "--wait", "true")
    assert followed.status == 0 and followed.err.count(unused) == 1, followed
    (team.project / "job.yaml").write_text(V2_JOB.replace("CPU", "1"))
    assert team.pai("submit", "--follow", "job.yaml").err.count(unused) == 1


def test_sources_are_not_sent_before_the_warning(team: CliUser) -> None:
    (team.project / "large").write_bytes(b"x" * (5 << 20))
    err = team.pai("sub", "-i", "ubuntu:24.04", "--sources", "large", "true").err.splitlines()
    assert err[0].startswith("This cluster runs tasks without containers"), err
    (team.project / "large").unlink()


def test_server_of_openpai_is_asked_for_its_resources(new_user: CliUser) -> None:
    server = V18()
    peer = Peer(server)
    words = ["--pai-uri", peer.uri, "--user", USER, "--password", PASSWORD]
    assert new_user.pai("add-cluster", "-a", "old", *words).status == 0
    large = ["sub", "-a", "old", "--no-sources", "-i", "img", "--gpu", "5"]
    done = new_user.pai(*large, "true")
    assert done.status == 0 and "It asks for 5 GPUs; the virtual cluster default has 4." in done.err, done
    sent = len(server.submitted)
    refused = new_user.pai(*large, "--strict", "true")
    assert refused.status == 1 and "can never start on old. It asks for 5 GPUs;" in refused.err, refused
    assert len(server.submitted) == sent
    fits = new_user.pai(*large[:-1], "4", "--strict", "true")
    assert fits.status == 0 and "asks for" not in fits.err, fits
    peer.close()


class _Offline:
    """A client whose cluster does not respond."""

    user = "alice"

    def virtual_clusters(self) -> list[object]:
        raise InvalidParameters("no")


def test_preflight_of_a_cluster_that_does_not_respond_says_nothing() -> None:
    entry = ClusterEntry({"cluster_alias": "old", "pai_uri": "http://old"})
    job = {"jobName": "x", "image": "img", "taskRoles": [{"name": "main", "command": "true"}]}
    assert preflight(entry, _Offline(), job, strict=True) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [("sub", "-w", "/somebody/x"), ("resubmit", "-w", "/somebody/x")])
def test_workspace_that_cannot_be_written_is_found_before_anything_is_uploaded(user, words) -> None:
    user.write(data__txt=f"never uploaded {words[0]}")
    base = user.pai("sub", "--no-sources", "--mem", "32m", "-j", "base_$", "true").out.strip()
    command, *options = words
    before = sorted(user.cluster_home.glob("sources/*"))
    last = [base] if command == "resubmit" else ["--", "true"]
    done = user.pai(command, *options, "--sources", "data.txt", "-j", f"unwritable_{command}", *last)
    assert done.status == 1 and "could not write to its workspace /somebody/x/jobs/unwritable_" in done.err, (
        done
    )
    assert "; name a folder that " in done.err
    assert "Nothing was submitted" in done.err and sorted(user.cluster_home.glob("sources/*")) == before
    assert user.pai("job-status", f"unwritable_{command}").status == 1
