"""Server status, Prometheus queries, marketplace, source archives."""

from __future__ import annotations

from typing import Any, Literal

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
_QUERY_BODY = Body({FORM: dict[str, str]}, required=False)


class InstantSample(WireModel):
    metric: dict[str, str]
    value: tuple[float, str]


class RangeSamples(WireModel):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class Vector(WireModel):
    result_type: Literal["vector"]
    result: list[InstantSample]


class Matrix(WireModel):
    result_type: Literal["matrix"]
    result: list[RangeSamples]


class InstantQueryResult(WireModel):
    status: Literal["success"]
    data: Vector


class RangeQueryResult(WireModel):
    status: Literal["success"]
    data: Matrix


class PrometheusError(WireModel):
    status: Literal["error"]
    error_type: str
    error: str


OPERATIONS: dict[str, Operation] = {
    "server_status.health": Operation(
        "Health: 200 while jobs make progress", _TAG, {200: Text(), 503: Text()}, token=False
    ),
    "server_status.metrics": Operation("Metrics in Prometheus' text format", _TAG, {200: Text()}),
    "prometheus_query.query": Operation(
        "Current value of a metric, in Prometheus' format",
        _TAG,
        {200: InstantQueryResult, 400: Either(PrometheusError, Problem), 422: PrometheusError},
        query=(Query("query"), Query("time")),
        body=_QUERY_BODY,
    ),
    "prometheus_query.query_range": Operation(
        "Range query of a metric; only the current value is known",
        _TAG,
        {200: RangeQueryResult, 400: Either(PrometheusError, Problem), 422: PrometheusError},
        query=(Query("query"), Query("start"), Query("end"), Query("step")),
        body=_QUERY_BODY,
    ),
    "marketplace.empty_list": Operation("Empty list: the cluster has no marketplace", _TAG, {200: list[Any]}),
    "marketplace.no_item": Operation("Not found: the cluster has no marketplace", _TAG, {404: Problem}),
    "marketplace.refuse_change": Operation("Refused: the cluster has no marketplace", _TAG, {400: Problem}),
    "app.openapi": Operation("This document", _TAG, {200: dict[str, Any]}, token=False),
    "v2.sources.has_sources": Operation(
        "Check whether the cluster has a source archive", "sources", {200: None}, (400,)
    ),
    "v2.sources.put_sources": Operation(
        "Store a source archive (tar) under its SHA-256",
        "sources",
        {200: Message, 201: Message},
        (404, 507),
        query=(Query("base", description="SHA-256 of the base archive when the body is a patch."),),
        body=Body(
            {
                kind: Text(kind, binary=True)
                for kind in ("application/octet-stream", "application/vnd.openpai.sources-patch")
            }
        ),
    ),
}
