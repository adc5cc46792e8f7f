"""Jobs through PaddleCloud's API: submit, list, workers, logs, kill."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from support import killed_server
from support.paddlecloud_cluster import go_client_of, put_package
from support.paddlecloud_go_client import Code, GoClient, Jobs, Message, Pservers, Quotas, Workers
from support.paths import REPOSITORY
from support.server_fixture import DEADLINE_S, FINISHED_STATES, eventually, job
from support.team_cluster import TeamCluster

NewTeam = Callable[..., TeamCluster]
_numbers = itertools.count()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """An unused name of a job, with the letters that PaddleCloud allows."""
    return re.sub("[^a-z0-9]+", "-", f"{request.node.originalname[5:35]}-{next(_numbers)}".lower())


def seed_submit(cluster: TeamCluster, go: GoClient, **fields: Any) -> dict[str, Any]:
    """Submit as the seed documents it: without a trailing slash, with `job_package`."""
    reply = go.call("POST", "/api/v1/jobs", fields)
    assert reply.status_line == "HTTP/1.1 200 OK"
    answer: dict[str, Any] = reply.json()
    return answer


def state_of(cluster: TeamCluster, name: str) -> str:
    return str(cluster.detail(name)["jobStatus"]["state"])


def wait_for_end(cluster: TeamCluster, name: str) -> str:
    eventually(lambda: state_of(cluster, name) in FINISHED_STATES, f"the end of {name}")
    return state_of(cluster, name)


def test_go_client_submits_lists_and_reads_a_job(cluster: TeamCluster, go: GoClient, name: str) -> None:
    put_package(cluster, name, train_py="print('hello from the trainer')\n")
    reply = go.submit(name, entry="python3 train.py", parallelism=2, pservers=1)
    assert reply.decode(Message).msg == ""
    assert wait_for_end(cluster, name) == "SUCCEEDED"
    jobs = go.call("GET", "/api/v1/jobs/").decode(Jobs)
    listed = next(one for one in jobs.items if one.metadata.name == f"{name}-trainer")
    assert (listed.status.active, listed.status.succeeded, listed.status.failed) == (None, 2, None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", listed.status.start_time or "")
    pservers = go.call("GET", "/api/v1/pservers/").decode(Pservers)
    assert {one.metadata.name: one.status.replicas for one in pservers.items}[f"{name}-pserver"] == 1
    workers = go.call("GET", f"/api/v1/workers/?jobname={name}").decode(Workers).items
    assert {one.metadata.name: one.status.phase for one in workers} == {
        f"{name}-pserver-0": "Succeeded",
        f"{name}-trainer-0": "Succeeded",
        f"{name}-trainer-1": "Succeeded",
    }
    logs = go.logs(name, 4).decode(Code)
    assert logs.code == 200
    banner = "=" * 26
    assert logs.msg.startswith(f"{banner}{name}-trainer-0{banner}\n")
    assert f"{banner}{name}-trainer-1{banner}\n" in logs.msg
    assert "pserver" not in logs.msg.replace("num_gradient_servers", "")
    assert logs.msg.count("hello from the trainer\n") == 2
    only = go.logs(name, 2, f"{name}-trainer-1").decode(Code).msg
    assert only == "hello from the trainer\njob returned 0...setting pod return message...\n"


def test_seed_client_gets_ok_and_a_name_with_a_suffix(cluster: TeamCluster, go: GoClient, name: str) -> None:
    package = put_package(cluster, name)
    fields = {"name": name, "job_package": package, "entry": "true", "pservers": 0, "memory": "64Mi"}
    answer = seed_submit(cluster, go, **fields)
    assert (answer["code"], answer["msg"]) == (200, "OK")
    assert re.fullmatch(rf"{name}-[a-z0-9]{{4}}", answer["name"])
    assert wait_for_end(cluster, answer["name"]) == "SUCCEEDED"
    listed = go.call("GET", "/api/v1/jobs").json()
    assert listed["code"] == 200
    found = next(one for one in listed["msg"] if one["name"] == answer["name"])
    shown = {key: found[key] for key in ("job_package", "parallelism", "cpu", "gpu", "memory", "pservers")}
    assert shown == {
        "job_package": package,
        "parallelism": 1,
        "cpu": 1,
        "gpu": 0,
        "memory": "64Mi",
        "pservers": 0,
    }
    # The short name is enough while it is unambiguous.
    assert go.logs(name).decode(Code).code == 200
    other = seed_submit(cluster, go, **fields)
    ambiguous = go.logs(name).decode(Code)
    assert ambiguous.code == 400
    assert other["name"] in ambiguous.msg
    assert other["name"] in go.call("GET", f"/api/v1/workers/?jobname={name}").decode(Code).msg


def test_bearer_token_with_a_paddle_body_submits_too(cluster: TeamCluster, name: str) -> None:
    package = put_package(cluster, name)
    body = {"name": name, "job_package": package, "entry": "true", "pservers": 0, "memory": "64Mi"}
    assert cluster.ask("POST", "/api/v1/jobs", body).json()["msg"] == "OK"


@pytest.mark.parametrize(("path", "kind"), [("/v1/submit", "topology"), ("/v2/submit", "entry")])
def test_versioned_submit_paths(cluster: TeamCluster, go: GoClient, name: str, path: str, kind: str) -> None:
    package = put_package(cluster, name)
    fields = {"name": name, "job_package": package, "pservers": 0, "memory": "64Mi"}
    good = go.call("POST", path, {**fields, kind: "train.py"}).json()
    assert (good["code"], good["msg"]) == (200, "OK")
    other = "entry" if kind == "topology" else "topology"
    bad = go.call("POST", path, {**fields, other: "train.py"}).json()
    assert bad["code"] == 400
    assert f"no {kind} specified" in bad["msg"]


def test_training_jobs_are_jobs(cluster: TeamCluster, go: GoClient, name: str) -> None:
    package = put_package(cluster, name)
    fields = {"name": name, "jobPackage": package, "entry": "sleep 600", "pservers": 0, "memory": "64Mi"}
    assert go.call("POST", "/api/v1/trainingjobs/", fields).decode(Message).msg == ""
    listed = go.call("GET", "/api/v1/trainingjobs/").decode(Jobs)
    assert f"{name}-trainer" in [one.metadata.name for one in listed.items]
    assert go.call("DELETE", "/api/v1/trainingjobs/", {"jobname": name}).decode(Code) == Code(200, "")
    assert wait_for_end(cluster, name) == "STOPPED"


def test_pai_lists_paddle_jobs_and_paddlecloud_those_of_pai(
    cluster: TeamCluster, go: GoClient, bob: GoClient, name: str
) -> None:
    put_package(cluster, name)
    assert go.submit(name).decode(Message).msg == ""
    assert name in [one["name"] for one in cluster.get("/api/v2/jobs?username=alice").json()]
    cluster.run(job(f"{name}-pai", "echo from pai", instances=2))
    jobs = go.call("GET", "/api/v1/jobs/").decode(Jobs)
    listed = next(one for one in jobs.items if one.metadata.name == f"{name}-pai-trainer")
    assert listed.status.succeeded == 2
    assert "from pai" in go.logs(f"{name}-pai").decode(Code).msg
    assert len(go.call("GET", f"/api/v1/workers/?jobname={name}-pai").decode(Workers).items) == 2
    assert f"{name}-trainer" not in [
        one.metadata.name for one in bob.call("GET", "/api/v1/jobs/").decode(Jobs).items
    ]


def test_environment_of_trainers_and_pservers(cluster: TeamCluster, go: GoClient, name: str) -> None:
    show = (
        "import os\n"
        "for key in sorted(os.environ):\n"
        "    if 'PADDLE' in key or key in ('TRAINERS', 'PSERVERS', 'ENTRY', 'TOPOLOGY', 'NAMESPACE'):\n"
        "        print(key + '=' + os.environ[key])\n"
        "print('CWD=' + os.getcwd())\n"
        "print('PACKAGE=' + os.environ['TRAINER_PACKAGE'])\n"
        "print('FIRST=' + os.environ['PYTHONPATH'].split(':')[0])\n"
        "import helper\n"
        "# reads TRAINING_ROLE\n"
    )
    put_package(cluster, name, train_py=show, helper_py="print('imported')\n")
    reply = go.submit(
        name, entry="python3 train.py", parallelism=2, pservers=2, passes=3, cpu=2, topology="topology.py"
    )
    assert reply.decode(Message).msg == ""
    assert wait_for_end(cluster, name) == "SUCCEEDED"

    def variables(worker: str) -> dict[str, str]:
        text = go.logs(name, 200, worker).decode(Code).msg
        assert "imported" in text
        return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z_]+=", line))

    found = [variables(f"{name}-trainer-{index}") for index in range(2)]
    shown = found[0]
    expected = {
        "PADDLE_JOB_NAME": name,
        "TRAINERS": "2",
        "PSERVERS": "2",
        "TOPOLOGY": "topology.py",
        "ENTRY": "python3 train.py",
        "PADDLE_INIT_TRAINER_COUNT": "2",
        "PADDLE_INIT_PORTS_NUM": "1",
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
        "PADDLE_INIT_NUM_PASSES": "3",
        "PADDLE_INIT_USE_GPU": "0",
        "NAMESPACE": "alice",
        "PADDLE_CLOUD_CURRENT_DATACENTER": "dc1",
        "PADDLE_CLOUD_USERNAME": "alice",
        "PADDLE_TRAINING_ROLE": "TRAINER",
    }
    assert {key: shown.get(key) for key in expected} == expected
    assert [one["PADDLE_INIT_TRAINER_ID"] for one in found] == ["0", "1"]
    assert [one["PADDLE_TRAINER_ID"] for one in found] == ["0", "1"]
    assert len(shown["PADDLE_INIT_PSERVERS"].split(",")) == 2
    assert ":" not in shown["PADDLE_INIT_PSERVERS"]
    endpoints = shown["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
    assert len(set(endpoints)) == 2
    assert shown["PADDLE_INIT_PORT"] == endpoints[0].rpartition(":")[2]
    assert shown["CWD"] == shown["PACKAGE"] == shown["FIRST"]


def test_pservers_end_when_the_trainers_are_done(cluster: TeamCluster, go: GoClient, name: str) -> None:
    program = (
        "import os, time\n"
        "if os.environ['TRAINING_ROLE'] == 'PSERVER':\n"
        "    print('serving', flush=True)\n"
        "    time.sleep(600)\n"
        "print('trained')\n"
    )
    put_package(cluster, name, train_py=program)
    assert go.submit(name, entry="python3 train.py", pservers=2).decode(Message).msg == ""
    assert wait_for_end(cluster, name) == "SUCCEEDED"
    workers = go.call("GET", f"/api/v1/workers/?jobname={name}").decode(Workers).items
    assert {one.status.phase for one in workers} == {"Succeeded"}


def test_example_trains_with_two_parameter_servers_and_two_trainers(
    cluster: TeamCluster, go: GoClient, name: str
) -> None:
    program = (REPOSITORY / "examples" / "paddlecloud" / "linear" / "train.py").read_text()
    put_package(cluster, name, train_py=program)
    reply = go.submit(name, entry="python3 train.py", parallelism=2, pservers=2)
    assert reply.decode(Message).msg == ""
    assert wait_for_end(cluster, name) == "SUCCEEDED"
    served = [go.logs(name, 5, f"{name}-pserver-{index}").decode(Code).msg for index in range(2)]
    assert [re.findall(r"serving (\w+) at", text) for text in served] == [["slope"], ["offset"]]
    stored = cluster.get(f"/webhdfs/v1/user/alice/jobs/{name}/output/model.json?op=OPEN&data=true").json()
    assert abs(stored["slope"] - 3) < 0.05
    assert abs(stored["offset"] - 2) < 0.05
    workers = go.call("GET", f"/api/v1/workers/?jobname={name}").decode(Workers).items
    ends = [one.status.container_statuses[0].state.terminated for one in workers]
    assert [end and end.exit_code for end in ends] == [0, 0, 0, 0]


def test_failed_trainer_fails_the_job_and_shows_its_message(
    cluster: TeamCluster, go: GoClient, name: str
) -> None:
    put_package(cluster, name, train_py="import os\nos.abort()\n")
    assert go.submit(name, entry="python3 train.py").decode(Message).msg == ""
    assert wait_for_end(cluster, name) == "FAILED"
    workers = go.call("GET", f"/api/v1/workers/?jobname={name}").decode(Workers).items
    trainer = next(one for one in workers if one.metadata.name == f"{name}-trainer-0")
    assert trainer.status.phase == "Failed"
    terminated = trainer.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert (terminated.exit_code, terminated.message) == (134, "Program Abort")
    listed = go.call("GET", "/api/v1/jobs/").decode(Jobs)
    assert next(one for one in listed.items if one.metadata.name == f"{name}-trainer").status.failed == 1


def test_output_of_the_package_folder_is_stored(cluster: TeamCluster, go: GoClient, name: str) -> None:
    program = "import os\nos.makedirs('output')\nopen('output/pass-0001.tar', 'w').write('model')\n"
    put_package(cluster, name, train_py=program)
    assert go.submit(name, entry="python3 train.py", pservers=0).decode(Message).msg == ""
    assert wait_for_end(cluster, name) == "SUCCEEDED"
    stored = cluster.get(f"/webhdfs/v1/user/alice/jobs/{name}/output/pass-0001.tar?op=OPEN&data=true")
    assert stored.text == "model"


def own_packages(go: GoClient, user: str = "alice") -> set[str]:
    """Folders with the packages of jobs as they were at their submission."""
    reply = go.call("GET", f"/api/v1/filelist/?path=/pfs/dc1/home/{user}/job-packages&dc=dc1")
    return set(reply.json()["items"])


def test_refused_submission_of_the_go_client_does_not_change_the_job_of_that_name(new_team: NewTeam) -> None:
    """It uploads the package before it submits the job, and cannot ask before."""
    team = new_team()
    client = go_client_of(team, "alice")
    team.accept(job("blocker", "sleep 600", cpu=64))
    eventually(lambda: state_of(team, "blocker") == "RUNNING")
    program = "import os\nprint('{} code')\nos.makedirs('output')\nopen('output/model', 'w').write('{}')\n"
    put_package(team, "waits", train_py=program.format("first", "first"))
    assert client.submit("waits", entry="python3 train.py", pservers=0).decode(Message).msg == ""
    put_package(team, "waits", train_py=program.format("second", "second"))
    refused = client.submit("waits", entry="python3 train.py", pservers=0).decode(Message).msg
    assert refused.startswith("There is a job waits already.")
    assert len(own_packages(client)) == 1  # that of the refused one is gone
    reply = team.ask("PUT", team.path("blocker", "/executionType"), {"value": "STOP"})
    assert reply.status == 202, reply.text
    assert wait_for_end(team, "waits") == "SUCCEEDED"
    assert "first code\n" in client.logs("waits").decode(Code).msg
    stored = team.get("/webhdfs/v1/user/alice/jobs/waits/output/model?op=OPEN&data=true")
    assert stored.text == "first"
    assert client.kill("waits").decode(Code).code == 200
    assert own_packages(client) == set()
    # What the job wrote stays where PaddleCloud's clients look for it.
    assert team.get("/webhdfs/v1/user/alice/jobs/waits/output/model?op=OPEN&data=true").text == "first"


def test_package_of_a_submission_over_which_the_server_died_is_deleted(new_team: NewTeam) -> None:
    program = (sys.executable, killed_server.__file__)
    team = new_team(program=program, variables={"KILLED_IN": "admit"})
    client = go_client_of(team, "alice")
    for name in ("kept", "killer"):
        put_package(team, name, train_py="print(1)\n")
    assert client.submit("kept", entry="python3 train.py", pservers=0).decode(Message).msg == ""
    folder = team.home / "storage/user/alice/job-packages"
    # As of a cluster with the same storage, whose jobs this one does not know.
    (folder / "killer.0a1b2c3d").mkdir()
    with contextlib.suppress(OSError, ValueError):  # there is no reply
        client.submit("killer", entry="python3 train.py", pservers=0)
    assert team.process is not None
    assert team.process.wait(DEADLINE_S) == -signal.SIGKILL
    assert len(list(folder.glob("killer.*"))) == 2
    strange = team.home / "unclaimed-packages/not.a.note"
    strange.mkdir()
    team.start()
    eventually(lambda: len(list(folder.glob("killer.*"))) == 1, "the copy of the package to be deleted")
    assert (folder / "killer.0a1b2c3d").exists()
    assert len(list(folder.glob("kept.*"))) == 1
    assert wait_for_end(team, "kept") == "SUCCEEDED"
    assert list((team.home / "unclaimed-packages").iterdir()) == [strange]


def test_second_attempt_finds_what_the_first_one_wrote(cluster: TeamCluster, go: GoClient, name: str) -> None:
    program = (
        "import os, sys\n"
        "if os.path.exists('checkpoint'):\n"
        "    print('goes on after', open('checkpoint').read())\n"
        "    sys.exit(0)\n"
        "open('checkpoint', 'w').write('the first attempt')\n"
        "sys.exit(3)\n"
    )
    put_package(cluster, name, train_py=program)
    reply = go.submit(name, entry="python3 train.py", parallelism=1, pservers=0, faulttolerant=True)
    assert reply.decode(Message).msg == ""
    assert wait_for_end(cluster, name) == "SUCCEEDED"
    assert "goes on after the first attempt\n" in go.logs(name).decode(Code).msg


def test_package_that_cannot_be_copied_leaves_nothing(cluster: TeamCluster, go: GoClient, name: str) -> None:
    put_package(cluster, name)
    before = own_packages(go)
    path = f"/webhdfs/v1/user/alice/jobs/{name}/train.py?op=SETPERMISSION&permission=000"
    assert cluster.ask("PUT", path, token=cluster.tokens["alice"]).status == 200
    refused = go.submit(name, entry="python3 train.py", pservers=0).decode(Message).msg
    assert refused.startswith("Permission denied: user=alice, access=READ")
    assert own_packages(go) == before


def test_job_whose_own_package_was_deleted_runs_the_package(
    cluster: TeamCluster, go: GoClient, name: str
) -> None:
    """A job that was submitted again with `pai` outlives the package of the first one."""
    put_package(cluster, name)
    before = own_packages(go)
    assert go.submit(name, entry="python3 train.py", pservers=0).decode(Message).msg == ""
    assert wait_for_end(cluster, name) == "SUCCEEDED"
    (own,) = own_packages(go) - before
    config = cluster.get(f"/api/v2/jobs/alice~{name}/config").text
    assert go.kill(name).decode(Code).code == 200
    again = {**json.loads(config), "name": f"{name}-again"}
    cluster.accept(again)
    assert wait_for_end(cluster, again["name"]) == "SUCCEEDED"
    assert own not in own_packages(go)


def test_kill_keeps_the_history_and_frees_the_name(cluster: TeamCluster, go: GoClient, name: str) -> None:
    put_package(cluster, name)
    assert go.submit(name, entry="sleep 600", pservers=0).decode(Message).msg == ""
    eventually(lambda: state_of(cluster, name) == "RUNNING")
    again = go.submit(name).decode(Message).msg
    assert "There is a job" in again
    assert go.kill(name).decode(Code) == Code(200, "")
    jobs = go.call("GET", "/api/v1/jobs/").decode(Jobs)
    assert name in jobs.terminating or state_of(cluster, name) == "STOPPED"
    assert wait_for_end(cluster, name) == "STOPPED"
    listed = go.call("GET", "/api/v1/jobs/").decode(Jobs)
    assert f"{name}-trainer" in [one.metadata.name for one in listed.items]
    assert go.submit(name, entry="true", pservers=0).decode(Message).msg == ""
    assert wait_for_end(cluster, name) == "SUCCEEDED"


def test_kill_with_rm_removes_the_job(cluster: TeamCluster, go: GoClient, name: str) -> None:
    put_package(cluster, name)
    assert go.submit(name, entry="sleep 600", pservers=0).decode(Message).msg == ""
    reply = go.call("DELETE", "/api/v1/jobs", {"jobname": name, "rm": True}).decode(Code)
    assert reply.code == 200
    assert cluster.get(f"/api/v2/jobs/alice~{name}").status == 404
    unknown = go.kill(name).decode(Code)
    sentence = f"There is no job {name}. paddlecloud get -a jobs lists yours."
    assert (unknown.code, unknown.msg) == (404, sentence)


def test_go_clients_kill_of_a_finished_job_removes_it(cluster: TeamCluster, go: GoClient, name: str) -> None:
    put_package(cluster, name)
    go.submit(name, entry="true", pservers=0).decode(Message)
    wait_for_end(cluster, name)
    assert go.call("DELETE", f"/api/v1/jobs/{name}", {"rm": False}).decode(Code).code == 200
    assert state_of(cluster, name) == "SUCCEEDED"
    assert go.kill(name).decode(Code).code == 200
    assert cluster.get(f"/api/v2/jobs/alice~{name}").status == 404


def test_other_users_jobs_are_not_found(cluster: TeamCluster, go: GoClient, bob: GoClient, name: str) -> None:
    put_package(cluster, name)
    go.submit(name, entry="sleep 600", pservers=0).decode(Message)
    assert bob.kill(name).decode(Code).code == 404
    assert bob.logs(name).decode(Code).code == 404
    assert bob.call("GET", f"/api/v1/workers/?jobname={name}").decode(Workers).items == []
    assert go.kill(name).decode(Code).code == 200


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"memory": "1.5Q"}, "memory must be a whole number with one of the suffixes"),
        ({"memory": "0Gi"}, "memory must be more than 0"),
        ({"psmemory": "-1Gi"}, "psmemory must be"),
        ({"parallelism": -1}, "parallelism must be a whole number from 1"),
        ({"parallelism": 10**9}, "parallelism must be a whole number from 1"),
        ({"cpu": "2"}, 'cpu must be a whole number from 1 to 2147483648, not "2"'),
        ({"faulttolerant": 1}, "faulttolerant must be true or false"),
        ({"entry": "", "topology": ""}, "no topology or entry specified"),
        ({"entry": "", "topology": "t.py", "faulttolerant": True}, "a fault tolerant job needs an entry"),
        ({"entry": ["x"]}, "entry must be text"),
        ({"name": "a.b"}, "jobname can not contain '.' or '_'"),
        ({"name": "a_b"}, "jobname can not contain '.' or '_'"),
        ({"name": "../x"}, "jobname can not contain '.' or '_'"),
        ({"name": "x/y"}, "cannot be the name of a job"),
        ({"name": "x" * 300}, "cannot be the name of a job"),
        ({"datacenter": "../.."}, "no datacenter"),
        ({"name": "never-uploaded"}, "package not exist in cloud: /pfs/dc1/home/alice/jobs/never-uploaded"),
        ({"jobPackage": "/pfs/dc1/home/bob/jobs/x"}, "what you request is unauthorized"),
        ({"jobPackage": "/pfs/dc1/home/alice/../bob/x"}, "what you request is unauthorized"),
    ],
)
def test_bad_submission_is_one_sentence_in_a_200(
    cluster: TeamCluster, go: GoClient, changes: dict[str, Any], sentence: str
) -> None:
    put_package(cluster, "bad-submission")
    message = go.submit("bad-submission", **changes).decode(Message).msg
    assert sentence in message
    assert "\n" not in message


def test_hint_follows_a_full_stop(cluster: TeamCluster, go: GoClient) -> None:
    put_package(cluster, "full-stop")
    message = go.submit("full-stop", entry="").decode(Message).msg
    assert message == ("no topology or entry specified. Name the command that starts a trainer with -entry.")


def test_tasks_that_wait_for_resources_are_pending_workers(
    cluster: TeamCluster, go: GoClient, name: str
) -> None:
    put_package(cluster, name)
    assert go.submit(name, parallelism=2, cpu=100_000, pservers=1).decode(Message).msg == ""
    where = f"/api/v1/workers/?jobname={name}"
    reply = eventually(lambda: "cores" in (found := go.call("GET", where)).body.decode() and found)
    workers = reply.decode(Workers).items
    assert {one.metadata.name: one.status.phase for one in workers} == {
        f"{name}-pserver-0": "Pending",
        f"{name}-trainer-0": "Pending",
        f"{name}-trainer-1": "Pending",
    }
    assert all("asks for 200001 cores" in one["status"]["message"] for one in reply.json()["items"])
    # The Go client shows the message of a container's end, and <nil> for no exit code.
    ends = [one.status.container_statuses[0].state.terminated for one in workers]
    assert all(end and end.exit_code is None and "asks for" in (end.message or "") for end in ends)
    assert go.call("DELETE", "/api/v1/jobs", {"jobname": name, "rm": True}).decode(Code).code == 200


def test_lists_with_either_kind_of_token(cluster: TeamCluster, go: GoClient, name: str) -> None:
    """As the table of the page about the REST API has it."""
    put_package(cluster, name)
    assert go.submit(name, entry="true", pservers=0).decode(Message).msg == ""
    ours = cluster.get("/api/v1/jobs").json()
    assert name in [one["name"] for one in ours]  # OpenPAI's list
    jobs = cluster.get("/api/v1/trainingjobs").json()
    assert name in [one["name"] for one in jobs["msg"]]


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/v1/quota/", "GET"),
        ("/api/v1/pfs/files", "DELETE, GET, POST"),
        ("/api/v1/trainingjobs", "DELETE, GET, POST"),
    ],
)
def test_unknown_method_is_405_with_the_methods_of_the_path(
    cluster: TeamCluster, path: str, methods: str
) -> None:
    reply = cluster.ask("PATCH", path)
    assert (reply.status, reply.headers.get("allow"), reply.json()["code"]) == (405, methods, 405)


def test_body_that_is_not_json_is_one_sentence(go: GoClient) -> None:
    reply = go.call("POST", "/api/v1/jobs/", [1, 2])
    assert reply.decode(Code) == Code(400, "The request's body must be a JSON object.")


def test_unknown_path_is_404_in_paddles_format(go: GoClient) -> None:
    reply = go.call("GET", "/api/v1/jobs-of-others/")
    assert reply.status_line.startswith("HTTP/1.1 404")
    assert reply.json()["code"] == 404


@pytest.mark.slow
def test_fault_tolerant_job_restarts_a_trainer_and_ends_by_itself(
    cluster: TeamCluster, go: GoClient, name: str
) -> None:
    program = (
        "import os, sys\n"
        "if os.environ['TRAINING_ROLE'] == 'TRAINER':\n"
        "    assert os.environ['MASTER_IP'] and os.environ['PADDLE_PSERVERS_IP_PORT_LIST']\n"
        "    print('attempt', os.environ['FC_TASK_ATTEMPT_ID'])\n"
        "    sys.exit(0 if os.environ['FC_TASK_ATTEMPT_ID'] == '1' else 3)\n"
        "import time\n"
        "time.sleep(600)\n"
    )
    put_package(cluster, name, train_py=program)
    reply = go.submit(name, entry="python3 train.py", parallelism=2, pservers=1, faulttolerant=True)
    assert reply.decode(Message).msg == ""
    assert wait_for_end(cluster, name) == "SUCCEEDED"
    workers = go.call("GET", f"/api/v1/workers/?jobname={name}").decode(Workers).items
    assert {one.metadata.name for one in workers} == {
        f"{name}-master-0",
        f"{name}-pserver-0",
        f"{name}-trainer-0",
        f"{name}-trainer-1",
    }
    assert "attempt 1" in go.logs(name, 20).decode(Code).msg
    pservers = go.call("GET", "/api/v1/pservers/").decode(Pservers)
    assert f"{name}-master" in [one.metadata.name for one in pservers.items]


@pytest.mark.slow
def test_fault_tolerant_job_fails_when_all_trainers_have(
    cluster: TeamCluster, go: GoClient, name: str
) -> None:
    put_package(cluster, name, train_py="raise SystemExit(3)\n")
    go.submit(name, entry="python3 train.py", parallelism=1, pservers=1, faulttolerant=True).decode(Message)
    assert wait_for_end(cluster, name) == "FAILED"


def test_quota_is_enforced_and_reported(new_team: NewTeam) -> None:
    team = new_team()
    limits = {"tasks": 3, "cpu": 4, "memoryMB": 2048, "gpu": 0}
    reply = team.ask("PUT", "/api/v2/users/alice/quota", limits, token=team.tokens["admin"])
    assert reply.status == 201, reply.text
    client = go_client_of(team, "alice")
    put_package(team, "quota")
    message = client.submit("quota", parallelism=4, pservers=0).decode(Message).msg
    assert "can never start within the" in message
    assert client.submit("quota", entry="sleep 600", parallelism=2, pservers=1).decode(Message).msg == ""
    eventually(lambda: state_of(team, "quota") == "RUNNING")
    reply = client.call("GET", "/api/v1/quota/")
    assert len(reply.decode(Quotas).items) == 1
    quota = reply.json()
    hard, used = quota["items"][0]["status"]["hard"], quota["items"][0]["status"]["used"]
    assert hard == {
        "requests.cpu": "4",
        "requests.memory": "2Gi",
        "alpha.kubernetes.io/nvidia-gpu": "0",
        "pods": "3",
    }
    assert (used["requests.cpu"], used["requests.memory"], used["pods"]) == ("3", "192Mi", "3")
    assert quota["msg"]["pods"] == {"used": "3", "limit": "3"}
