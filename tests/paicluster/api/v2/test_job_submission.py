"""POST /api/v2/jobs: accepted and rejected jobs, idempotency keys."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from support.server_fixture import job
from support.team_cluster import TeamCluster

TYPES = ["text/yaml", "application/yaml", "application/x-yaml", "text/plain", "application/json", ""]


def accepted(name: str) -> dict[str, object]:
    return {"status": 202, "message": f"Update job {name} for user alice successfully."}


@pytest.mark.parametrize("content_type", TYPES)
def test_yaml_job_is_accepted_with_any_content_type(
    cluster: TeamCluster, name: str, content_type: str
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    reply = cluster.ask("POST", "/api/v2/jobs", yaml.safe_dump(job(name, "true")), headers)
    assert (reply.status, reply.json()) == (202, accepted(name))
    assert cluster.wait_over(name)["state"] == "SUCCEEDED"


def test_json_job_is_accepted_below_rest_server(cluster: TeamCluster, name: str) -> None:
    reply = cluster.ask("POST", "/rest-server/api/v2/jobs", job(name, "true"))
    assert (reply.status, reply.json()) == (202, accepted(name))


def test_job_name_is_unique_per_user(cluster: TeamCluster, name: str) -> None:
    assert cluster.submit(job(name, "true")).status == 202
    again = cluster.submit(job(name, "false"))
    assert again.status == 409
    assert again.json()["code"] == "ConflictJobError"
    cluster.wait_over(name)
    assert cluster.submit(job(name, "true")).status == 409
    assert cluster.submit(job(name, "true"), token=cluster.tokens["bob"]).status == 202


def test_same_key_and_body_give_same_response_and_one_job(cluster: TeamCluster, name: str) -> None:
    replies = [cluster.submit(job(name, "true"), key=f"key of {name}") for _ in range(3)]
    assert {reply.status for reply in replies} == {202}
    assert len({reply.body for reply in replies}) == 1
    assert len(cluster.get(f"/api/v2/jobs?keyword={name}").json()) == 1
    cluster.wait_over(name)
    assert cluster.submit(job(name, "true"), key=f"key of {name}").body == replies[0].body


def test_same_key_with_another_body_is_rejected(cluster: TeamCluster, name: str) -> None:
    assert cluster.submit(job(name, "true"), key=f"key of {name}").status == 202
    other = cluster.submit(job(name + "-other", "true"), key=f"key of {name}")
    assert other.status == 422
    assert cluster.get(cluster.path(name + "-other")).status == 404


def test_idempotency_key_belongs_to_its_user(cluster: TeamCluster, name: str) -> None:
    assert cluster.submit(job(name, "true"), key=f"key of {name}").status == 202
    assert cluster.submit(job(name, "false"), key=f"key of {name}", token=cluster.tokens["bob"]).status == 202


def test_concurrent_submissions_with_one_key_make_one_job(cluster: TeamCluster, name: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: cluster.submit(job(name, "true"), key=name), range(48)))
    assert {(reply.status, reply.body) for reply in replies} == {(202, replies[0].body)}
    assert len(cluster.get(f"/api/v2/jobs?keyword={name}").json()) == 1


def test_concurrent_submissions_with_one_name_make_one_job(cluster: TeamCluster, name: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda i: cluster.submit(job(name, "true"), key=f"{name} {i}"), range(32)))
    statuses = sorted(reply.status for reply in replies)
    assert statuses == [202] + [409] * 31


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_key_of_invalid_length_is_rejected(cluster: TeamCluster, name: str, key: str) -> None:
    assert cluster.submit(job(name, "true"), key=key).status == 400
    assert cluster.get(cluster.path(name)).status == 404


def test_secrets_are_never_shown_or_stored_in_plain_text(cluster: TeamCluster, name: str) -> None:
    secret = "hunter2-and-longer"
    spec = job(name, "echo <% $secrets.password %>", secrets={"password": secret, "more": {"deep": secret}})
    assert cluster.submit(yaml.safe_dump(spec)).status == 202
    assert cluster.submit(json.dumps({**spec, "name": name + "-json"})).status == 202
    for one in (name, name + "-json"):
        assert cluster.wait_over(one)["state"] == "SUCCEEDED"
        assert cluster.log_of(one) == b"******\n"
        config = cluster.get(cluster.path(one, "/config"))
        assert secret not in config.text
        assert config.json()["secrets"] == "******"
        assert secret not in cluster.get(cluster.path(one)).text
    for file in cluster.home.glob("cluster.db*"):
        assert secret.encode() not in file.read_bytes(), file
    assert secret not in cluster.log.read_text()


def test_secrets_outside_of_their_place_are_sealed(cluster: TeamCluster, name: str) -> None:
    """An alias of a secret, and the password of a registry that is written where it is used."""
    aliased, password = "hunter2-by-alias", "hunter2-of-registry"
    spec = job(name, "echo <% $parameters.copy %>", secrets={"key": "KEY"}, parameters={"copy": "COPY"})
    spec["prerequisites"][0]["auth"] = {"username": "u", "password": password, "registryuri": "r.example.com"}
    text = yaml.safe_dump(spec).replace("KEY", f"&key {aliased}").replace("COPY", "*key")
    # The anchor must come before its alias.
    text = f"secrets: {{key: &key {aliased}}}\n" + text.replace(f"secrets:\n  key: &key {aliased}\n", "")
    assert cluster.submit(text, key=f"key of {name}").status == 202
    assert cluster.submit(text, key=f"key of {name}").status == 202
    assert cluster.wait_over(name)["state"] == "SUCCEEDED"
    assert cluster.log_of(name) == b"******\n"
    config = cluster.get(cluster.path(name, "/config")).json()
    assert config["parameters"] == {"copy": "<% $secrets.key %>"}
    assert config["prerequisites"][0]["auth"]["password"] == "<% $secrets.registry_password %>"
    assert config["secrets"] == "******"
    # From a digest of the body a short secret could be guessed.
    digest = hashlib.sha256(text.encode()).hexdigest()
    for file in cluster.home.glob("cluster.db*"):
        for value in (aliased, password, digest):
            assert value.encode() not in file.read_bytes(), file


def test_job_with_missing_sources_is_rejected(cluster: TeamCluster, name: str) -> None:
    spec = job(name, "true", extras={"openpaisdk": {"sources": {"sha256": "0" * 64, "size": 3}}})
    reply = cluster.submit(spec)
    assert (reply.status, reply.json()["code"]) == (404, "NoSourcesError")


INVALID_JOBS = {
    "nothing": "",
    "not a mapping": "- a\n- b\n",
    "broken yaml": "name: [",
    "broken json": '{"name": ',
    "only a name": "name: only-a-name",
    "no roles": json.dumps({**job("x", "true"), "taskRoles": {}}),
    "a bad name": json.dumps(job("no spaces please", "true")),
    "a tilde": json.dumps(job("a~b", "true")),
    "negative cpu": json.dumps(job("x", "true", cpu=-1)),
    "no commands": json.dumps(job("x")),
    "an unknown key": json.dumps({**job("x", "true"), "surprise": 1}),
    "an alias bomb": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)),
    "deep nesting": "[" * 5000,
    "deep flow mapping": "{a: " * 3000,
    "a python tag": "!!python/object/apply:os.system ['true']",
    "binary": b"\x00\x01\x02\xff\xfe",
    "latin-1": json.dumps(job("x", "echo \xe9")).encode().replace(b"\\u00e9", b"\xe9"),
    "utf-16": json.dumps(job("x", "true")).encode("utf-16"),
    "a lone surrogate": json.dumps(job("x", "echo \ud800")),
    "a lone surrogate in a secret": json.dumps(job("x", "true", secrets={"a": "\ud800"})),
    "huge numbers": json.dumps(job("x", "true", memory_mb=10**30)),
    "infinity": json.dumps(job("x", "true", cpu=float("inf"))),  # type: ignore[arg-type]
    "many instances": json.dumps(job("x", "true", instances=10**12)),
}


@pytest.mark.parametrize("case", INVALID_JOBS)
def test_invalid_job_is_rejected_with_a_message_and_not_stored(cluster: TeamCluster, case: str) -> None:
    body = INVALID_JOBS[case]
    reply = cluster.ask("POST", "/api/v2/jobs", body, {"Content-Type": "text/yaml"})
    error = reply.json()
    assert reply.status == 400, error
    assert error["code"] in ("InvalidProtocolError", "InvalidParametersError")
    assert error["message"].strip()
    assert set(error) <= {"code", "message", "hint"}
    assert "Traceback" not in reply.text
    assert cluster.get(cluster.path("x")).status == 404


def test_too_large_bodies_are_rejected(cluster: TeamCluster, name: str) -> None:
    padded = json.dumps(job(name, "true")) + " " * (9 << 20)
    assert cluster.submit(padded).status == 413
    chunks = iter([padded.encode()[at : at + (1 << 20)] for at in range(0, len(padded), 1 << 20)])
    connection = cluster.connect()
    headers = {"Authorization": f"Bearer {cluster.token}", "Transfer-Encoding": "chunked"}
    connection.request("POST", "/api/v2/jobs", chunks, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    login = cluster.ask("POST", "/api/v2/authn/basic/login", b" " * (2 << 20), token=None)
    assert login.status == 413
    assert cluster.get(cluster.path(name)).status == 404
