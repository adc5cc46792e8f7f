"""The real executables against recorded OpenPAI servers of version 0.14 and 1.8."""

import json
import time

import pytest
import yaml

from support.cli_user import CliUser
from support.http_peer import Peer
from support.recorded_openpai import PASSWORD, USER, V014, V18, error_reply, token

NO_API = error_reply("NoApiError", "API is not found.", 404)


@pytest.fixture(scope="module", params=[V014, V18], ids=["0.14", "1.8"])
def registered_user(request, tmp_path_factory):
    """A user with one such cluster registered."""
    server = request.param()
    peer = Peer(server)
    server.port = peer.port
    person = CliUser(tmp_path_factory.mktemp("person"))
    person.server, person.uri = server, peer.uri
    arguments = ["-a", "far", "--pai-uri", peer.uri, "--user", USER, "--password", PASSWORD]
    done = person.pai("add-cluster", *arguments)
    assert done.status == 0 and "Added far" in done.err, done
    yield person
    peer.close()


def entry(person) -> dict:
    return yaml.safe_load((person.home / ".openpai/clusters.yaml").read_text())[0]


def test_add_cluster_stores_info_virtual_clusters_and_storages(registered_user) -> None:
    kept = entry(registered_user)
    assert kept["token"] == registered_user.server.token and "password" not in kept
    if isinstance(registered_user.server, V014):
        assert kept["api"] == 1 and kept["virtual_clusters"] == ["default", "vc1"]
    else:
        assert kept["info"]["version"] == "v1.8.1" and kept["storages"][0]["name"] == "team_nfs"
    assert registered_user.pai("update-clusters").status == 0
    assert "far" in registered_user.pai("list-clusters").out


def test_wrong_password_is_named(registered_user) -> None:
    arguments = ["-a", "x", "--pai-uri", registered_user.uri, "--user", USER, "--password", "wrong-one"]
    done = registered_user.pai("add-cluster", *arguments)
    assert done.status == 1 and "The cluster x does not accept this password of alice." in done.err, done


def test_jobs_are_listed_and_filtered(registered_user) -> None:
    def names(*arguments):
        return [
            job["name"] for job in json.loads(registered_user.pai("list-jobs", "-o", "json", *arguments).out)
        ]

    assert names() == ["new_one", "old_one"]
    assert names("--state", "RUNNING") == ["new_one"] and names("--keyword", "old") == ["old_one"]
    assert names("--since", "1h") == ["new_one"] and names("--limit", "1", "--offset", "1") == ["old_one"]
    assert "new_one" in registered_user.pai("list-jobs", "--user", "__all__").out


def test_job_status_config_and_ssh(registered_user) -> None:
    done = registered_user.pai("job-status", "old_one")
    assert done.status == 0 and "SUCCEEDED" in done.out and "main[0]" in done.out, done
    assert registered_user.pai("job-status", "old_one", "config").status == 0
    done = registered_user.pai("job-status", "none_such")
    assert done.status == 1 and "There is no job 'none_such' on the cluster far" in done.err, done
    done = registered_user.pai("job-status", "old_one", "ssh")
    if isinstance(registered_user.server, V014):
        assert "ssh -i alice~old_one -p 25001 root@10.0.0.1" in done.out, done
    else:
        assert done.status == 1 and "SSH info" in done.err, done


def test_log_is_complete(registered_user) -> None:
    done = registered_user.pai("logs", "-f", "old_one")
    want = "epoch 1 < 2\nepoch 2\n" if isinstance(registered_user.server, V014) else "epoch 1\nepoch 2\n"
    assert (done.status, done.out) == (0, want), done
    assert registered_user.pai("wait", "old_one").status == 0
    assert "SUCCEEDED" in registered_user.pai("connect-job", "old_one").out


def test_stop_job(registered_user) -> None:
    if isinstance(registered_user.server, V014):
        assert registered_user.pai("stop-job", "new_one").status == 0
        assert registered_user.server.stopped == ["new_one"]
    else:
        assert (
            registered_user.pai("stop-job", "old_one").status == 0
        )  # already finished according to its detail
        assert registered_user.server.stopped == []


def test_jobs_are_submitted_in_their_own_version(registered_user) -> None:
    registered_user.server.submitted.clear()
    done = registered_user.pai("sub", "-i", "img", "-j", "mine", "echo", "hi")
    assert done.status == 0, done
    path, body = registered_user.server.submitted.pop()
    assert path == "/api/v2/jobs" and json.loads(body)["name"] == "mine"
    old = {
        "jobName": "older",
        "image": "img",
        "taskRoles": [
            {"name": "m", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 100, "gpuNumber": 0, "command": "x"}
        ],
    }
    registered_user.write(old__json=json.dumps(old))
    done = registered_user.pai("submit", "old.json")
    path, body = registered_user.server.submitted.pop()
    if isinstance(registered_user.server, V014):
        assert path.endswith(f"/user/{USER}/jobs") and json.loads(body)["jobName"] == "older", done
    else:
        assert path == "/api/v2/jobs" and "accepts no version 1 jobs" in done.err, done


def test_unsupported_requests_are_one_line_errors(registered_user) -> None:
    done = registered_user.pai("sub", "-i", "img", "--timeout", "1h", "true")
    assert done.status == 2 and "does not support --timeout" in done.err, done
    done = registered_user.pai("delete-job", "new_one")
    if isinstance(registered_user.server, V014):
        assert done.status == 0 and done.out == "Deleted new_one\n", done  # the first generation supports it
    else:
        assert done.status == 1 and "does not support deleting jobs" in done.err, done
    done = registered_user.pai("tag-job", "old_one", "good")
    if isinstance(registered_user.server, V014):
        assert done.status == 1 and "has no tags" in done.err, done
    else:
        assert done.status == 0 and done.out == "good\n", done
        assert registered_user.pai("tag-job", "old_one", "--remove", "good").status == 0


def test_resources_are_the_free_ones(registered_user) -> None:
    row = json.loads(registered_user.pai("cluster-resources", "-o", "json").out)[0]
    assert (row["GPUs"], row["totalGPUs"], row["vCores"], row["memoryMB"]) == (3, 4, 6, 7168)


def test_expired_token_error_says_how_to_renew_it(registered_user) -> None:
    kept = entry(registered_user)
    path = registered_user.home / ".openpai/clusters.yaml"
    path.write_text(yaml.safe_dump([{**kept, "token": token(time.time() - 86400)}]))
    done = registered_user.pai("sub", "-i", "img", "true")
    assert done.status == 1 and "Your token for the cluster far expired on " in done.err, done
    assert "pai update-token -a far" in done.err
    assert registered_user.pai("update-token", "-a", "far", "--password", PASSWORD).status == 0
    assert registered_user.pai("sub", "-i", "img", "true").status == 0


def test_stored_password_renews_the_token(registered_user) -> None:
    path = registered_user.home / ".openpai/clusters.yaml"
    kept = entry(registered_user)
    # as written by the SDK of 2019: password in clear text, no token
    path.write_text(yaml.safe_dump([{**kept, "token": None, "password": PASSWORD}]))
    assert registered_user.pai("sub", "-i", "img", "true").status == 0
    assert entry(registered_user)["token"] == registered_user.server.token


def test_rest_server_without_web_server_is_found(tmp_path) -> None:
    """A rest-server without web server has the API at its root."""
    server = V18()
    bare = Peer(lambda r: NO_API if r.path.startswith("/rest-server") else server.respond(r, r.path))
    person = CliUser(tmp_path)
    arguments = ["-a", "bare", "--pai-uri", bare.uri, "--user", USER, "--password", PASSWORD]
    assert person.pai("add-cluster", *arguments).status == 0
    assert entry(person)["rest_path"] == "" and "new_one" in person.pai("list-jobs").out
    bare.close()


def test_debug_enable_logs_every_request(registered_user) -> None:
    assert " in " not in registered_user.pai("list-jobs").err
    (registered_user.project / ".openpai").mkdir(exist_ok=True)
    (registered_user.project / ".openpai/debug_enable").touch()
    try:
        done = registered_user.pai("list-jobs")
        assert "far: GET /rest-server/api/" in done.err and registered_user.server.token not in done.err, done
    finally:
        (registered_user.project / ".openpai/debug_enable").unlink()
