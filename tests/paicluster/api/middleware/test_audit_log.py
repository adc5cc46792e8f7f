"""Who did what, one line of JSON each, and no secret among them."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from starlette.requests import Request

from paicluster.api.middleware.audit import AuditLog
from support.server_fixture import eventually, job
from support.team_cluster import PASSWORD, TeamCluster


def lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "audit.log").read_text().splitlines()]


def _since_our_job(home: Path) -> list[dict[str, Any]]:
    found = lines(home)
    ours = [number for number, line in enumerate(found) if line.get("about") == "alice~audited"]
    return found[ours[0] :] if ours else []


def test_changes_and_logins_are_recorded_and_reads_are_not(team: TeamCluster) -> None:
    team.accept(job("audited", "true"))
    team.stop("audited")
    team.get("/api/v2/jobs")
    wrong = {"username": "bob", "password": "planted-in-a-body"}
    team.ask("POST", "/api/v2/authn/basic/login", wrong, token=None)
    token = team.log_in("bob")
    team.ask("DELETE", f"/api/v2/tokens/{token}", token=team.tokens["bob"])
    team.ask("PUT", "/api/v2/jobs/alice~audited/executionType", {"value": "STOP"}, token=team.tokens["bob"])
    # Lines are written a moment later, so that those of the logins before may come now: ours begin here.
    wanted = eventually(lambda: found if len(found := _since_our_job(team.home)) >= 6 else None, "six lines")
    assert [(line["user"], line["method"], line["path"], line["status"]) for line in wanted] == [
        ("alice", "POST", "/api/v2/jobs", 202),
        ("alice", "PUT", "/api/v2/jobs/alice~audited/executionType", 202),
        (None, "POST", "/api/v2/authn/basic/login", 400),
        (None, "POST", "/api/v2/authn/basic/login", 200),
        ("bob", "DELETE", "/api/v2/tokens/***", 200),
        ("bob", "PUT", "/api/v2/jobs/alice~audited/executionType", 403),
    ]
    assert wanted[0]["about"] == "alice~audited"
    assert wanted[2]["about"] == "bob"
    assert all(line["address"] == "127.0.0.1" and line["time"].endswith("Z") for line in wanted)
    text = (team.home / "audit.log").read_text()
    for secret in (PASSWORD, "planted-in-a-body", token):
        assert secret not in text
    assert (team.home / "audit.log").stat().st_mode & 0o777 == 0o600


def everything(folder: Path) -> str:
    text = ""
    for file in folder.iterdir():
        # One that is just being set aside has another name by now.
        with contextlib.suppress(FileNotFoundError):
            text += file.read_text()
    return text


def _request(number: int) -> Request:
    scope = {"type": "http", "method": "PUT", "path_params": {"n": number}, "client": ("10.0.0.1", 1)}
    return Request({**scope, "headers": []})


def test_a_full_log_is_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, max_bytes=400, backups=3)
    for number in range(40):
        log.record(_request(number), "/thing/{n:count}", 200)
        # One at a time: lines that come together are written together.
        eventually(lambda n=number: f'"/thing/{n}"' in everything(tmp_path))
    log.close()
    files = sorted(os.listdir(tmp_path))
    assert files == ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3"]
    assert all((tmp_path / file).stat().st_size <= 400 for file in files)
    assert all((tmp_path / file).stat().st_mode & 0o777 == 0o600 for file in files)
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["path"] == "/thing/39"


def test_what_webhdfs_does_is_told_and_the_rest_of_a_query_is_not(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    request = _request(1)
    request.scope["query_string"] = b"user.name=alice&op=rename&destination=/a&token=very-secret"
    log.record(request, "/webhdfs/v1/{n}", 200)
    log.close()
    text = (tmp_path / "audit.log").read_text()
    assert json.loads(text)["operation"] == "RENAME"
    assert "very-secret" not in text


def test_what_was_recorded_is_on_disk_when_the_log_is_closed(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    for number in range(1000):
        log.record(_request(number), "/thing/{n}", 200)
    log.close()
    assert len((tmp_path / "audit.log").read_text().splitlines()) == 1000
