"""Decoder of request bodies into wire types. Its error messages are OpenPAI's.

Fields are read in the order of their declaration; then unknown ones are refused, then inner objects decoded.
A type is compiled at its first request. Where its annotation does not say how a field is read, a function
does: ``Annotated[str, Meta(extra={"read": email})]``; with ``"absent"`` it is also given that value of a
field that the body does not have. Where only the rest of a body tells whether a field is
required, the type has a method ``is_required(path, read)``, which is asked for fields of inner objects, too.
"""

from __future__ import annotations

import math
import re
import typing
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from paiprotocol.errors import InvalidParameters

T = TypeVar("T", bound=msgspec.Struct)

_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")
# No user, group or storage has so many of anything; each may cost a query.
_MAX_ITEMS = 1000
_MISSING: Any = object()


IsRequired = Callable[[str, Mapping[str, Any]], bool]


def _never(path: str, read: Mapping[str, Any]) -> bool:
    return False


class Field(NamedTuple):
    """Place of a value in a body."""

    path: str
    # Values of the fields that were read before it, by attribute; those of enclosing objects, too.
    read: Mapping[str, Any] = {}
    is_required: IsRequired = _never

    def invalid(self, problem: str) -> InvalidParameters:
        return InvalidParameters(f'"{self.path[:100]}" {problem}')

    def item(self, index: int) -> Field:
        return self._replace(path=f"{self.path}[{index}]")

    def key(self, key: str, read: Mapping[str, Any]) -> Field:
        return self._replace(path=f"{self.path}.{key}" if self.path else key, read=read)


Reader = Callable[[Any, Field], Any]


def decode(kind: type[T], fields: Mapping[str, Any]) -> T:
    """A value of a wire type; raises InvalidParameters."""
    return _decode_object(kind, fields, Field("", is_required=getattr(kind, "is_required", _never)))


def _decode_object(kind: type[T], fields: Mapping[str, Any], place: Field) -> T:
    plan = _plan_of(kind)
    values: dict[str, Any] = {}
    inner: list[tuple[str, type[msgspec.Struct], Field]] = []
    read = ChainMap(values, dict(place.read))
    for name, key, required, reader, inner_kind, absent in plan.fields:
        field = place.key(key, read)
        if key not in fields and absent is not _MISSING:
            values[name] = reader(absent, field)
            continue
        if key not in fields:
            if required or field.is_required(field.path, read):
                raise field.invalid("is required")
            continue
        values[name] = reader(fields[key], field)
        if inner_kind is not None:
            inner.append((name, inner_kind, field))
    if plan.known is not None:
        for key in fields:
            if key not in plan.known:
                raise place.key(key, read).invalid("is not allowed")
    for name, inner_kind, field in inner:
        values[name] = _decode_object(inner_kind, values[name], field)
    return kind(**values)


# -- readers of values -----------------------------------------------------------------------------


def text(
    value: Any,
    field: Field,
    *,
    min_length: int | None = None,
    max_length: int | None = None,
    pattern: str | None = None,
    shown_pattern: str | None = None,
) -> str:
    """``shown_pattern`` is the pattern in the error message, where it differs."""
    if not isinstance(value, str):
        raise field.invalid("must be a string")
    if not value and (min_length or pattern):
        raise field.invalid("is not allowed to be empty")
    if min_length is not None and len(value) < min_length:
        raise field.invalid(f"length must be at least {min_length} characters long")
    if max_length is not None and len(value) > max_length:
        raise field.invalid(f"length must be less than or equal to {max_length} characters long")
    if pattern is not None and not re.fullmatch(pattern, value):
        shown = value if len(value) <= 40 else value[:40] + "…"
        raise field.invalid(
            f'with value "{shown}" fails to match the required pattern: /{shown_pattern or pattern}/'
        )
    return value


def email(value: Any, field: Field) -> str:
    address = text(value, field)
    if address and not _EMAIL.fullmatch(address):
        raise field.invalid("must be a valid email")
    return address


def flag(value: Any, field: Field) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise field.invalid("must be a boolean")
    return value


def number(value: Any, field: Field, *, minimum: float | None = None, maximum: float | None = None) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise field.invalid("must be a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise field.invalid("must be a number")
    if minimum is not None and value < minimum:
        raise field.invalid(f"must be larger than or equal to {minimum:g}")
    if maximum is not None and value > maximum:
        raise field.invalid(f"must be less than or equal to {maximum:g}")
    return value


def whole_number(
    value: Any, field: Field, *, minimum: float | None = None, maximum: float | None = None
) -> int:
    count = number(value, field, minimum=minimum, maximum=maximum)
    # `int` of infinity, which a form may contain, raises another error.
    if not math.isfinite(count) or count != int(count):
        raise field.invalid("must be an integer")
    return int(count)


def mapping(value: Any, field: Field) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise field.invalid("must be an object")
    return value


def _choice(value: Any, field: Field, *, choices: Collection[str]) -> str:
    if text(value, field) not in choices:
        raise field.invalid(f"must be one of [{', '.join(choices)}]")
    return str(value)


def _anything(value: Any, field: Field) -> Any:
    return value


def _optional(value: Any, field: Field, *, read: Reader) -> Any:
    return None if value is None else read(value, field)


def _items(value: Any, field: Field) -> list[Any]:
    if not isinstance(value, list):
        raise field.invalid("must be an array")
    if len(value) > _MAX_ITEMS:
        raise field.invalid(f"must contain less than or equal to {_MAX_ITEMS} items")
    return value


def _list(value: Any, field: Field, *, read: Reader) -> list[Any]:
    return [read(item, field.item(index)) for index, item in enumerate(_items(value, field))]


def _objects(value: Any, field: Field, *, kind: type[msgspec.Struct]) -> list[Any]:
    objects = _list(value, field, read=mapping)
    return [_decode_object(kind, item, field.item(index)) for index, item in enumerate(objects)]


# -- readers of types ------------------------------------------------------------------------------


class _FieldPlan(NamedTuple):
    name: str
    key: str
    required: bool
    read: Reader
    # Of a field that is an object.
    kind: type[msgspec.Struct] | None
    # What is read of a field that the body does not have, instead of the error that it is required.
    absent: Any


class _Plan(NamedTuple):
    fields: tuple[_FieldPlan, ...]
    # Keys of the object; None if it may have others.
    known: Collection[str] | None


@cache
def _plan_of(kind: type[msgspec.Struct]) -> _Plan:
    annotations = typing.get_type_hints(kind, include_extras=True)
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    fields = tuple(
        _FieldPlan(
            field.name,
            field.encode_name,
            field.required,
            _reader_of(field.type, annotations[field.name]),
            field.type.cls if isinstance(field.type, inspect.StructType) else None,
            _absent_of(field.type),
        )
        for field in described.fields
    )
    known = frozenset(field.key for field in fields) if described.forbid_unknown_fields else None
    return _Plan(fields, known)


def _absent_of(kind: inspect.Type) -> Any:
    extra = kind.extra if isinstance(kind, inspect.Metadata) else None
    return (extra or {}).get("absent", _MISSING)


def _reader_of(kind: inspect.Type, annotation: Any) -> Reader:
    match kind:
        case inspect.Metadata(extra={"read": read}):
            reader: Reader = read
            return reader
        case inspect.Metadata(type=inner):
            return _reader_of(inner, annotation)
        case inspect.UnionType(types=(inner, inspect.NoneType())):
            return partial(_optional, read=_reader_of(inner, annotation))
        case inspect.AnyType():
            return _anything
        case inspect.BoolType():
            return flag
        case inspect.StrType():
            return partial(text, min_length=kind.min_length, max_length=kind.max_length, pattern=kind.pattern)
        case inspect.IntType():
            return partial(whole_number, minimum=kind.ge, maximum=kind.le)
        case inspect.FloatType():
            return partial(number, minimum=kind.ge, maximum=kind.le)
        case inspect.LiteralType():
            return partial(_choice, choices=_choices(annotation))
        case inspect.DictType() | inspect.StructType():
            return mapping
        case inspect.ListType(item_type=inspect.StructType(cls=item)):
            return partial(_objects, kind=item)
        case inspect.ListType():
            return partial(_list, read=_reader_of(kind.item_type, annotation))
    raise TypeError(f"The decoder of bodies knows no {kind}: give the field a function that reads it.")


def _choices(annotation: Any) -> tuple[str, ...]:
    """Values of the `Literal` in an annotation in their order, which `inspect` does not keep."""
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return arguments
    return next((choices for argument in arguments if (choices := _choices(argument))), ())
