"""The page on security: what it says users see of each other, its kinds of tokens and its limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.api.middleware import audit
from paicluster.api.middleware.response_budget import MAX_BYTES, MAX_BYTES_PER_USER
from paicluster.auth.tokens import TokenKind
from paicluster.auth.users import MIN_PASSWORD_LENGTH
from paicluster.config.sections import Authentication, RequestLimits
from support.paths import REPOSITORY
from support.server_fixture import job
from support.team_cluster import MACHINE, USERS, TeamCluster, add_users

PAGE = (REPOSITORY / "docs/security.md").read_text()
SECRET = "planted-secret-value"


def rows_of(title: str) -> list[list[str]]:
    """Rows of the table in a section of the page, without its head."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_kind_of_token_is_described() -> None:
    assert [row[0] for row in rows_of("Kinds of tokens")] == [str(kind) for kind in TokenKind]


def test_limits_are_those_of_the_code() -> None:
    limits, logins = RequestLimits(), Authentication()
    assert [row[1] for row in rows_of("Limits")] == [
        str(limits.connections_per_address),
        str(limits.connections_per_token),
        str(limits.requests_per_minute),
        str(limits.lists_per_minute),
        str(limits.submissions_per_hour),
        f"{limits.submissions_per_job}, {limits.submission_depth}",
        f"{logins.logins_per_account}, {logins.logins_per_address}",
        f"{limits.body_mb} MB, {limits.sources_mb} MB",
        f"{limits.slow_client_s:.0f} s",
        f"{MAX_BYTES_PER_USER >> 20} MB, {MAX_BYTES >> 20} MB",
        f"{MIN_PASSWORD_LENGTH} characters",
        f"{audit._MAX_FIELD_CHARS} characters",
    ]


def test_every_promise_names_tests_that_exist() -> None:
    section = PAGE.partition("\n### What is promised\n")[2].partition("\n### ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 15
    for promise, tests in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
        assert named and len(named) == tests.count("`") // 2, promise
        for file, name in named:
            found = re.search(rf"^ *(async )?def {name}\(", (REPOSITORY / file).read_text(), re.MULTILINE)
            assert found, f"{promise.strip()}: {file} has no {name}"


def test_page_is_linked_from_the_first_pages() -> None:
    assert "(docs/security.md)" in (REPOSITORY / "README.md").read_text()
    assert "(docs/security.md)" in (REPOSITORY / "SECURITY.md").read_text()
    assert "(security.md)" in (REPOSITORY / "docs/README.md").read_text()


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamCluster]:
    home: Path = tmp_path_factory.mktemp("security") / "home"
    add_users(home)
    cluster = TeamCluster(home, MACHINE)
    try:
        cluster.start()
        cluster.tokens = {user: cluster.log_in(user) for user in USERS}
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        yield cluster
    finally:
        cluster.close()


def test_users_see_of_each_other_what_the_page_says(team: TeamCluster) -> None:
    assert {row[0].partition(":")[0]: row[1].partition(":")[0] for row in rows_of(SEEN)} == {
        "name, e-mail address, groups, virtual clusters, administrator or not": "yes",
        "jobs": "yes",
        "logs of jobs": "yes",
        "values of secrets": "no",
        "source files of jobs": "no, although the config has their hash",
        "files in the storage": "as their permissions say; `/user/NAME` is closed to others",
        "extension, SSH key": "no",
        "tokens": "no",
    }
    bob = team.tokens["bob"]
    spec = job("shown", "echo <% $secrets.key %> to-all", secrets={"key": SECRET})
    assert team.run(spec)["state"] == "SUCCEEDED"

    person = team.get("/api/v2/users/alice", token=bob).json()
    assert {"username", "email", "grouplist", "virtualCluster", "admin"} <= person.keys()
    assert person["extension"] == {}
    for rest in ("", "/config", "/events", "/job-attempts"):
        seen = team.get(team.path("shown", rest), token=bob)
        assert seen.status == 200 and SECRET not in seen.text, rest
    log = team.get(team.path("shown", "/follow?follow=false"), token=bob).text
    assert "****** to-all" in log and SECRET not in log
    listing = "/webhdfs/v1/user/alice?op=LISTSTATUS"
    assert (team.get(listing).status, team.get(listing, token=bob).status) == (200, 403)
    assert team.tokens["alice"] not in team.get("/api/v2/tokens", token=bob).text
    for method, rest, body in (
        ("PUT", "/executionType", {"value": "STOP"}),
        ("PUT", "/tag", {"value": "x"}),
    ):
        assert team.ask(method, team.path("shown", rest), body, token=bob).status == 403
    password = {"oldPassword": "a guess", "newPassword": "another one"}
    assert team.ask("PUT", "/api/v2/users/alice/password", password, token=bob).status == 403


SEEN = "What users see of each other"


def test_client_without_a_token_reaches_what_the_page_says(team: TeamCluster) -> None:
    first = rows_of("Who is trusted with what")[0]
    assert re.findall(r"[\w/.]+", first[1]) == ["version", "health", "/openapi.json", "the", "login"]
    for path in ("/api/v2/info", "/healthz", "/openapi.json"):
        assert team.get(path, token=None).status == 200, path
    for path in ("/api/v2/jobs", "/api/v2/users", "/metrics", "/api/v1/jobs", "/webhdfs/v1/?op=LISTSTATUS"):
        assert team.get(path, token=None).status == 401, path
