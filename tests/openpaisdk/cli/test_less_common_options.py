"""Rarely used options, one test each."""

import json

import pytest
import yaml

from support.http_peer import Peer
from support.recorded_openpai import PASSWORD, USER, V18

JOB = """\
protocolVersion: 2
name: rare_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
taskRoles:
  main:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: [echo out, echo err >&2, echo kept > $PAI_OUTPUT_DIR/kept.txt]
"""


def test_fetch_works_for_submit_and_clone_job(user) -> None:
    user.write(job__yaml=JOB)
    done = user.pai("submit", "--no-browser", "--fetch", "first", "-o", "json", "job.yaml")
    assert done.status == 0 and (user.project / "first/kept.txt").read_text() == "kept\n", done
    name = json.loads(done.out)["jobName"]
    assert user.pai("clone-job", "--no-browser", "--fetch", "second", name).status == 0
    assert (user.project / "second/kept.txt").exists()
    assert user.pai("logs", "--stream", "stderr", name).out == "err\n"
    owner = json.loads(user.pai("cluster-status", "-o", "json").out)["user"]
    assert "kept.txt" in user.pai("job-outputs", "--user", owner, name).out
    done = user.pai("job-metrics", "--user", owner, "--role", "main", "--index", "0", name)
    assert "Traceback" not in done.err, done


def test_force_sends_unchanged_files(user) -> None:
    user.write(a="content")
    for words in (["copy", "-r", "--force"], ["sync", "-r", "--force"]):
        done = user.pai(*words, str(user.project), "pai://local/0/rare/")
        assert done.status == 0, done
    assert user.pai("remove", "-y", "pai://local/0/rare").status == 0


def test_password_is_stored_only_with_store_password(new_user) -> None:
    server = V18()
    peer = Peer(server)

    def entry() -> dict:
        return yaml.safe_load((new_user.home / ".openpai/clusters.yaml").read_text())[0]

    words = ["-a", "far", "--pai-uri", peer.uri, "--user", USER, "--password", PASSWORD]
    assert new_user.pai("add-cluster", *words, "--store-password", "--insecure").status == 0
    assert entry()["password"] == PASSWORD and entry()["verify_tls"] is False
    assert new_user.pai("update-token", "-a", "far", "--token", server.token).status == 0
    assert "password" not in entry() and entry()["verify_tls"] is False
    done = new_user.pai("update-token", "far", "--token", server.token)
    assert done.status == 0 and "far accepted the new token" in done.err, done
    assert new_user.pai("update-token", "far", "-a", "far", "--token", server.token).status == 0
    done = new_user.pai("update-token", "far", "-a", "near", "--token", server.token)
    assert done.status == 2 and "two clusters" in done.err, done
    done = new_user.pai("update-token", "nowhere", "--token", server.token)
    assert done.status == 2 and "no cluster called 'nowhere'" in done.err, done
    done = new_user.pai("update-token", "--token", "nonsense")
    assert done.status == 1 and entry()["token"] == server.token, done
    assert new_user.pai("update-token", "--password", PASSWORD, "--store-password").status == 0
    assert entry()["password"] == PASSWORD
    peer.close()


def test_storage_user_can_differ(new_user) -> None:
    words = ["-a", "store", "--type", "hdfs", "--address", "http://h:50070", "--user", "somebody"]
    assert new_user.pai("add-storage-cluster", *words).status == 0
    assert "somebody" in (new_user.home / ".openpai/clusters.yaml").read_text()


@pytest.mark.parametrize(
    ("address", "webhdfs", "server"),
    [
        ("namenode", "", "http://namenode:50070"),
        ("namenode", "9870", "http://namenode:9870"),
        ("hdfs://namenode:9000", "9870", "http://namenode:9870"),
        ("http://namenode", "9870", "http://namenode:9870"),
        ("http://namenode:50070/gateway/", "9870", "http://namenode:9870/gateway"),
        ("https://[::1]:50470", "9871", "https://[::1]:9871"),
        ("http://namenode:9000", "https://other:9871/", "https://other:9871"),
        ("http://namenode:9000", "other:9870", "http://other:9870"),
        ("https://namenode:9871", "other:9871", "https://other:9871"),
    ],
)
def test_webhdfs_of_a_storage_is_the_one_that_was_named(new_user, address, webhdfs, server) -> None:
    words = ["-a", "store", "--type", "hdfs", "--address", address]
    words += [f"servers_ext:webhdfs={webhdfs}"] if webhdfs else []
    assert new_user.pai("add-storage-cluster", *words).status == 0
    listed = json.loads(new_user.pai("list-storages", "store", "-o", "json").out)
    assert [storage["server"] for storage in listed] == [server]


def test_webhdfs_that_is_no_address_is_refused(new_user) -> None:
    for wrong in ("ftp://h", "http://h:x", "99999"):
        words = ["-a", "store", "--type", "hdfs", "--address", "http://h", f"servers_ext:webhdfs={wrong}"]
        done = new_user.pai("add-storage-cluster", *words)
        assert done.status == 2 and wrong in done.err and "Traceback" not in done.err, done


def test_arguments_and_options_in_any_order(user) -> None:
    done = user.pai("sub", "--wait", "-j", "mixed_$", "mkdir $PAI_OUTPUT_DIR/d; echo 1 > $PAI_OUTPUT_DIR/d/r")
    job = done.out.strip()
    assert user.pai("job-status", job, "-o", "json", "config").out.startswith("{")
    assert user.pai("job-outputs", job, "get", "--to", "some", "d").out == "some/d/r\n"
    assert user.pai("job-outputs", job, "get", "--to", "all").out == "all/d/r\n"
    assert (user.project / "all/d/r").read_text() == "1\n"
    assert user.pai("tag-job", "one", "--remove").status == 2


def test_wait_timeout_accepts_units_and_zero(user) -> None:
    over = user.pai("sub", "--wait", "true").out.strip()
    assert user.pai("wait", "--timeout", "0", over).status == 0
    assert user.pai("wait", "--timeout", "1m", over).status == 0
    running = user.pai("sub", "sleep", "600").out.strip()
    assert user.pai("wait", "--timeout", "0", over, running).status == 5
    user.pai("stop-job", running)
