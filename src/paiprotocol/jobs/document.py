"""Documents: JSON or YAML text parsed to plain data, bounded in size, depth and time, with source positions.

Plain data is what JSON can express: dict with text keys, list, str, int, float, bool and None. Unquoted
scalars follow YAML 1.2, so ``yes``, ``2019-01-01`` and ``007`` stay text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any, NoReturn

from paiprotocol.jobs.limits import MAX_DEPTH, MAX_EXPANDED_CHARS, MAX_VALUES
from paiprotocol.jobs.problems import Path, Problem, protocol_error, within

MAX_BYTES = 1024 * 1024

_NO_NUMBER = "NaN and infinity are not allowed in a job; put them in quotes"
_BOMS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)


class Document:
    """Plain data, and the text it was parsed from (None for data that was not parsed)."""

    __slots__ = ("_root", "data", "file", "text")

    def __init__(self, data: Any, text: str | None, file: str, root: Any = None):
        self.data = data
        self.text = text
        self.file = file
        self._root = root

    @property
    def yaml_root(self) -> Any:
        """The node that YAML was composed to; None for data that was not parsed from YAML."""
        return self._root

    def locate(self, problem: Problem) -> Problem:
        """The same problem with file, line and column filled in."""
        line, column = self._position(problem.path, problem.at_key) if self.text is not None else (0, 0)
        return replace(problem, file=self.file, line=line, column=column)

    def _position(self, path: Path, at_key: bool) -> tuple[int, int]:
        from paiprotocol.jobs.yaml_nodes import compose, locate

        if self._root is None:
            try:
                self._root = compose(self.text or "", self.file)
            except Exception:
                # JSON that YAML cannot parse (rare): the problem still has its path.
                self.text = None
                return 0, 0
        return locate(self._root, path, at_key)


def read(source: str | bytes | Mapping[str, Any], file: str | None = None) -> Document:
    """Parse ``source``; raises ProtocolError."""
    name = file or ""
    if not isinstance(source, str | bytes | bytearray | memoryview):
        return Document(to_plain_data(source, name), None, name)
    text = decode_text(source if isinstance(source, str) else bytes(source), name)
    if text.lstrip(" \t\r\n")[:1] == "{":
        try:
            data = parse_json(text)
        except _ConstantError:
            _fail(_NO_NUMBER, name)
        except (ValueError, RecursionError) as error:
            return _read_yaml(text, name, json_error=error)
        if "\\u" in text:
            # Only an escape can produce characters that a text file cannot contain.
            to_plain_data(data, name)
        return Document(data, text, name)
    return _read_yaml(text, name)


def _read_yaml(text: str, file: str, json_error: Exception | None = None) -> Document:
    from paiprotocol.errors import ProtocolError
    from paiprotocol.jobs.yaml_nodes import compose, construct

    try:
        root = compose(text, file)
    except ProtocolError:
        if isinstance(json_error, json.JSONDecodeError):
            message = f"this is not JSON: {json_error.msg}"
            _fail(message, file, *within(text, json_error.lineno, json_error.colno))
        raise
    data = construct(root, file)
    if "*" in text and _characters(data) > MAX_EXPANDED_CHARS:
        _fail(
            f"a job may have at most {MAX_EXPANDED_CHARS >> 20} MiB of text with its aliases, this has more",
            file,
        )
    if "\\" in text:
        to_plain_data(data, file)
    return Document(data, text, file, root)


def _characters(value: Any) -> int:
    """Length of all texts in plain data; a text counts as often as it occurs."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _characters(item) for key, item in value.items())
    if isinstance(value, list):
        return sum(map(_characters, value))
    # Decimal digits of an integer, roughly.
    return value.bit_length() // 3 if type(value) is int else 0


def decode_text(source: str | bytes, file: str = "") -> str:
    """Text without byte order mark; raises ProtocolError if too large, binary, or in another encoding."""
    if len(source) > MAX_BYTES:
        size = f"{len(source) / 1024 / 1024:.1f} MiB"
        _fail(f"a job may have at most {MAX_BYTES // 1024 // 1024} MiB of text, this has {size}", file)
    if isinstance(source, bytes):
        encoding = next((name for mark, name in _BOMS if source.startswith(mark)), "utf-8")
        try:
            source = source.decode(encoding)
        except UnicodeDecodeError as error:
            if b"\0" in source:
                _fail("this is a binary file, not a job", file)
            before = error.object[: error.start]
            line = before.count(b"\n") + 1
            column = len(before) - before.rfind(b"\n")
            _fail(f"this is not {encoding.upper()} text; save the file as UTF-8", file, line, column)
    if source.startswith("\N{BYTE ORDER MARK}"):
        source = source[1:]
    if "\0" in source:
        _fail("this is a binary file, not a job", file)
    return source


class _DuplicateKeyError(ValueError):
    pass


class _ConstantError(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise _DuplicateKeyError
    return mapping


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("a number is too large")
    return value


def _constant(name: str) -> NoReturn:
    raise _ConstantError(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_number, parse_constant=_constant)


def parse_json(text: str) -> Any:
    """Parse JSON to plain data. ValueError for invalid JSON, duplicate keys and nesting too deep."""
    data = _DECODER.decode(text)
    if text.count("{") + text.count("[") > MAX_DEPTH and _is_deeper(data, MAX_DEPTH):
        raise ValueError("nested too deep")
    return data


def _is_deeper(value: Any, left: int) -> bool:
    if isinstance(value, dict):
        return left == 0 or any(_is_deeper(item, left - 1) for item in value.values())
    if isinstance(value, list):
        return left == 0 or any(_is_deeper(item, left - 1) for item in value)
    return False


class _NotPlainError(Exception):
    def __init__(self, message: str):
        super().__init__(message)
        self.message = message
        self.path: list[str | int] = []


def to_plain_data(value: Any, file: str = "") -> Any:
    """A deep copy of plain data; raises ProtocolError for other types and for cyclic values."""
    budget = [MAX_VALUES]
    try:
        return _plain(value, MAX_DEPTH, budget)
    except _NotPlainError as error:
        _fail(error.message, file, path=tuple(reversed(error.path)))


def _plain(value: Any, depth: int, budget: list[int]) -> Any:
    kind = type(value)
    if kind is str:
        if "\0" in value or not (value.isascii() or _encodable(value)):
            raise _NotPlainError("the text contains a character that a text file cannot contain")
        return value
    if kind is int or kind is bool or value is None:
        return value
    budget[0] -= 1
    if budget[0] < 0:
        raise _NotPlainError(f"a job may have at most {MAX_VALUES} values, this has more")
    if kind is dict or isinstance(value, Mapping):
        if depth == 0:
            raise _NotPlainError(f"nested deeper than {MAX_DEPTH} levels")
        mapping = {}
        for key, item in value.items():
            try:
                if type(key) is not str or not key.isascii() or "\0" in key:
                    _check_key(key)
                mapping[key] = (
                    item
                    if type(item) is str and item.isascii() and "\0" not in item
                    else _plain(item, depth - 1, budget)
                )
            except _NotPlainError as error:
                error.path.append(str(key))
                raise
        return mapping
    if kind is list or isinstance(value, list | tuple):
        if depth == 0:
            raise _NotPlainError(f"nested deeper than {MAX_DEPTH} levels")
        budget[0] -= len(value)
        items = []
        for index, item in enumerate(value):
            try:
                items.append(_plain(item, depth - 1, budget))
            except _NotPlainError as error:
                error.path.append(index)
                raise
        return items
    return _scalar(value)


def _scalar(value: Any) -> Any:
    # Subclasses of the plain types (a StrEnum, a numpy float) become the plain type.
    if isinstance(value, float):
        if not isfinite(value):
            raise _NotPlainError(_NO_NUMBER)
        return float(value)
    if isinstance(value, str):
        return _plain(str.__str__(value), 0, [1])
    if isinstance(value, int):
        return int(value)
    raise _NotPlainError(f"a {type(value).__name__} is not a valid value in a job")


def _check_key(key: Any) -> None:
    if type(key) is not str:
        raise _NotPlainError(f"a key must be text, this is a {type(key).__name__}")
    _plain(key, 0, [1])


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fail(message: str, file: str, line: int = 0, column: int = 0, path: Path = ()) -> NoReturn:
    raise protocol_error([Problem(path, message, file=file, line=line, column=column)])
