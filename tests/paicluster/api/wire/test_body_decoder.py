"""Bodies decoded into wire types: OpenPAI's messages, in the order of the fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType

from paicluster.api.wire import body_decoder
from paicluster.api.wire.base import WireModel
from paiprotocol.errors import InvalidParameters

Name = Annotated[str, Meta(pattern=r"^[a-z]+$", max_length=5)]


class Mount(WireModel):
    mount_point: Annotated[str, Meta(min_length=2)]
    mode: Literal["rw", "ro"] | UnsetType = UNSET


class Everything(WireModel):
    name: Name
    email: Annotated[str, Meta(extra={"read": body_decoder.email})] | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    share: Annotated[float, Meta(ge=0, le=100)] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=0, le=9)] | UnsetType | None = UNSET
    names: list[Name] | UnsetType = UNSET
    mounts: list[Mount] | UnsetType = UNSET
    extension: dict[str, Any] | UnsetType = UNSET
    data: Any = None


class Data(WireModel):
    first: str | UnsetType = UNSET
    second: str | UnsetType = UNSET


class Change(WireModel, kw_only=True):
    patch: bool | UnsetType = UNSET
    data: Data

    @staticmethod
    def is_required(path: str, read: Mapping[str, Any]) -> bool:
        return path.startswith("data.") and not read.get("patch")


class Open(msgspec.Struct):
    value: str


def test_fields_are_read() -> None:
    sent = {
        "name": "abc",
        "email": "",
        "enabled": "True",
        "share": "12.5",
        "limit": None,
        "names": ["a", "b"],
        "mounts": [{"mountPoint": "/mnt", "mode": "ro"}],
        "extension": {"any": [1]},
        "data": 3,
    }
    assert body_decoder.decode(Everything, sent) == Everything(
        "abc", "", True, 12.5, None, ["a", "b"], [Mount("/mnt", "ro")], {"any": [1]}, 3
    )
    assert body_decoder.decode(Everything, {"name": "abc"}) == Everything("abc")
    assert body_decoder.decode(Open, {"value": "v", "other": 1}) == Open("v")


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ({}, '"name" is required'),
        ({"name": 1}, '"name" must be a string'),
        ({"name": None}, '"name" must be a string'),
        ({"name": ""}, '"name" is not allowed to be empty'),
        ({"name": "abcdef"}, '"name" length must be less than or equal to 5 characters long'),
        ({"name": "a\n"}, '"name" with value "a\n" fails to match the required pattern: /^[a-z]+$/'),
        ({"name": "a", "email": "alice"}, '"email" must be a valid email'),
        ({"name": "a", "enabled": 1}, '"enabled" must be a boolean'),
        ({"name": "a", "share": "much"}, '"share" must be a number'),
        ({"name": "a", "share": True}, '"share" must be a number'),
        ({"name": "a", "share": -1}, '"share" must be larger than or equal to 0'),
        ({"name": "a", "share": 100.5}, '"share" must be less than or equal to 100'),
        ({"name": "a", "limit": 1.5}, '"limit" must be an integer'),
        ({"name": "a", "limit": "x"}, '"limit" must be a number'),
        ({"name": "a", "names": "b"}, '"names" must be an array'),
        ({"name": "a", "names": ["b"] * 1001}, '"names" must contain less than or equal to 1000 items'),
        ({"name": "a", "names": ["b", ""]}, '"names[1]" is not allowed to be empty'),
        ({"name": "a", "mounts": [{}, 1]}, '"mounts[1]" must be an object'),
        ({"name": "a", "mounts": [{}]}, '"mounts[0].mountPoint" is required'),
        (
            {"name": "a", "mounts": [{"mountPoint": "/"}]},
            '"mounts[0].mountPoint" length must be at least 2 characters long',
        ),
        (
            {"name": "a", "mounts": [{"mountPoint": "/a", "mode": "x"}]},
            '"mounts[0].mode" must be one of [rw, ro]',
        ),
        ({"name": "a", "mounts": [{"mountPoint": "/a", "x": 1}]}, '"mounts[0].x" is not allowed'),
        ({"name": "a", "extension": []}, '"extension" must be an object'),
        ({"other": 1, "name": 1}, '"name" must be a string'),
        ({"name": "a", "other": 1, "another": 2}, '"other" is not allowed'),
        ({"name": "a", "x" * 200: 1}, f'"{"x" * 100}" is not allowed'),
    ],
)
def test_first_problem_is_told(sent: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidParameters) as raised:
        body_decoder.decode(Everything, sent)
    assert raised.value.message == problem


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ({"data": {}}, '"data.first" is required'),
        ({"data": {"first": "a"}}, '"data.second" is required'),
        ({"patch": True}, '"data" is required'),
        ({"patch": True, "data": 3}, '"data" must be an object'),
        ({"patch": True, "data": {"first": 1}}, '"data.first" must be a string'),
        # Unknown fields come before those of the inner object.
        ({"data": {}, "other": 1}, '"other" is not allowed'),
        ({"patch": "true", "data": {"other": 1}}, '"data.other" is not allowed'),
    ],
)
def test_rest_of_a_body_tells_what_is_required(sent: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidParameters) as raised:
        body_decoder.decode(Change, sent)
    assert raised.value.message == problem
    assert body_decoder.decode(Change, {"patch": True, "data": {"second": "b"}}).data == Data(UNSET, "b")


def test_type_that_the_decoder_does_not_know_is_an_error_of_the_program() -> None:
    class Odd(WireModel):
        value: set[int]

    with pytest.raises(TypeError, match="give the field a function"):
        body_decoder.decode(Odd, {"value": []})


@pytest.mark.parametrize("value", ["inf", "-inf", "1e999", 1.5])
def test_number_that_is_no_integer_is_refused(value: object) -> None:
    class Count(WireModel):
        count: int

    with pytest.raises(InvalidParameters, match='"count" must be an integer'):
        body_decoder.decode(Count, {"count": value})
