"""Every kind of question, through the real executables, to a 0.14 and to a 1.8 server as they were."""

import json
import time

import pytest
import yaml

from support.cli_user import Person
from support.http_peer import Peer
from support.recorded_openpai import PASSWORD, USER, V014, V18, refused, token

NO_API = refused("NoApiError", "API is not found.", 404)


@pytest.fixture(scope="module", params=[V014, V18], ids=["0.14", "1.8"])
def there(request, tmp_path_factory):
    """A person who knows one such cluster."""
    server = request.param()
    peer = Peer(server)
    server.port = peer.port
    person = Person(tmp_path_factory.mktemp("person"))
    person.server, person.uri = server, peer.uri
    words = ["-a", "far", "--pai-uri", peer.uri, "--user", USER, "--password", PASSWORD]
    done = person.pai("add-cluster", *words)
    assert done.status == 0 and "Added far" in done.err, done
    yield person
    peer.close()


def entry(person) -> dict:
    return yaml.safe_load((person.home / ".openpai/clusters.yaml").read_text())[0]


def test_add_cluster_stores_info_virtual_clusters_and_storages(there) -> None:
    kept = entry(there)
    assert kept["token"] == there.server.token and "password" not in kept
    if isinstance(there.server, V014):
        assert kept["api"] == 1 and kept["virtual_clusters"] == ["default", "vc1"]
    else:
        assert kept["info"]["version"] == "v1.8.1" and kept["storages"][0]["name"] == "team_nfs"
    assert there.pai("update-clusters").status == 0
    assert "far" in there.pai("list-clusters").out


def test_wrong_password_shows_the_clusters_message(there) -> None:
    words = ["-a", "x", "--pai-uri", there.uri, "--user", USER, "--password", "wrong-one"]
    done = there.pai("add-cluster", *words)
    assert done.status == 1 and "Password is incorrect" in done.err, done


def test_jobs_are_listed_and_filtered(there) -> None:
    def names(*words):
        return [job["name"] for job in json.loads(there.pai("list-jobs", "-o", "json", *words).out)]

    assert names() == ["new_one", "old_one"]
    assert names("--state", "RUNNING") == ["new_one"] and names("--keyword", "old") == ["old_one"]
    assert names("--since", "1h") == ["new_one"] and names("--limit", "1", "--offset", "1") == ["old_one"]
    assert "new_one" in there.pai("list-jobs", "--user", "__all__").out


def test_job_status_config_and_ssh(there) -> None:
    done = there.pai("job-status", "old_one")
    assert done.status == 0 and "SUCCEEDED" in done.out and "main[0]" in done.out, done
    assert there.pai("job-status", "old_one", "config").status == 0
    done = there.pai("job-status", "none_such")
    assert done.status == 1 and "There is no job 'none_such' on the cluster far" in done.err, done
    done = there.pai("job-status", "old_one", "ssh")
    if isinstance(there.server, V014):
        assert "ssh -i alice~old_one -p 25001 root@10.0.0.1" in done.out, done
    else:
        assert done.status == 1 and "SSH info" in done.err, done


def test_log_is_complete(there) -> None:
    done = there.pai("logs", "-f", "old_one")
    want = "epoch 1 < 2\nepoch 2\n" if isinstance(there.server, V014) else "epoch 1\nepoch 2\n"
    assert (done.status, done.out) == (0, want), done
    assert there.pai("wait", "old_one").status == 0
    assert "SUCCEEDED" in there.pai("connect-job", "old_one").out


def test_stop_job(there) -> None:
    if isinstance(there.server, V014):
        assert there.pai("stop-job", "new_one").status == 0
        assert there.server.stopped == ["new_one"]
    else:
        assert there.pai("stop-job", "old_one").status == 0  # over already, says its detail
        assert there.server.stopped == []


def test_jobs_are_submitted_in_their_own_version(there) -> None:
    there.server.submitted.clear()
    done = there.pai("sub", "-i", "img", "-j", "mine", "echo", "hi")
    assert done.status == 0, done
    path, body = there.server.submitted.pop()
    assert path == "/api/v2/jobs" and json.loads(body)["name"] == "mine"
    old = {
        "jobName": "older",
        "image": "img",
        "taskRoles": [
            {"name": "m", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 100, "gpuNumber": 0, "command": "x"}
        ],
    }
    there.write(old__json=json.dumps(old))
    done = there.pai("submit", "old.json")
    path, body = there.server.submitted.pop()
    if isinstance(there.server, V014):
        assert path.endswith(f"/user/{USER}/jobs") and json.loads(body)["jobName"] == "older", done
    else:
        assert path == "/api/v2/jobs" and "accepts no version 1 jobs" in done.err, done


def test_unsupported_requests_are_one_line_errors(there) -> None:
    done = there.pai("sub", "-i", "img", "--timeout", "1h", "true")
    assert done.status == 2 and "does not know --timeout" in done.err, done
    done = there.pai("delete-job", "new_one")
    if isinstance(there.server, V014):
        assert done.status == 0 and done.out == "Deleted new_one\n", done  # the first generation could
    else:
        assert done.status == 1 and "does not support deleting jobs" in done.err, done
    done = there.pai("tag-job", "old_one", "good")
    if isinstance(there.server, V014):
        assert done.status == 1 and "has no tags" in done.err, done
    else:
        assert done.status == 0 and done.out == "good\n", done
        assert there.pai("tag-job", "old_one", "--remove", "good").status == 0


def test_resources_are_the_free_ones(there) -> None:
    row = json.loads(there.pai("cluster-resources", "-o", "json").out)[0]
    assert (row["GPUs"], row["totalGPUs"], row["vCores"], row["memoryMB"]) == (3, 4, 6, 7168)


def test_expired_token_error_says_how_to_renew_it(there) -> None:
    kept = entry(there)
    path = there.home / ".openpai/clusters.yaml"
    path.write_text(yaml.safe_dump([{**kept, "token": token(time.time() - 86400)}]))
    done = there.pai("sub", "-i", "img", "true")
    assert done.status == 1 and "Your token for the cluster far expired on " in done.err, done
    assert "pai update-token -a far" in done.err
    assert there.pai("update-token", "-a", "far", "--password", PASSWORD).status == 0
    assert there.pai("sub", "-i", "img", "true").status == 0


def test_stored_password_renews_the_token(there) -> None:
    path = there.home / ".openpai/clusters.yaml"
    kept = entry(there)
    # as the SDK of 2019 left it: the password in clear, and no token
    path.write_text(yaml.safe_dump([{**kept, "token": None, "password": PASSWORD}]))
    assert there.pai("sub", "-i", "img", "true").status == 0
    assert entry(there)["token"] == there.server.token


def test_rest_server_without_web_server_is_found(tmp_path) -> None:
    """A rest-server without its front door has the API at its root."""
    server = V18()
    bare = Peer(lambda r: NO_API if r.path.startswith("/rest-server") else server.answer(r, r.path))
    person = Person(tmp_path)
    words = ["-a", "bare", "--pai-uri", bare.uri, "--user", USER, "--password", PASSWORD]
    assert person.pai("add-cluster", *words).status == 0
    assert entry(person)["rest_path"] == "" and "new_one" in person.pai("list-jobs").out
    bare.close()


def test_debug_enable_logs_every_request(there) -> None:
    assert " in " not in there.pai("list-jobs").err
    (there.project / ".openpai").mkdir(exist_ok=True)
    (there.project / ".openpai/debug_enable").touch()
    try:
        done = there.pai("list-jobs")
        assert "far: GET /rest-server/api/" in done.err and there.server.token not in done.err, done
    finally:
        (there.project / ".openpai/debug_enable").unlink()
