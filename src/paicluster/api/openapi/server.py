"""What the server says of itself, and the sources jobs bring along."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from paicluster.api.openapi.jobs import Count
from paicluster.api.openapi.operation import (
    FORM,
    Body,
    Either,
    Message,
    Operation,
    Problem,
    Query,
    Text,
    WireModel,
)

_TAG = "server"
_PAGE = Text("text/html")
_ASKED = Body({FORM: dict[str, str]}, required=False)
_OF_JOB = (Query("username"), Query("jobName"), Query("attempt", Count))


class Sample(WireModel):
    metric: dict[str, str]
    value: tuple[float, str]


class Row(WireModel):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class Vector(WireModel):
    result_type: Literal["vector"]
    result: list[Sample]


class Matrix(WireModel):
    result_type: Literal["matrix"]
    result: list[Row]


class Instant(WireModel):
    status: Literal["success"]
    data: Vector


class PrometheusSeries(WireModel):
    status: Literal["success"]
    data: Matrix


class Failed(WireModel):
    status: Literal["error"]
    error_type: str
    error: str


class SignIn(msgspec.Struct):
    username: str | UnsetType = UNSET
    password: str | UnsetType = UNSET
    token: str | UnsetType = UNSET
    leave: str | UnsetType = UNSET


OPERATIONS: dict[str, Operation] = {
    "server_status.health": Operation("Whether work moves", _TAG, {200: Text(), 503: Text()}, token=False),
    "server_status.metrics": Operation("How it is doing, for Prometheus", _TAG, {200: Text()}),
    "prometheus_query.query": Operation(
        "A figure now, as Prometheus tells it",
        _TAG,
        {200: Instant, 400: Either(Failed, Problem), 422: Failed},
        query=(Query("query"), Query("time")),
        body=_ASKED,
    ),
    "prometheus_query.query_range": Operation(
        "A figure as a series, of which only the present is known",
        _TAG,
        {200: PrometheusSeries, 400: Either(Failed, Problem), 422: Failed},
        query=(Query("query"), Query("start"), Query("end"), Query("step")),
        body=_ASKED,
    ),
    "marketplace.empty_list": Operation("Nothing: there is no marketplace", _TAG, {200: list[Any]}),
    "marketplace.no_item": Operation("No item of the marketplace", _TAG, {404: Problem}),
    "marketplace.refuse_change": Operation("Refused: there is no marketplace", _TAG, {400: Problem}),
    "app.openapi": Operation("This description", _TAG, {200: dict[str, Any]}, token=False),
    "v2.sources.has_sources": Operation("Whether these sources are here", "sources", {200: None}, (400,)),
    "v2.sources.put_sources": Operation(
        "Store sources: a tar, by its SHA-256",
        "sources",
        {200: Message, 201: Message},
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
