"""One table says whose dialect a request speaks."""

from __future__ import annotations

import json

import pytest

from paicluster.api.dialect import Dialect, dialect

OPENPAI, PADDLECLOUD = Dialect.OPENPAI, Dialect.PADDLECLOUD
V1_JOB = {"jobName": "j", "image": "i", "taskRoles": [{"name": "main", "command": "true"}]}
DESIGNED = {"name": "paddle-job", "job_package": "/pfs/dc/home/u/pkg", "parallelism": 3}
BUILT = {"name": "paddle-job", "jobPackage": "/pfs/dc/home/u/pkg", "parallelism": 3, "topology": "t.py"}


@pytest.mark.parametrize(
    ("path", "authorization", "certificate", "body", "spoken"),
    [
        # What the header says.
        ("/api/v1/jobs", b"Bearer x.y.z", False, None, OPENPAI),
        ("/api/v1/jobs", b"Basic abc", False, None, OPENPAI),
        ("/api/v1/jobs", None, False, None, OPENPAI),
        ("/api/v1/jobs", b"Token 0123abcd", False, None, PADDLECLOUD),
        ("/api/v1/jobs/", b"token 0123abcd", False, None, PADDLECLOUD),
        ("/api/v1/jobs", b"Tokenizer abc", False, None, OPENPAI),
        # A certificate comes with PaddleCloud's clients only.
        ("/api/v1/jobs", None, True, None, PADDLECLOUD),
        ("/api/v1/jobs", b"Bearer x.y.z", True, None, PADDLECLOUD),
        # What the body says, where nothing else does.
        ("/api/v1/jobs", None, False, V1_JOB, OPENPAI),
        ("/api/v1/jobs", None, False, DESIGNED, PADDLECLOUD),
        ("/api/v1/jobs/", None, False, BUILT, PADDLECLOUD),
        ("/api/v1/jobs", b"Bearer x.y.z", False, BUILT, PADDLECLOUD),
        ("/api/v1/jobs", b"Token 0123abcd", False, V1_JOB, PADDLECLOUD),
        ("/api/v1/jobs", None, False, {**V1_JOB, "jobPackage": "x"}, OPENPAI),
        ("/api/v1/jobs", None, False, {}, OPENPAI),
        ("/api/v1/jobs", None, False, [], OPENPAI),
        ("/api/v1/jobs", None, False, "jobPackage", OPENPAI),
        # Version 2 is OpenPAI's alone, whatever comes with it.
        ("/api/v2/jobs", b"Token 0123abcd", False, None, OPENPAI),
        ("/api/v2/jobs", None, True, BUILT, OPENPAI),
        # Addresses that only PaddleCloud has.
        ("/api-token-auth/", None, False, None, PADDLECLOUD),
        ("/api/v1/quota", None, False, None, PADDLECLOUD),
        ("/api/v1/pfs/files", None, False, None, PADDLECLOUD),
        ("/api/v1/logs", None, False, None, PADDLECLOUD),
        ("/v1/submit", None, False, None, PADDLECLOUD),
        ("/api/v1/files-of-mine", None, False, None, OPENPAI),
        # The rest.
        ("/", None, False, None, OPENPAI),
        ("/healthz", None, False, None, OPENPAI),
        ("/webhdfs/v1/x", None, False, None, OPENPAI),
        ("/log-manager/tail/t/u/", None, False, None, OPENPAI),
    ],
)
def test_the_dialect_of_a_request(
    path: str, authorization: bytes | None, certificate: bool, body: object, spoken: Dialect
) -> None:
    sent = None if body is None else json.dumps(body).encode()
    assert dialect(path, authorization, certificate, sent) is spoken


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"name: x\njobPackage: y\n", b'{"jobPackage": '])
def test_a_body_that_is_not_json_is_openpais(body: bytes) -> None:
    assert dialect("/api/v1/jobs", None, False, body) is OPENPAI
