"""Source archives belong to the users who uploaded them; to all others they do not exist."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

import pytest

from support.server_fixture import Reply, job
from support.team_cluster import PASSWORD, TeamCluster

PATCH = "application/vnd.openpai.sources-patch"


def archive(content: str) -> tuple[bytes, str]:
    """A tar with one file, `data`, and its SHA-256."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo("data")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content.encode()))
    return file.getvalue(), hashlib.sha256(file.getvalue()).hexdigest()


def put(team: TeamCluster, user: str, content: bytes, digest: str) -> Reply:
    return team.ask("PUT", f"/api/v2/sources/{digest}", content, token=team.tokens[user])


def has(team: TeamCluster, user: str, digest: str) -> bool:
    return team.ask("HEAD", f"/api/v2/sources/{digest}", token=team.tokens[user]).status == 200


def submit(team: TeamCluster, user: str, name: str, digest: str) -> Reply:
    sources = {"openpaisdk": {"sources": {"sha256": digest, "size": 1}}}
    return team.submit(job(name, "cat data", extras=sources), token=team.tokens[user])


def test_archive_of_another_user_does_not_exist(team: TeamCluster) -> None:
    content, digest = archive("of alice")
    assert put(team, "alice", content, digest).status == 201
    assert submit(team, "alice", "with_own_sources", digest).status == 202
    # The hash is public.
    config = team.get(team.path("with_own_sources", "/config"), token=team.tokens["bob"]).text
    assert digest in config
    for user in ("bob", "admin"):
        assert not has(team, user, digest)
        refused = submit(team, user, "with_foreign_sources", digest)
        assert (refused.status, refused.json()["code"]) == (404, "NoSourcesError")
        missing = submit(team, user, "with_missing_sources", "0" * 64)
        assert refused.json()["hint"] == missing.json()["hint"], "no difference to one that is not there"
    assert "belong to that user" in refused.json()["hint"]
    team.wait_over("with_own_sources")
    assert team.log_of("with_own_sources") == b"of alice"


def test_template_does_not_share_the_files_of_its_owner(team: TeamCluster) -> None:
    """Not even with the group that it is for: any user can write a hash into a template."""
    content, digest = archive("of the template")
    assert put(team, "alice", content, digest).status == 201
    group, admin = {"groupname": "readers"}, team.tokens["admin"]
    assert team.ask("POST", "/api/v2/groups", {**group, "description": ""}, token=admin).status == 201
    for user in ("alice", "bob"):
        assert team.ask("PUT", f"/api/v2/users/{user}/group", group, token=admin).status == 201
    spec = job("trained", "cat data", extras={"openpaisdk": {"sources": {"sha256": digest, "size": 1}}})
    body = {"protocol": json.dumps(spec), "group": "readers"}
    assert team.ask("PUT", "/api/v2/job-templates/alice/trained", body).status == 200
    # The reference is kept, and is good for its owner.
    read = team.get("/api/v2/job-templates/alice/trained", token=team.tokens["bob"]).json()
    assert json.loads(read["protocol"])["extras"] == spec["extras"]
    assert has(team, "alice", digest) and not has(team, "bob", digest)
    # Nor does a template of one's own that names them.
    own = {"protocol": json.dumps(spec)}
    assert team.ask("PUT", "/api/v2/job-templates/bob/trained", own, token=team.tokens["bob"]).status == 200
    assert not has(team, "bob", digest)
    refused = submit(team, "bob", "with_sources_of_a_template", digest)
    assert (refused.status, refused.json()["code"]) == (404, "NoSourcesError")
    assert submit(team, "alice", "of_own_template", digest).status == 202
    team.wait_over("of_own_template")
    assert team.log_of("of_own_template") == b"of the template"


def test_user_who_has_the_same_files_uploads_them_and_owns_them_too(team: TeamCluster) -> None:
    content, digest = archive("of both")
    assert put(team, "alice", content, digest).status == 201
    wrong = put(team, "bob", b"a guess", digest)
    assert (wrong.status, has(team, "bob", digest)) == (400, False)
    # The response does not tell that the archive was there.
    assert (put(team, "bob", content, digest).status, has(team, "bob", digest)) == (201, True)
    again = put(team, "bob", b"", digest)
    assert (again.status, again.json()["message"]) == (200, "These sources were already stored.")
    assert submit(team, "bob", "with_the_same_sources", digest).status == 202
    assert has(team, "alice", digest)


def test_base_of_a_patch_must_be_an_own_archive(team: TeamCluster) -> None:
    base, base_digest = archive("a base")
    assert put(team, "alice", base, base_digest).status == 201
    patch = f"copy 0 {len(base)}\ndata 1\nx".encode()
    digest = hashlib.sha256(base + b"x").hexdigest()
    path, headers = f"/api/v2/sources/{digest}?base={base_digest}", {"Content-Type": PATCH}
    foreign = team.ask("PUT", path, patch, headers, token=team.tokens["bob"])
    assert (foreign.status, foreign.json()["code"]) == (404, "NoSourcesError")
    unknown = team.ask("PUT", path.replace(base_digest, "0" * 64), patch, headers, token=team.tokens["bob"])
    assert unknown.json() == foreign.json()
    assert team.ask("PUT", path, patch, headers).status == 201
    assert has(team, "alice", digest)


def test_archives_do_not_pass_to_a_new_user_of_the_same_name(team: TeamCluster) -> None:
    content, digest = archive("of carol")
    new = {"username": "carol", "password": PASSWORD, "virtualCluster": ["default"]}
    for owns in (True, False):
        assert team.ask("POST", "/api/v2/users", new, token=team.tokens["admin"]).status == 201
        team.tokens["carol"] = team.log_in("carol")
        if owns:
            assert put(team, "carol", content, digest).status == 201
        assert has(team, "carol", digest) is owns
        assert team.ask("DELETE", "/api/v2/users/carol", token=team.tokens["admin"]).status == 200


@pytest.mark.parametrize("digest", ["0" * 63, "A" * 64, "..%2f" + "0" * 60])
def test_name_that_is_no_hash_is_refused(team: TeamCluster, digest: str) -> None:
    assert team.ask("HEAD", f"/api/v2/sources/{digest}").status in (400, 404)
