"""Audit log: one line of JSON per change or login, no secrets, rotation, bounded queue."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from paicluster.api.middleware import audit
from paicluster.api.middleware.audit import AuditLog
from support.server_fixture import eventually, job
from support.team_cluster import PASSWORD, TeamCluster


def lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "audit.log").read_text().splitlines()]


def _lines_since_job(home: Path) -> list[dict[str, Any]]:
    all_lines = lines(home)
    own = [number for number, line in enumerate(all_lines) if line.get("about") == "alice~audited"]
    return all_lines[own[0] :] if own else []


def test_changes_and_logins_are_audited_and_reads_are_not(team: TeamCluster) -> None:
    team.accept(job("audited", "true"))
    team.stop("audited")
    team.get("/api/v2/jobs")
    wrong = {"username": "bob", "password": "planted-in-a-body"}
    team.ask("POST", "/api/v2/authn/basic/login", wrong, token=None)
    token = team.log_in("bob")
    team.ask("DELETE", f"/api/v2/tokens/{token}", token=team.tokens["bob"])
    team.ask("PUT", "/api/v2/jobs/alice~audited/executionType", {"value": "STOP"}, token=team.tokens["bob"])
    # Lines are written asynchronously: those of the fixture's logins may still arrive.
    audited = eventually(lambda: new if len(new := _lines_since_job(team.home)) >= 5 else None, "five lines")
    assert [(line["user"], line["method"], line["path"], line["status"]) for line in audited] == [
        ("alice", "POST", "/api/v2/jobs", 202),
        ("alice", "PUT", "/api/v2/jobs/alice~audited/executionType", 202),
        (None, "POST", "/api/v2/authn/basic/login", 200),
        ("bob", "DELETE", "/api/v2/tokens/***", 200),
        ("bob", "PUT", "/api/v2/jobs/alice~audited/executionType", 403),
    ]
    assert audited[0]["about"] == "alice~audited"
    assert audited[2]["about"] == "bob"
    assert all(line["address"] == "127.0.0.1" and line["time"].endswith("Z") for line in audited)
    text = (team.home / "audit.log").read_text()
    for secret in (PASSWORD, "planted-in-a-body", token):
        assert secret not in text
    assert (team.home / "audit.log").stat().st_mode & 0o777 == 0o600


def read_all(folder: Path) -> str:
    text = ""
    for file in folder.iterdir():
        # A file that is being rotated may have another name by now.
        with contextlib.suppress(FileNotFoundError):
            text += file.read_text()
    return text


def read_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "audit.log").read_text().splitlines()]


def _request(number: int) -> Request:
    scope = {"type": "http", "method": "PUT", "path_params": {"n": number}, "client": ("10.0.0.1", 1)}
    return Request({**scope, "headers": []})


def test_audit_log_is_rotated_and_the_oldest_file_deleted(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, max_bytes=400, backups=3)
    for number in range(40):
        log.record(_request(number), "/thing/{n:count}", 200)
        eventually(lambda n=number: f'"/thing/{n}"' in read_all(tmp_path))
    log.close()
    files = sorted(os.listdir(tmp_path))
    assert files == ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3"]
    assert all((tmp_path / file).stat().st_size <= 400 for file in files)
    assert all((tmp_path / file).stat().st_mode & 0o777 == 0o600 for file in files)
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["path"] == "/thing/39"


def test_audit_line_has_webhdfs_operation_and_nothing_else_of_the_query(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    request = _request(1)
    request.scope["query_string"] = b"user.name=alice&op=rename&destination=/a&token=very-secret"
    log.record(request, "/webhdfs/v1/{n}", 200)
    log.close()
    text = (tmp_path / "audit.log").read_text()
    assert json.loads(text)["operation"] == "RENAME"
    assert "very-secret" not in text


def test_fields_of_a_line_are_cut(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    request = _request(1)
    request.scope["path_params"] = {"n": "n" * 5000}
    audit.set_subject(request, "\N{GREEK SMALL LETTER ALPHA}" * 5000)
    log.record(request, "/thing/{n}", 200)
    log.close()
    (line,) = read_lines(tmp_path)
    assert line["path"] == "/thing/" + "n" * 192 + "…"
    assert line["about"] == "\N{GREEK SMALL LETTER ALPHA}" * 199 + "…"
    assert (tmp_path / "audit.log").stat().st_size < 1000


def test_refusals_of_strangers_are_counted_and_do_not_flush_the_log(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", max_bytes=4000, backups=1)
    log.record(_request(7), "/kept/{n}", 200)
    for number in range(5000):
        request = _request(number)
        request.scope["client"] = (f"10.0.{number // 250}.{number % 250}", 1)
        audit.set_subject(request, f"account{number}" * 100)
        log.record(request, "/api/v2/authn/basic/login", 400)
        log.record(request, "/api/v2/users/{n}", 401)
    log.close()
    kept, refused = read_lines(tmp_path)
    assert kept["path"] == "/kept/7"
    assert (refused["user"], refused["refused"]) == (None, 10000)
    assert sorted((one["path"], one["status"], one["count"]) for one in refused["requests"]) == [
        ("/api/v2/authn/basic/login", 400, 5000),
        ("/api/v2/users/{n}", 401, 5000),
    ]
    assert len(json.dumps(refused)) < 2000


def test_refusals_name_who_tried_most_and_for_which_account(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    for address, account in (("10.0.0.1", "admin"), ("10.0.0.2", "bob"), ("10.0.0.1", "admin")):
        request = _request(1)
        request.scope["client"] = (address, 1)
        audit.set_subject(request, account)
        log.record(request, "/api/v2/authn/basic/login", 400)
    log.close()
    (refused,) = read_lines(tmp_path)
    assert refused["addresses"] == {"10.0.0.1": 2, "10.0.0.2": 1}
    assert refused["about"] == {"admin": 2, "bob": 1}
    assert refused["since"] <= refused["time"]


def test_refusals_are_written_while_the_server_runs(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", refusal_interval_s=0.05)
    for expected in (1, 2):
        log.record(_request(1), "/thing/{n}", 401)
        eventually(lambda n=expected: len(read_lines(tmp_path)) == n, "the line")
    log.close()
    assert [line["refused"] for line in read_lines(tmp_path)] == [1, 1]


def test_strangers_leave_one_line_on_a_server(team: TeamCluster) -> None:
    for number in range(50):
        wrong = {"username": f"nobody{number}", "password": "planted-in-a-body"}
        team.ask("POST", "/api/v2/authn/basic/login", wrong, token=None)
        team.ask("DELETE", "/api/v2/users/alice", token=None)
    team.accept(job("after_strangers", "true"))
    eventually(lambda: any(line.get("about") == "alice~after_strangers" for line in lines(team.home)))
    single = [line for line in lines(team.home) if line["user"] is None and "refused" not in line]
    assert all(line["status"] == 200 for line in single), "logins that succeeded"


def test_close_writes_all_queued_entries(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    for number in range(1000):
        log.record(_request(number), "/thing/{n}", 200)
    log.close()
    assert len((tmp_path / "audit.log").read_text().splitlines()) == 1000


def test_slow_disk_delays_no_request_and_the_queue_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = audit._AuditFile.emit
    writing, proceed = threading.Event(), threading.Event()

    def slow_write(file: audit._AuditFile, record: logging.LogRecord) -> None:
        writing.set()
        assert proceed.wait(60)
        write(file, record)

    monkeypatch.setattr(audit._AuditFile, "emit", slow_write)
    log = AuditLog(tmp_path / "audit.log", max_queued=10)
    log.record(_request(0), "/thing/{n}", 200)
    assert writing.wait(60)
    with caplog.at_level(logging.WARNING, "paicluster.audit"):
        for number in range(1, 31):
            log.record(_request(number), "/thing/{n}", 200)  # returns although nothing can be written
    assert "The audit log cannot keep up: 1 entries dropped so far." in caplog.text
    proceed.set()
    log.close()
    paths = [json.loads(line)["path"] for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert paths == [f"/thing/{number}" for number in range(11)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_logged_and_does_not_fail_a_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    path.symlink_to("/dev/full")
    log = AuditLog(path)
    with caplog.at_level(logging.WARNING, "paicluster.audit"):
        log.record(_request(1), "/thing/{n}", 200)
        eventually(lambda: "No space left on device" in caplog.text, "the warning")
    log.close()
