"""Table of requests and their API dialect."""

from __future__ import annotations

import json

import pytest

from paicluster.api.routing.dialect import LOOKED_AT_BYTES, Dialect, dialect

OPENPAI, PADDLECLOUD = Dialect.OPENPAI, Dialect.PADDLECLOUD
V1_JOB = {"jobName": "j", "image": "i", "taskRoles": [{"name": "main", "command": "true"}]}
SNAKE_CASE_JOB = {"name": "paddle-job", "job_package": "/pfs/dc/home/u/pkg", "parallelism": 3}
CAMEL_CASE_JOB = {
    "name": "paddle-job",
    "jobPackage": "/pfs/dc/home/u/pkg",
    "parallelism": 3,
    "topology": "t.py",
}


@pytest.mark.parametrize(
    ("path", "authorization", "certificate", "body", "expected"),
    [
        # By the header.
        ("/api/v1/jobs", b"Bearer x.y.z", False, None, OPENPAI),
        ("/api/v1/jobs", b"Basic abc", False, None, OPENPAI),
        ("/api/v1/jobs", None, False, None, OPENPAI),
        ("/api/v1/jobs", b"Token 0123abcd", False, None, PADDLECLOUD),
        ("/api/v1/jobs/", b"token 0123abcd", False, None, PADDLECLOUD),
        ("/api/v1/jobs", b"Tokenizer abc", False, None, OPENPAI),
        # Only PaddleCloud's clients send a certificate.
        ("/api/v1/jobs", None, True, None, PADDLECLOUD),
        ("/api/v1/jobs", b"Bearer x.y.z", True, None, PADDLECLOUD),
        # By the body, where nothing else decides.
        ("/api/v1/jobs", None, False, V1_JOB, OPENPAI),
        ("/api/v1/jobs", None, False, SNAKE_CASE_JOB, PADDLECLOUD),
        ("/api/v1/jobs/", None, False, CAMEL_CASE_JOB, PADDLECLOUD),
        ("/api/v1/jobs", b"Bearer x.y.z", False, CAMEL_CASE_JOB, PADDLECLOUD),
        ("/api/v1/jobs", b"Token 0123abcd", False, V1_JOB, PADDLECLOUD),
        ("/api/v1/jobs", None, False, {**V1_JOB, "jobPackage": "x"}, OPENPAI),
        ("/api/v1/jobs", None, False, {}, OPENPAI),
        ("/api/v1/jobs", None, False, [], OPENPAI),
        ("/api/v1/jobs", None, False, "jobPackage", OPENPAI),
        # Version 2 is always OpenPAI's.
        ("/api/v2/jobs", b"Token 0123abcd", False, None, OPENPAI),
        ("/api/v2/jobs", None, True, CAMEL_CASE_JOB, OPENPAI),
        # Paths that only PaddleCloud has.
        ("/api-token-auth/", None, False, None, PADDLECLOUD),
        ("/api/v1/quota", None, False, None, PADDLECLOUD),
        ("/api/v1/pfs/files", None, False, None, PADDLECLOUD),
        ("/api/v1/logs", None, False, None, PADDLECLOUD),
        ("/v1/submit", None, False, None, PADDLECLOUD),
        ("/api/v1/files-of-mine", None, False, None, OPENPAI),
        # What PaddleCloud never had is ours, such as the portal in a browser with a certificate.
        ("/", None, True, None, OPENPAI),
        ("/", b"Token 0123abcd", False, None, OPENPAI),
        ("/healthz", b"Token 0123abcd", False, None, OPENPAI),
        ("/openapi.json", None, True, None, OPENPAI),
        ("/webhdfs/v1/x", None, True, None, OPENPAI),
        ("/api/v1", None, True, None, PADDLECLOUD),
        ("/api/v10/x", None, True, None, OPENPAI),
        # The rest.
        ("/", None, False, None, OPENPAI),
        ("/healthz", None, False, None, OPENPAI),
        ("/webhdfs/v1/x", None, False, None, OPENPAI),
        ("/log-manager/tail/t/u/", None, False, None, OPENPAI),
    ],
)
def test_dialect_of_a_request(
    path: str, authorization: bytes | None, certificate: bool, body: object, expected: Dialect
) -> None:
    sent = None if body is None else json.dumps(body).encode()
    assert dialect(path, authorization, certificate, sent) is expected


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"name: x\njobPackage: y\n", b'{"jobPackage": '])
def test_body_that_is_not_json_is_openpai(body: bytes) -> None:
    assert dialect("/api/v1/jobs", None, False, body) is OPENPAI


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ({"jobPackage": "/pkg"}, {"datapath": "x" * 100_000}, PADDLECLOUD),
        ({"jobPackage": "/pkg", "taskRoles": []}, {"x": "x" * 100_000}, OPENPAI),
        ({"x": "x" * 100_000}, {"jobPackage": "/pkg"}, OPENPAI),
        ({"taskRoles": [{"jobPackage": "/pkg"}] * 5000}, {}, OPENPAI),
    ],
)
def test_only_the_beginning_of_a_long_body_decides(
    first: dict[str, object], then: dict[str, object], expected: Dialect
) -> None:
    body = json.dumps({**first, **then}, indent=2).encode()
    assert len(body) > LOOKED_AT_BYTES
    assert dialect("/api/v1/jobs", None, False, body[:LOOKED_AT_BYTES]) is expected


@pytest.mark.parametrize("size", [1000, 100_000])
def test_deeply_nested_body_is_openpai(size: int) -> None:
    assert dialect("/api/v1/jobs", None, False, b'{"a":' * size) is OPENPAI
