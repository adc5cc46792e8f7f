"""Schema language: one definition validates a value, explains its problems, and generates a JSON Schema.

``accepts`` is the fast check for the many valid jobs; ``explain`` lists the problems of the few invalid ones.
The two agree: a value is accepted exactly when ``explain`` finds no problem.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paiprotocol.jobs.problems import (
    MAX_HINTS,
    Path,
    Problem,
    describe_value,
    did_you_mean,
    is_full,
    shorten,
)

MAX_INT = 2**31 - 1


class Node:
    """Schema of a value. ``doc`` is one sentence for editors."""

    expected = "a value"

    def __init__(self, doc: str = ""):
        self.doc = doc

    def accepts(self, value: Any) -> bool:
        raise NotImplementedError

    def explain(self, value: Any, path: Path, problems: list[Problem]) -> None:
        """Append the problems of ``value``; none for a value that is accepted."""
        if not self.accepts(value):
            problems.append(
                Problem(
                    path,
                    "",
                    expected=self.expected,
                    found=describe_value(value, path),
                    suggestion=self.suggest(value),
                )
            )

    def suggest(self, value: Any) -> str:
        """What to write instead, if it can be guessed from a rejected value."""
        return ""

    def json_schema(self) -> dict[str, Any]:
        return {"description": self.doc} if self.doc else {}


class Anything(Node):
    """Any plain value."""

    def accepts(self, value: Any) -> bool:
        return True


class Text(Node):
    """Text, optionally with a ``pattern``; ``form`` describes the pattern in words."""

    def __init__(self, doc: str = "", *, pattern: str = "", form: str = "", max_length: int = 0):
        super().__init__(doc)
        self.pattern = pattern
        self.form = form
        self.max_length = max_length
        self._match = re.compile(pattern).fullmatch if pattern else None
        self.expected = form or "text"

    def accepts(self, value: Any) -> bool:
        if type(value) is not str or (self.max_length and len(value) > self.max_length):
            return False
        return self._match is None or self._match(value) is not None

    def suggest(self, value: Any) -> str:
        if isinstance(value, bool | int | float):
            return "put it in quotes"
        # A frequent YAML mistake: an unquoted command with a colon.
        return (
            'quote the whole text: it has a ": " in it' if isinstance(value, dict) and len(value) == 1 else ""
        )

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {**super().json_schema(), "type": "string"}
        if self.pattern:
            schema["pattern"] = f"^{self.pattern}$"
        if self.max_length:
            schema["maxLength"] = self.max_length
        return schema


class TextOrNumber(Node):
    """Text or a number, for versions: both ``v1`` and ``1.0`` are common."""

    expected = "text or a number"

    def accepts(self, value: Any) -> bool:
        return type(value) in (str, int, float)

    def json_schema(self) -> dict[str, Any]:
        return {**super().json_schema(), "type": ["string", "number"]}


class Int(Node):
    """A whole number. 4.0 is one, as in JSON Schema; "4" and true are not."""

    def __init__(
        self, doc: str = "", *, minimum: int | None = None, maximum: int = MAX_INT, default: int | None = None
    ):
        super().__init__(doc)
        self.minimum = -MAX_INT if minimum is None else minimum
        self.maximum = maximum
        self.default = default
        bound = "" if minimum is None else f" of at least {minimum}"
        self.expected = "a whole number" + bound

    def accepts(self, value: Any) -> bool:
        if type(value) is int:
            return self.minimum <= value <= self.maximum
        return type(value) is float and value.is_integer() and self.minimum <= value <= self.maximum

    def suggest(self, value: Any) -> str:
        if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]{1,9}", value.strip()):
            return (
                f"write {int(value)} without quotes"
                if str(int(value)) == value.strip()
                else f"write {int(value)}"
            )
        if isinstance(value, int | float) and value > self.maximum:
            return f"the largest is {self.maximum}"
        return ""

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {**super().json_schema(), "type": "integer"}
        if self.minimum != -MAX_INT:
            schema["minimum"] = self.minimum
        if self.default is not None:
            schema["default"] = self.default
        return schema


class Bool(Node):
    expected = "true or false"

    def __init__(self, doc: str = "", *, default: bool | None = None):
        super().__init__(doc)
        self.default = default

    def accepts(self, value: Any) -> bool:
        return type(value) is bool

    def suggest(self, value: Any) -> str:
        word = value.lower() if isinstance(value, str) else value
        if word in ("yes", "on", "true", "y", 1):
            return "write true"
        return "write false" if word in ("no", "off", "false", "n", 0) and word is not None else ""

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {**super().json_schema(), "type": "boolean"}
        return schema if self.default is None else {**schema, "default": self.default}


class Choice(Node):
    """One of a few values."""

    def __init__(self, *choices: Any, doc: str = ""):
        super().__init__(doc)
        self.choices = choices
        self._pairs = frozenset((type(choice), choice) for choice in choices)
        shown = [f'"{c}"' if isinstance(c, str) else str(c) for c in choices]
        self.expected = shown[0] if len(shown) == 1 else f"one of {', '.join(shown)}"

    def accepts(self, value: Any) -> bool:
        kind = type(value)
        return (kind is str or kind is int) and (kind, value) in self._pairs

    def suggest(self, value: Any) -> str:
        words = [choice for choice in self.choices if isinstance(choice, str)]
        hint = did_you_mean(value, words) if isinstance(value, str) else ""
        return hint if hint.startswith("did you") else ""

    def json_schema(self) -> dict[str, Any]:
        return {**super().json_schema(), "enum": list(self.choices)}


class Nullable(Node):
    """A schema, or null."""

    def __init__(self, inner: Node):
        super().__init__(inner.doc)
        self.inner = inner
        self.expected = inner.expected

    def accepts(self, value: Any) -> bool:
        return value is None or self.inner.accepts(value)

    def explain(self, value: Any, path: Path, problems: list[Problem]) -> None:
        if value is not None:
            self.inner.explain(value, path, problems)

    def json_schema(self) -> dict[str, Any]:
        inner = self.inner.json_schema()
        if isinstance(inner.get("type"), str):
            return {**inner, "type": [inner["type"], "null"]}
        return {"anyOf": [inner, {"type": "null"}]}


class ListOf(Node):
    """A list whose items have one schema."""

    def __init__(self, item: Node, doc: str = "", *, min_items: int = 0):
        super().__init__(doc)
        self.item = item
        self.min_items = min_items
        self.expected = "a list" if not min_items else "a list that is not empty"

    def accepts(self, value: Any) -> bool:
        if type(value) is not list or len(value) < self.min_items:
            return False
        accepts = self.item.accepts
        for item in value:  # noqa: SIM110 - a plain loop is twice as fast as all() over a generator
            if not accepts(item):
                return False
        return True

    def explain(self, value: Any, path: Path, problems: list[Problem]) -> None:
        if type(value) is not list or len(value) < self.min_items:
            return super().explain(value, path, problems)
        for index, item in enumerate(value):
            if is_full(problems):
                break
            self.item.explain(item, (*path, index), problems)
        return None

    def suggest(self, value: Any) -> str:
        if isinstance(value, str | int | float) and not isinstance(value, bool) and self.item.accepts(value):
            return 'write it as a list, with "- " before it'
        return ""

    def json_schema(self) -> dict[str, Any]:
        schema = {**super().json_schema(), "type": "array", "items": self.item.json_schema()}
        return {**schema, "minItems": self.min_items} if self.min_items else schema


class MappingOf(Node):
    """A mapping with user-defined keys (``key``: their schema) whose values have one schema."""

    def __init__(self, item: Node, doc: str = "", *, key: Text | None = None, min_items: int = 0):
        super().__init__(doc)
        self.item = item
        self.key = key
        self.min_items = min_items
        self.expected = "a mapping" if not min_items else "a mapping that is not empty"

    def accepts(self, value: Any) -> bool:
        if type(value) is not dict or len(value) < self.min_items:
            return False
        if type(self.item) is Anything and self.key is None:
            return True
        for key, item in value.items():
            if (self.key is not None and not self.key.accepts(key)) or not self.item.accepts(item):
                return False
        return True

    def explain(self, value: Any, path: Path, problems: list[Problem]) -> None:
        if type(value) is not dict or len(value) < self.min_items:
            return super().explain(value, path, problems)
        for key, item in value.items():
            if is_full(problems):
                break
            here = (*path, key)
            if self.key is not None and not self.key.accepts(key):
                name = f'the name "{shorten(key)}"'
                problems.append(Problem(here, "", expected=self.key.expected, found=name, at_key=True))
            self.item.explain(item, here, problems)
        return None

    def json_schema(self) -> dict[str, Any]:
        schema = {**super().json_schema(), "type": "object"}
        if self.key is not None:
            schema["propertyNames"] = {"pattern": f"^{self.key.pattern}$"}
        schema["additionalProperties"] = self.item.json_schema() or True
        return {**schema, "minProperties": self.min_items} if self.min_items else schema


class Fields(Node):
    """A mapping with known keys.

    ``open``: other keys are kept and not checked. ``others``: the shape of other keys, unless they look like
    a misspelt known one.
    """

    expected = "a mapping"

    def __init__(
        self,
        fields: Mapping[str, Node],
        doc: str = "",
        *,
        required: Sequence[str] = (),
        open: bool = False,
        others: Node | None = None,
        named: str = "",
    ):
        super().__init__(doc)
        self.fields = dict(fields)
        self.required = tuple(required)
        self.open = open
        self.others = others
        self.named = named
        self._required = frozenset(required)
        self._accepts = {name: node.accepts for name, node in fields.items()}

    def accepts(self, value: Any) -> bool:
        if type(value) is not dict or not self._required <= value.keys():
            return False
        accepts = self._accepts
        for key, item in value.items():
            check = accepts.get(key)
            if check is None:
                if not (self.open or self._is_other(key, item)):
                    return False
            elif not check(item):
                return False
        return True

    def explain(self, value: Any, path: Path, problems: list[Problem]) -> None:
        if type(value) is not dict:
            return super().explain(value, path, problems)
        missing = [name for name in self.required if name not in value]
        meant: set[str] = set()
        for key, item in value.items():
            if is_full(problems):
                break
            node = self.fields.get(key)
            if node is not None:
                node.explain(item, (*path, key), problems)
            elif not (self.open or self._is_other(key, item)):
                unused = (name for name in self.fields if name not in value)
                hint = did_you_mean(key, unused) if len(problems) < MAX_HINTS else ""
                meant.update(name for name in missing if hint == f'did you mean "{name}"?')
                problems.append(Problem((*path, key), "unknown key", suggestion=hint, at_key=True))
        for name in missing:
            if name not in meant:
                problems.append(_missing(path, name, self.fields[name].expected))
        return None

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {**super().json_schema(), "type": "object"}
        schema["properties"] = {name: node.json_schema() for name, node in self.fields.items()}
        if self.required:
            schema["required"] = list(self.required)
        if self.others is not None:
            schema["additionalProperties"] = self.others.json_schema()
        elif not self.open:
            schema["additionalProperties"] = False
        return schema

    def _is_other(self, key: Any, item: Any) -> bool:
        if self.others is None or type(key) is not str or not self.others.accepts(item):
            return False
        return not did_you_mean(key, self.fields).startswith("did you mean")


class Variant(Node):
    """A mapping whose schema depends on the value of one of its keys."""

    expected = "a mapping"

    def __init__(self, key: str, variants: Mapping[str, Fields], doc: str = ""):
        super().__init__(doc)
        self.key = key
        self.variants = dict(variants)
        self._choice = Choice(*variants)

    def accepts(self, value: Any) -> bool:
        if type(value) is not dict:
            return False
        kind = value.get(self.key)
        return type(kind) is str and kind in self.variants and self.variants[kind].accepts(value)

    def explain(self, value: Any, path: Path, problems: list[Problem]) -> None:
        if type(value) is not dict:
            return super().explain(value, path, problems)
        kind = value.get(self.key)
        if type(kind) is str and kind in self.variants:
            return self.variants[kind].explain(value, path, problems)
        if self.key in value:
            return self._choice.explain(kind, (*path, self.key), problems)
        problems.append(_missing(path, self.key, self._choice.expected))
        return None

    def json_schema(self) -> dict[str, Any]:
        return {**super().json_schema(), "oneOf": [node.json_schema() for node in self.variants.values()]}


def _missing(path: Path, name: str, expected: str) -> Problem:
    return Problem(path, f'the key "{name}" is missing', expected=expected, at_key=True)
