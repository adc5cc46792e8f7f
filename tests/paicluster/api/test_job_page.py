"""`/job-detail.html`: a person signs in, and sees how the job is, its tasks and their logs."""

from __future__ import annotations

import base64
import json
import re
from html import unescape
from urllib.parse import urlencode

from support.server_fixture import Reply, eventually, job
from support.team_cluster import PASSWORD, TeamCluster

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
EVIL = "<script>alert('planted')</script>"


def address(user: str, name: str, **more: object) -> str:
    return "/job-detail.html?" + urlencode({"username": user, "jobName": name, **more})


def sign(cluster: TeamCluster, where: str, cookie: str = "", **form: str) -> Reply:
    headers = {**FORM, **({"Cookie": cookie} if cookie else {})}
    return cluster.ask("POST", where, urlencode(form).encode(), headers, token=None)


def signed_in(cluster: TeamCluster, where: str, **form: str) -> str:
    """The cookie of one who signed in."""
    reply = sign(cluster, where, **form)
    assert (reply.status, reply.headers["location"]) == (303, where), reply.text
    set_cookie = reply.headers["set-cookie"]
    assert {"HttpOnly", "Path=/job-detail.html", "SameSite=lax"} <= set(set_cookie.split("; "))
    return set_cookie.split(";")[0]


def look(cluster: TeamCluster, where: str, cookie: str) -> Reply:
    return cluster.get(where, headers={"Cookie": cookie}, token=None)


def test_who_is_not_signed_in_is_asked_and_told_nothing(cluster: TeamCluster, name: str) -> None:
    cluster.run(job(name, "true"))
    for job_name in (name, "never-was"):
        reply = cluster.get(address("alice", job_name), token=None)
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/html")
        assert "script" not in reply.headers["content-security-policy"]
        assert 'type="password"' in reply.text
        assert f"pai job-status alice~{job_name}" in unescape(reply.text)
        assert "SUCCEEDED" not in reply.text.partition("</style>")[2]


def test_who_signed_in_sees_the_job_its_tasks_and_their_logs(cluster: TeamCluster, name: str) -> None:
    evil = {"description": EVIL}
    cluster.run(job(name, f"echo 'hello {EVIL}'", **evil))
    where = address("alice", name)
    for cookie in (
        signed_in(cluster, where, username="bob", password=PASSWORD),
        signed_in(cluster, where, token=cluster.token),
    ):
        seen = look(cluster, where, cookie)
        assert seen.status == 200
        for wanted in (f"Job {name} of alice", "SUCCEEDED", "main[0]", "Sign out", "protocolVersion"):
            assert wanted in seen.text
        assert "<script" not in seen.text
        assert "planted" in seen.text
        assert "refresh" not in seen.text, "nothing changes any more"
        log = re.search(r'href="([^"]*user\.pai\.stdout[^"]*)"', seen.text)
        assert log is not None
        host, port = cluster.address
        text = cluster.get(unescape(log[1]).removeprefix(f"http://{host}:{port}"), token=None).text
        assert "hello &lt;script&gt;" in text
    assert cluster.get(where).status == 200, "a token in the usual place will do"


def test_a_job_that_failed_says_why_and_shows_its_attempts(cluster: TeamCluster, name: str) -> None:
    cluster.run(job(name, "exit 3", jobRetryCount=1))
    latest = cluster.get(address("alice", name)).text
    # Of the job, and of its task.
    assert latest.count("3 (reported as 255)") == 2
    assert "What to do" in latest
    assert "<strong>1</strong>" in latest
    first = cluster.get(address("alice", name, attempt=0)).text
    assert "<strong>0</strong>" in first
    assert cluster.get(address("alice", name, attempt=7)).status == 404
    assert cluster.get(address("alice", name, attempt="x")).status == 400


def test_a_job_that_waits_says_why_and_the_page_comes_again(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "true", cpu=4096))
    where = address("alice", name)
    cookie = signed_in(cluster, where, username="alice", password=PASSWORD)

    def reason() -> bool:
        text = look(cluster, where, cookie).text
        assert "WAITING" in text
        assert 'http-equiv="refresh"' in text
        return "Waits because" in text and "Insufficient cpu" in text

    eventually(reason, "why it waits")
    cluster.stop(name)
    status = cluster.wait_over(name)
    # As OpenPAI has it, whose clients subtract one from the other.
    assert status["launchedTime"] == status["completedTime"] is not None
    shown = look(cluster, where, cookie).text
    assert "Ended" in shown
    assert "Started" not in shown, "it never was"


def test_signing_out_ends_the_session(cluster: TeamCluster, name: str) -> None:
    where = address("alice", name)
    cookie = signed_in(cluster, where, username="bob", password=PASSWORD)
    token = cookie.partition("=")[2]
    assert cluster.get("/api/v2/tokens/check", token=token).json()["username"] == "bob"
    assert look(cluster, where, cookie).status == 404, "there is no such job, and he may know it"
    left = sign(cluster, where, cookie, leave="yes")
    assert left.status == 303
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert cluster.get("/api/v2/tokens/check", token=token).status == 401
    assert "Sign in" in look(cluster, where, cookie).text


def test_signing_out_takes_nothing_that_somebody_brought_himself(cluster: TeamCluster, name: str) -> None:
    where = address("alice", name)
    token = cluster.ask("POST", "/api/v2/tokens/application").json()["token"]
    cookie = signed_in(cluster, where, token=token)
    assert "Max-Age=0" in sign(cluster, where, cookie, leave="yes").headers["set-cookie"]
    assert cluster.get("/api/v2/tokens/check", token=token).json()["username"] == "alice"
    # Nor is one taken back by who merely knows its number.
    number = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["jti"]
    sign(cluster, where, f"{cookie.partition('=')[0]}={number}", leave="yes")
    assert cluster.get("/api/v2/tokens/check", token=token).status == 200


def test_the_cookie_opens_nothing_but_the_page(cluster: TeamCluster, name: str) -> None:
    cookie = signed_in(cluster, address("alice", name), username="alice", password=PASSWORD)
    for path in ("/api/v2/jobs", "/api/v2/tokens", "/metrics"):
        assert look(cluster, path, cookie).status == 401


def test_who_cannot_sign_in_is_told_why_on_the_page(cluster: TeamCluster, name: str) -> None:
    where = address("alice", name)
    for form, status, said in (
        ({"username": "alice", "password": "wrong one"}, 400, "Password is incorrect."),
        ({"username": EVIL, "password": "wrong one"}, 400, f"User {EVIL} is not found."),
        ({"token": "x.y.z"}, 401, "Your token is invalid."),
        ({}, 400, "Give a user name and a password, or a token."),
    ):
        refused = sign(cluster, where, **form)
        assert refused.status == status
        assert refused.headers["content-type"].startswith("text/html")
        assert said in unescape(refused.text)
        assert "<script" not in refused.text
        assert "set-cookie" not in refused.headers


def test_an_address_without_a_job_is_refused(cluster: TeamCluster) -> None:
    for where in ("/job-detail.html", address("a b", "x"), address("alice", "<b>")):
        for reply in (cluster.get(where, token=None), sign(cluster, where, token="x")):
            assert reply.status == 400
            assert "<b>" not in reply.text
    assert cluster.get(address("", "alice~x"), token=None).status == 200
    assert cluster.get(address("alice", "never-was")).status == 404
