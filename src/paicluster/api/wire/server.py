"""Server status, Prometheus queries, marketplace, source archives."""

from typing import Literal

from paicluster.api.wire.base import WireModel


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
