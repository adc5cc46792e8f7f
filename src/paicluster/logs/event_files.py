"""Scalars in event files of TensorBoard: records of TFRecord with the few fields of their messages. Pure.

A file may be truncated, or hold anything: what cannot be read is skipped, or ends the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

# A record with scalars is small; longer ones have images and the like.
MAX_RECORD_BYTES = 1 << 20
_HEAD = struct.Struct("<Q4x")
_CRC_BYTES = 4
_MAX_STEP = 1 << 63
_VARINT_BITS = 70
# Wire types of protocol buffers.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Formats of one element by type of a tensor, and the fields that have its values without `tensor_content`.
_ELEMENTS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
_TENSOR_CONTENT = 4
_TENSOR_VALUES = {1: (5, "<f"), 2: (6, "<d"), 3: (7, ""), 9: (10, "")}


class Scalar(NamedTuple):
    tag: str
    step: int
    # Seconds since 1970.
    time: float
    value: float


class _Malformed(Exception):
    """A message that is none."""


def read_scalars(file: BinaryIO, size: int) -> Iterator[Scalar]:
    """Scalars of a file of that size, as far as it can be read."""
    position = 0
    while position + _HEAD.size <= size:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return
        (length,) = _HEAD.unpack(head)
        position += _HEAD.size + length + _CRC_BYTES
        if position > size:  # still being written, or no length
            return
        if length > MAX_RECORD_BYTES:
            file.seek(position)
            continue
        record = file.read(length + _CRC_BYTES)[:length]
        if len(record) < length:
            return
        try:
            yield from _scalars_of(memoryview(record))
        except (_Malformed, struct.error):
            continue


def _scalars_of(event: memoryview) -> Iterator[Scalar]:
    step, time_s, summaries = 0, 0.0, []
    for field, kind, value in _fields(event):
        if field == 1 and kind == _FIXED64:
            (time_s,) = struct.unpack("<d", value)
        elif field == 2 and kind == _VARINT:
            step = value - 2 * _MAX_STEP if value >= _MAX_STEP else value
        elif field == 5 and kind == _BYTES:
            summaries.append(value)
    for summary in summaries:
        for field, kind, value in _fields(summary):
            if field == 1 and kind == _BYTES and (found := _tagged_value(value)) is not None:
                yield Scalar(found[0], step, time_s, found[1])


def _tagged_value(message: memoryview) -> tuple[str, float] | None:
    tag, number = "", None
    for field, kind, value in _fields(message):
        if field == 1 and kind == _BYTES:
            tag = bytes(value).decode("utf-8", "replace")
        elif field == 2 and kind == _FIXED32:
            (number,) = struct.unpack("<f", value)
        elif field == 8 and kind == _BYTES:
            number = _only_element(value)
    return None if number is None or not tag else (tag, number)


def _only_element(tensor: memoryview) -> float | None:
    """The value of a tensor with one number."""
    fields = list(_fields(tensor))
    dtype = next((value for field, kind, value in fields if field == 1 and kind == _VARINT), 0)
    if dtype not in _ELEMENTS:
        return None
    for field, kind, value in fields:
        if field == _TENSOR_CONTENT and kind == _BYTES and len(value) == struct.calcsize(_ELEMENTS[dtype]):
            return float(struct.unpack(_ELEMENTS[dtype], value)[0])
    place, element = _TENSOR_VALUES.get(dtype, (0, ""))
    found = [value for field, _, value in fields if field == place]
    if len(found) != 1:
        return None
    (value,) = found
    if isinstance(value, int):
        return float(value - 2 * _MAX_STEP if value >= _MAX_STEP else value)
    if element:
        return float(struct.unpack(element, value)[0])
    packed, end = _varint(value, 0)
    return float(packed - 2 * _MAX_STEP if packed >= _MAX_STEP else packed) if end == len(value) else None


# Number of a field, its wire type, and its value: an integer, or bytes.
_Field = tuple[int, int, Any]


def _fields(message: memoryview) -> Iterator[_Field]:
    at, size = 0, len(message)
    while at < size:
        key, at = _varint(message, at)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield field, kind, value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise _Malformed
        if at + length > size:
            raise _Malformed
        yield field, kind, message[at : at + length]
        at += length


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < _VARINT_BITS:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2 * _MAX_STEP - 1), at
        shift += 7
    raise _Malformed
