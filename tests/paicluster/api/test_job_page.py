"""`/job-detail.html`: sign-in, then status, tasks and logs of a job."""

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


def page_url(user: str, name: str, **more: object) -> str:
    return "/job-detail.html?" + urlencode({"username": user, "jobName": name, **more})


def post_form(cluster: TeamCluster, where: str, cookie: str = "", **form: str) -> Reply:
    headers = {**FORM, **({"Cookie": cookie} if cookie else {})}
    return cluster.ask("POST", where, urlencode(form).encode(), headers, token=None)


def sign_in(cluster: TeamCluster, where: str, **form: str) -> str:
    """Sign in; returns the session cookie."""
    reply = post_form(cluster, where, **form)
    assert (reply.status, reply.headers["location"]) == (303, where), reply.text
    set_cookie = reply.headers["set-cookie"]
    assert {"HttpOnly", "Path=/job-detail.html", "SameSite=lax"} <= set(set_cookie.split("; "))
    return set_cookie.split(";")[0]


def get_page(cluster: TeamCluster, where: str, cookie: str) -> Reply:
    return cluster.get(where, headers={"Cookie": cookie}, token=None)


def test_login_page_reveals_nothing_about_the_job(cluster: TeamCluster, name: str) -> None:
    cluster.run(job(name, "true"))
    for job_name in (name, "never-was"):
        reply = cluster.get(page_url("alice", job_name), token=None)
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/html")
        assert "script" not in reply.headers["content-security-policy"]
        assert 'type="password"' in reply.text
        assert f"pai job-status alice~{job_name}" in unescape(reply.text)
        assert "SUCCEEDED" not in reply.text.partition("</style>")[2]


def test_signed_in_user_sees_job_tasks_and_logs(cluster: TeamCluster, name: str) -> None:
    evil = {"description": EVIL}
    cluster.run(job(name, f"echo 'hello {EVIL}'", **evil))
    where = page_url("alice", name)
    for cookie in (
        sign_in(cluster, where, username="bob", password=PASSWORD),
        sign_in(cluster, where, token=cluster.token),
    ):
        seen = get_page(cluster, where, cookie)
        assert seen.status == 200
        for text_part in (f"Job {name} of alice", "SUCCEEDED", "main[0]", "Sign out", "protocolVersion"):
            assert text_part in seen.text
        assert "<script" not in seen.text
        assert "planted" in seen.text
        assert "refresh" not in seen.text, "a finished job does not change"
        log = re.search(r'href="([^"]*user\.pai\.stdout[^"]*)"', seen.text)
        assert log is not None
        host, port = cluster.address
        text = cluster.get(unescape(log[1]).removeprefix(f"http://{host}:{port}"), token=None).text
        assert "hello &lt;script&gt;" in text
    assert cluster.get(where).status == 200, "a bearer token is accepted too"


def test_failed_job_shows_reason_and_attempts(cluster: TeamCluster, name: str) -> None:
    cluster.run(job(name, "exit 3", jobRetryCount=1))
    latest = cluster.get(page_url("alice", name)).text
    # Of the job, and of its task.
    assert latest.count("3 (reported as 255)") == 2
    assert "What to do" in latest
    assert "<strong>1</strong>" in latest
    first = cluster.get(page_url("alice", name, attempt=0)).text
    assert "<strong>0</strong>" in first
    assert cluster.get(page_url("alice", name, attempt=7)).status == 404
    assert cluster.get(page_url("alice", name, attempt="x")).status == 400


def test_pending_job_shows_reason_and_page_refreshes(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "true", cpu=4096))
    where = page_url("alice", name)
    cookie = sign_in(cluster, where, username="alice", password=PASSWORD)

    def reason() -> bool:
        text = get_page(cluster, where, cookie).text
        assert "WAITING" in text
        assert 'http-equiv="refresh"' in text
        return "Pending reason" in text and "Insufficient cpu" in text

    eventually(reason, "the pending reason")
    cluster.stop(name)
    status = cluster.wait_over(name)
    # As in OpenPAI, whose clients subtract one from the other.
    assert status["launchedTime"] == status["completedTime"] is not None
    shown = get_page(cluster, where, cookie).text
    assert "Ended" in shown
    assert "Started" not in shown, "it never started"


def test_signing_out_ends_the_session(cluster: TeamCluster, name: str) -> None:
    where = page_url("alice", name)
    cookie = sign_in(cluster, where, username="bob", password=PASSWORD)
    token = cookie.partition("=")[2]
    assert cluster.get("/api/v2/tokens/check", token=token).json()["username"] == "bob"
    assert get_page(cluster, where, cookie).status == 404, (
        "there is no such job, and a signed-in user may know"
    )
    signed_out = post_form(cluster, where, cookie, leave="yes")
    assert signed_out.status == 303
    assert "Max-Age=0" in signed_out.headers["set-cookie"]
    assert cluster.get("/api/v2/tokens/check", token=token).status == 401
    assert "Sign in" in get_page(cluster, where, cookie).text


def test_signing_out_does_not_revoke_a_token_the_user_entered(cluster: TeamCluster, name: str) -> None:
    where = page_url("alice", name)
    token = cluster.ask("POST", "/api/v2/tokens/application").json()["token"]
    cookie = sign_in(cluster, where, token=token)
    assert "Max-Age=0" in post_form(cluster, where, cookie, leave="yes").headers["set-cookie"]
    assert cluster.get("/api/v2/tokens/check", token=token).json()["username"] == "alice"
    # Knowing the id of a token is not enough to revoke it.
    number = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["jti"]
    post_form(cluster, where, f"{cookie.partition('=')[0]}={number}", leave="yes")
    assert cluster.get("/api/v2/tokens/check", token=token).status == 200


def test_cookie_is_valid_for_the_page_only(cluster: TeamCluster, name: str) -> None:
    cookie = sign_in(cluster, page_url("alice", name), username="alice", password=PASSWORD)
    for path in ("/api/v2/jobs", "/api/v2/tokens", "/metrics"):
        assert get_page(cluster, path, cookie).status == 401


def test_failed_sign_in_shows_the_error_on_the_page(cluster: TeamCluster, name: str) -> None:
    where = page_url("alice", name)
    for form, status, message in (
        ({"username": "alice", "password": "wrong one"}, 400, "Password is incorrect."),
        ({"username": EVIL, "password": "wrong one"}, 400, f"User {EVIL} is not found."),
        ({"token": "x.y.z"}, 401, "Your token is invalid."),
        ({}, 400, "Enter a user name and a password, or a token."),
    ):
        refused = post_form(cluster, where, **form)
        assert refused.status == status
        assert refused.headers["content-type"].startswith("text/html")
        assert message in unescape(refused.text)
        assert "<script" not in refused.text
        assert "set-cookie" not in refused.headers


def test_url_without_a_job_is_rejected(cluster: TeamCluster) -> None:
    for where in ("/job-detail.html", page_url("a b", "x"), page_url("alice", "<b>")):
        for reply in (cluster.get(where, token=None), post_form(cluster, where, token="x")):
            assert reply.status == 400
            assert "<b>" not in reply.text
    assert cluster.get(page_url("", "alice~x"), token=None).status == 200
    assert cluster.get(page_url("alice", "never-was")).status == 404
