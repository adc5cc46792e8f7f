"""Options that few people type, each once."""

import json

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


def test_fetch_works_for_submit_and_clone_job(person) -> None:
    person.write(job__yaml=JOB)
    done = person.pai("submit", "--no-browser", "--fetch=first", "-o", "json", "job.yaml")
    assert done.status == 0 and (person.project / "first/kept.txt").read_text() == "kept\n", done
    name = json.loads(done.out)["jobName"]
    assert person.pai("clone-job", "--no-browser", "--fetch=second", name).status == 0
    assert (person.project / "second/kept.txt").exists()
    assert person.pai("logs", "--stream", "stderr", name).out == "err\n"
    user = json.loads(person.pai("cluster-status", "-o", "json").out)["user"]
    assert "kept.txt" in person.pai("job-outputs", "--user", user, name).out
    done = person.pai("job-metrics", "--user", user, "--role", "main", "--index", "0", name)
    assert "Traceback" not in done.err, done


def test_force_sends_unchanged_files(person) -> None:
    person.write(a="content")
    for words in (["copy", "-r", "--force"], ["sync", "-r", "--force"]):
        done = person.pai(*words, str(person.project), "pai://local/0/rare/")
        assert done.status == 0, done
    assert person.pai("remove", "-y", "pai://local/0/rare").status == 0


def test_password_is_stored_only_with_store_password(newcomer) -> None:
    server = V18()
    peer = Peer(server)

    def entry() -> dict:
        return yaml.safe_load((newcomer.home / ".openpai/clusters.yaml").read_text())[0]

    words = ["-a", "far", "--pai-uri", peer.uri, "--user", USER, "--password", PASSWORD]
    assert newcomer.pai("add-cluster", *words, "--store-password", "--insecure").status == 0
    assert entry()["password"] == PASSWORD and entry()["verify_tls"] is False
    assert newcomer.pai("update-token", "-a", "far", "--token", server.token).status == 0
    assert "password" not in entry() and entry()["verify_tls"] is False
    done = newcomer.pai("update-token", "--token", "nonsense")
    assert done.status == 1 and entry()["token"] == server.token, done
    assert newcomer.pai("update-token", "--password", PASSWORD, "--store-password").status == 0
    assert entry()["password"] == PASSWORD
    peer.close()


def test_storage_user_can_differ(newcomer) -> None:
    words = ["-a", "store", "--type", "hdfs", "--address", "http://h:50070", "--user", "somebody"]
    assert newcomer.pai("add-storage-cluster", *words).status == 0
    assert "somebody" in (newcomer.home / ".openpai/clusters.yaml").read_text()


def test_arguments_and_options_in_any_order(person) -> None:
    done = person.pai(
        "sub", "--wait", "-j", "mixed_$", "mkdir $PAI_OUTPUT_DIR/d; echo 1 > $PAI_OUTPUT_DIR/d/r"
    )
    job = done.out.strip()
    assert person.pai("job-status", job, "-o", "json", "config").out.startswith("{")
    assert person.pai("job-outputs", job, "get", "--to", "some", "d").out == "some/d/r\n"
    assert person.pai("job-outputs", job, "get", "--to", "all").out == "all/d/r\n"
    assert (person.project / "all/d/r").read_text() == "1\n"
    assert person.pai("tag-job", "one", "--remove").status == 2


def test_wait_timeout_accepts_units_and_zero(person) -> None:
    over = person.pai("sub", "--wait", "true").out.strip()
    assert person.pai("wait", "--timeout", "0", over).status == 0
    assert person.pai("wait", "--timeout", "1m", over).status == 0
    running = person.pai("sub", "sleep", "600").out.strip()
    assert person.pai("wait", "--timeout", "0", over, running).status == 5
    person.pai("stop-job", running)
