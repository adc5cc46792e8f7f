"""Job files: `pai check-job`, `pai job-schema`, updates and previews."""

import json
from urllib.request import ProxyHandler, Request, build_opener

import pytest
import yaml

from paiprotocol.jobs.v1 import read_relaxed
from support import http_peer
from support.http_peer import Peer, reply

GOOD = """\
protocolVersion: 2
name: good_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
parameters: {word: hello}
taskRoles:
  main:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: [echo <% $parameters.word %>]
"""
BAD = """\
protocolVersion: 2
name: bad
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
taskRoles:
  main:
    dockerImage: imgg
    resourcePerInstanec: {cpu: 1, memoryMB: 64, gpu: 0}
    instances: many
    commands: [echo <% $parameters.word %>]
"""
OLD = """\
{
  // as people have them
  "jobName": "old_$",
  "image": "host",
  "virtualCluster": "default",
  "killAllOnCompletedTaskNumber": 1,
  "taskRoles": [
    {"name": "main", "taskNumber": 1, "memoryMB": 64, "command": "echo $WORD"},
  ],
  "jobEnvs": {"WORD": "hello"}
}
"""
BAD_OLD = '{"jobName": "old", "image": "host",\n "taskRoles": [{"name": "main", "comand": "x"}]}'


@pytest.fixture
def files(new_user):
    new_user.write(
        good__yaml=GOOD.replace("_$", ""),
        bad__yaml=BAD,
        old__json=OLD.replace("_$", ""),
        bad_old__json=BAD_OLD,
    )
    return new_user


def test_valid_files_of_both_versions_pass_without_cluster(files) -> None:
    done = files.pai("check-job", "good.yaml", "old.json")
    assert done.status == 0 and done.err == "", done
    first, note, last = done.out.splitlines()
    assert (first, last) == ("good.yaml: valid (version 2)", "old.json: valid (version 1)")
    assert note.startswith("old.json:6:3: killAllOnCompletedTaskNumber: note: ")
    assert not (files.home / ".openpai").exists()


def test_all_errors_of_all_files_have_line_and_column(files) -> None:
    done = files.pai("check-job", "bad.yaml", "good.yaml", "bad_old.json", "none.yaml", ".")
    assert done.status == 1 and "4 of 5 files have errors" in done.err, done
    lines = done.out.splitlines()
    assert lines[0].startswith("bad.yaml:7:18: taskRoles.main.dockerImage: ")
    assert 'did you mean "img"?' in lines[0]
    assert lines[1].startswith("bad.yaml:8:5: taskRoles.main.resourcePerInstanec: unknown key")
    assert 'did you mean "resourcePerInstance"?' in lines[1]
    assert lines[2].startswith("bad.yaml:9:16: taskRoles.main.instances: ")
    assert "expected" in lines[2] and 'found the text "many"' in lines[2]
    assert lines[3].startswith("bad.yaml:10:16: taskRoles.main.commands[0]: ")
    assert "$parameters.word" in lines[3]
    assert lines[4] == "good.yaml: valid (version 2)"
    assert 'bad_old.json:2:33: taskRoles[0].comand: unknown key; did you mean "command"?' in lines
    assert lines[-2:] == [
        "none.yaml cannot be read: No such file or directory.",
        ". is a folder, not a job file.",
    ]


def test_check_job_as_json(files) -> None:
    done = files.pai("check-job", "-o", "json", "bad.yaml", "old.json", "-", stdin="- a list\n")
    assert done.status == 1
    bad, old, stdin = json.loads(done.out)
    assert (bad["file"], bad["version"], bad["good"]) == ("bad.yaml", 2, False)
    assert bad["problems"][1] == {
        "level": "error",
        "key": "taskRoles.main.resourcePerInstanec",
        "message": "unknown key",
        "suggestion": 'did you mean "resourcePerInstance"?',
        "file": "bad.yaml",
        "line": 8,
        "column": 5,
    }
    assert (old["version"], old["good"], [p["level"] for p in old["problems"]]) == (1, True, ["note"])
    assert stdin["file"] == "the standard input" and not stdin["good"]


@pytest.mark.parametrize(
    "content",
    [b"\x00\x01\xff", b"", b"a: [", b"\xff\xfe\x00x", b"x" * (5 << 20)],
    # The id of a test is in the environment of its processes, which is limited.
    ids=["binary", "empty", "cut", "utf16", "large"],
)
def test_arbitrary_content_is_a_one_line_error(new_user, content: bytes) -> None:
    (new_user.project / "file").write_bytes(content)
    done = new_user.pai("check-job", "file")
    assert done.status == 1 and done.out.startswith("file") and "Traceback" not in done.out + done.err, done


def test_check_job_prints_no_secrets(new_user) -> None:
    new_user.write(job__yaml=BAD + "secrets: [hush-hush]\n")
    done = new_user.pai("check-job", "job.yaml")
    assert done.status == 1 and "secrets" in done.out and "hush-hush" not in done.out + done.err, done


@pytest.mark.parametrize(("words", "key"), [([], "name"), (["v2"], "name"), (["v1"], "jobName")])
def test_job_schema_is_valid_json_schema(new_user, words: list[str], key: str) -> None:
    done = new_user.pai("job-schema", *words)
    schema = json.loads(done.out)
    assert done.status == 0 and key in schema["properties"] and key in schema["required"]
    validator = pytest.importorskip("jsonschema").Draft7Validator(schema)
    old = read_relaxed(OLD, "old.json")[0].data
    good = yaml.safe_load(GOOD.replace("_$", "")) if key == "name" else {**old, "jobName": "old"}
    assert list(validator.iter_errors(good)) == []
    assert list(validator.iter_errors({**good, "surprise": 1}))
    assert new_user.pai("job-schema", "v3").status == 2


def test_v1_job_is_sent_unchanged_and_readable_in_both_versions(user) -> None:
    user.write(old__json=OLD)
    done = user.pai("submit", "--follow", "-u", "jobName=kept_old", "old.json")
    assert (done.status, done.out) == (0, "hello\n"), done
    assert "killAllOnCompletedTaskNumber" in done.err
    there = user.handshake()
    address = f"{there['url']}/api/v1/user/{there['user']}/jobs/kept_old/config"
    asked = Request(address, headers={"Authorization": f"Bearer {there['token']}"})
    with build_opener(ProxyHandler({})).open(asked, timeout=90) as answer:
        kept = json.load(answer)
    assert kept == {**read_relaxed(OLD, "old.json")[0].data, "jobName": "kept_old"}
    config = yaml.safe_load(user.pai("job-status", "kept_old", "config").out)
    assert config["protocolVersion"] == 2 and config["taskRoles"]["main"]["commands"] == ["echo $WORD"]


def test_v1_name_invalid_in_v2_is_changed_with_notice(user) -> None:
    done = user.pai("submit", "-u", "jobName=dotted.name", "-", stdin=OLD)
    assert done.status == 0 and done.out == "dotted_name\n" and '"dotted.name"' in done.err, done
    assert user.pai("wait", "dotted_name").status == 0


def test_updates_keep_types_and_reach_list_items(new_user) -> None:
    words = ["-u", "name=007", "-u", "taskRoles:main:instances=2", "-u", "taskRoles:main:commands:1=a=b",
             "-u", "parameters:word=1.5", "--vc", "vc1"]  # fmt: skip
    job = yaml.safe_load(new_user.pai("submit", "--preview", *words, "-", stdin=GOOD).out)
    assert (job["name"], job["taskRoles"]["main"]["instances"]) == ("007", 2)
    assert job["taskRoles"]["main"]["commands"] == ["echo <% $parameters.word %>", "a=b"]
    assert job["parameters"] == {"word": 1.5} and job["defaults"] == {"virtualCluster": "vc1"}
    words = ["-u", "jobName=007", "-u", "taskRoles:0:gpuNumber=2", "-u", "retryCount=-1", "--vc", "vc1"]
    job = yaml.safe_load(new_user.pai("submit", "--preview", *words, "-", stdin=OLD).out)
    assert (job["name"], job["taskRoles"]["main"]["resourcePerInstance"]["gpu"]) == ("007", 2)
    assert (job["jobRetryCount"], job["defaults"]["virtualCluster"]) == (-1, "vc1")
    done = new_user.pai(
        "submit", "--preview", "-u", "taskRoles:0:gpuNumber=two", "-u", "nme=x", "-", stdin=OLD
    )
    assert done.status == 1 and "taskRoles[0].gpuNumber" in done.err and "nme" in done.err, done
    assert not (new_user.home / ".openpai/local").exists()


@pytest.fixture
def recent():
    """A cluster of a later OpenPAI, which no longer accepts version 1 jobs."""

    def answer(request) -> bytes:
        if request.path == "/rest-server/api/v2/jobs" and request.method == "POST":
            return reply({"status": 202, "message": "Update job successfully."}, 202)
        return reply({"code": "NoApiError", "message": f"API {request.path} is not found."}, 404)

    peer = Peer(answer)
    yield peer
    peer.close()


def add(user, peer) -> None:
    (user.home / ".openpai").mkdir()
    entry = {"cluster_alias": "recent", "pai_uri": peer.uri, "user": "alice", "token": "t"}
    (user.home / ".openpai/clusters.yaml").write_text(yaml.safe_dump([entry]))


def submissions(peer: Peer) -> list[http_peer.Request]:
    return [request for request in peer.requests if request.method == "POST"]


def test_v1_job_is_converted_for_cluster_without_v1(new_user, recent) -> None:
    add(new_user, recent)
    done = new_user.pai("submit", "-u", "jobName=an.old", "-", stdin=OLD)
    assert done.status == 0 and done.out == "an_old\n", done
    assert "The cluster recent accepts no version 1 jobs: this one is converted to version 2." in done.err
    assert "killAllOnCompletedTaskNumber" in done.err and '"an.old"' in done.err
    first, second = submissions(recent)
    assert (
        first.path == "/rest-server/api/v1/user/alice/jobs" and json.loads(first.body)["jobName"] == "an.old"
    )
    sent = json.loads(second.body)
    assert (sent["protocolVersion"], sent["name"]) == (2, "an_old")
    assert sent["taskRoles"]["main"]["commands"] == ["echo $WORD"]


@pytest.mark.parametrize("text", [GOOD, OLD])
def test_preview_equals_sent_job(new_user, recent, text: str) -> None:
    add(new_user, recent)
    name = "name=x" if text is GOOD else "jobName=x"
    preview = new_user.pai("submit", "--preview", "-o", "json", "-u", name, "-", stdin=text)
    assert preview.status == 0 and recent.requests == []
    assert new_user.pai("submit", "-u", name, "-", stdin=text).status == 0
    # The cluster refuses version 1, and gets the version 2 that the preview showed.
    assert json.loads(submissions(recent)[-1].body) == json.loads(preview.out)


def test_preview_of_version_1_is_version_2_and_says_so(new_user, recent) -> None:
    add(new_user, recent)
    for words in (["submit", "-"], ["submit", "-o", "json", "-"]):
        done = new_user.pai(*words, "--preview", "-u", "jobName=x.y", stdin=OLD)
        job = yaml.safe_load(done.out)
        assert (done.status, job["protocolVersion"], job["name"]) == (0, 2, "x_y"), done
        assert "it is sent as version 1" in done.err and '"x.y"' in done.err, done
    assert recent.requests == []


@pytest.mark.parametrize("password", ["pass-word", "pass-word<%"])
def test_preview_masks_secrets_that_are_sent(new_user, recent, password: str) -> None:
    add(new_user, recent)
    text = GOOD.replace("uri: host}", f"uri: host, auth: {{username: u, password: {password}}}}}")
    text += "secrets: {key: hush-hush}\n"
    for form in ("table", "json", "yaml"):
        done = new_user.pai("submit", "--preview", "-o", form, "-", stdin=text)
        assert done.status == 0 and "hush-hush" not in done.out and "pass-word" not in done.out, done
        assert yaml.safe_load(done.out)["secrets"] == "******" and "masked" in done.err
    assert new_user.pai("submit", "-", stdin=text).status == 0
    assert json.loads(submissions(recent)[0].body)["secrets"] == {"key": "hush-hush"}


def test_job_with_warnings_is_sent_with_notices(new_user, recent) -> None:
    add(new_user, recent)
    new_user.write(job__yaml=GOOD.replace("parameters: {word: hello}\n", "").replace("_$", ""))
    done = new_user.pai("submit", "job.yaml")
    assert done.status == 0 and "job.yaml:9:16: " in done.err and "$parameters.word" in done.err, done
    assert len(submissions(recent)) == 1
