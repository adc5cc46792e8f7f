"""What the server says of itself, and the sources jobs bring along."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from paicluster.api.description.jobs import Count
from paicluster.api.description.operation import FORM, Body, Operation, Query, Said, Text

_TAG = "server"
_PAGE = Text("text/html")
_OF_JOB = (Query("username"), Query("jobName"), Query("attempt", Count))


class SignIn(msgspec.Struct):
    username: str | UnsetType = UNSET
    password: str | UnsetType = UNSET
    token: str | UnsetType = UNSET
    leave: str | UnsetType = UNSET


OPERATIONS: dict[str, Operation] = {
    "own.health": Operation("Whether work moves", _TAG, {200: Text(), 503: Text()}, token=False),
    "own.metrics": Operation("How it is doing, for Prometheus", _TAG, {200: Text()}),
    "own.description": Operation("This description", _TAG, {200: dict[str, Any]}, token=False),
    "v2.sources.has_sources": Operation("Whether these sources are here", "sources", {200: None}, (400,)),
    "v2.sources.put_sources": Operation(
        "Store sources: a tar, by its SHA-256",
        "sources",
        {200: Said, 201: Said},
        (404, 507),
        query=(Query("base", about="With a patch as the body: the sources it is for."),),
        body=Body(
            {
                kind: Text(kind, binary=True)
                for kind in ("application/octet-stream", "application/vnd.openpai.sources-patch")
            }
        ),
    ),
    "pages.job.job_detail": Operation(
        "Where a person can see a job",
        _TAG,
        dict.fromkeys((200, 400, 401, 403, 404), _PAGE),
        query=_OF_JOB,
        token=False,
    ),
    "pages.job.sign": Operation(
        "Sign in at that page, or out",
        _TAG,
        {303: None, **dict.fromkeys((400, 401, 413, 429), _PAGE)},
        query=_OF_JOB,
        body=Body({FORM: SignIn}),
        token=False,
    ),
}
