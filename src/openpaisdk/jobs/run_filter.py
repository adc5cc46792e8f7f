"""Filter of runs: ``lr<0.01 and (loss<0.5 or not state=FAILED)``, parsed, never evaluated as a program.

    filter     := conjunction { "or" conjunction }
    conjunction := term { "and" term }
    term       := "not" term | "(" filter ")" | NAME OPERATOR VALUE
    OPERATOR   := "<" | "<=" | ">" | ">=" | "=" | "==" | "!=" | "~"

Names and values are words, or in quotes. Numbers are compared as numbers, all else as text; ``~`` is true for
a text that contains the value. A run without the value fits no comparison with it.
"""

from __future__ import annotations

import re

from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Value = float | str | None
    Lookup = Callable[[str], Value]
    Condition = Callable[[Lookup], bool]

_MAX_LENGTH = 10_000
_MAX_DEPTH = 50
_TOKEN = re.compile(
    r"""\s*(?:(?P<operator><=|>=|!=|==|<|>|=|~)|(?P<bracket>[()])"""
    r"""|"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<word>[^\s()<>=!~"']+))"""
)
_NUMBER = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?inf(?:inity)?", re.IGNORECASE
)
_HINT = "Write comparisons like lr<0.01, joined by and, or, not and parentheses; state!=FAILED, opt=adam."


class _Token:
    """``kind``: operator, bracket, word or text (in quotes); ``end`` at the end."""

    __slots__ = ("at", "kind", "text")

    def __init__(self, kind: str, text: str, at: int):
        self.kind = kind
        self.text = text
        self.at = at

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


class RunFilter:
    """A parsed filter. ``names``: those it compares, in their order."""

    def __init__(self, text: str):
        self.text = text
        self.names: list[str] = []
        if len(text) > _MAX_LENGTH:
            raise UsageError(f"A filter may have {_MAX_LENGTH} characters; this one has {len(text)}.")
        self._tokens = self._split()
        self._at = 0
        self._condition = self._disjunction(0)
        if self._next.kind != "end":
            raise self._error("and, or, or the end")

    def matches(self, lookup: Lookup) -> bool:
        """Whether a run fits, whose values ``lookup`` returns by name; None for one that it has not."""
        return self._condition(lookup)

    def _split(self) -> list[_Token]:
        tokens, at = [], 0
        text = self.text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                what = (
                    "a quote that is not closed"
                    if text[at:].lstrip()[:1] in "\"'"
                    else repr(text[at:].strip()[:20])
                )
                raise UsageError(f"filter {self.text!r}: {what} cannot be read.", hint=_HINT)
            kind = str(match.lastgroup)
            token = str(match[kind])
            tokens.append(_Token("text" if kind in ("double", "single") else kind, token, match.start(kind)))
            at = match.end()
        return [*tokens, _Token("end", "", len(text))]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _error(self, expected: str) -> UsageError:
        found = repr(self._next.text) if self._next.kind != "end" else "the end"
        return UsageError(
            f"filter {self.text!r}: {expected} is expected at character {self._next.at + 1}, not {found}.",
            hint=_HINT,
        )

    def _disjunction(self, depth: int) -> Condition:
        terms = [self._conjunction(depth)]
        while self._next.is_word("or"):
            self._take()
            terms.append(self._conjunction(depth))
        return terms[0] if len(terms) == 1 else lambda lookup: any(term(lookup) for term in terms)

    def _conjunction(self, depth: int) -> Condition:
        terms = [self._term(depth)]
        while self._next.is_word("and"):
            self._take()
            terms.append(self._term(depth))
        return terms[0] if len(terms) == 1 else lambda lookup: all(term(lookup) for term in terms)

    def _term(self, depth: int) -> Condition:
        if depth > _MAX_DEPTH:
            raise UsageError(f"A filter may be nested {_MAX_DEPTH} deep.")
        if self._next.is_word("not"):
            self._take()
            negated = self._term(depth + 1)
            return lambda lookup: not negated(lookup)
        if self._next.kind == "bracket" and self._next.text == "(":
            self._take()
            inner = self._disjunction(depth + 1)
            if self._next.text != ")" or self._next.kind != "bracket":
                raise self._error("a closing parenthesis")
            self._take()
            return inner
        return self._comparison()

    def _comparison(self) -> Condition:
        if self._next.kind not in ("word", "text") or self._next.is_word("and", "or"):
            raise self._error("a name")
        name = self._take().text
        if self._next.kind != "operator":
            raise self._error("a comparison like <, = or ~")
        operator = self._take().text
        if self._next.kind not in ("word", "text"):
            raise self._error("a value")
        expected = self._take().text
        if name == "state":
            expected = expected.upper()
        if name not in self.names:
            self.names.append(name)
        return lambda lookup: compare(lookup(name), operator, expected)


def number_of(text: str) -> float | None:
    """The number that a text is; None if it is none."""
    return float(text) if _NUMBER.fullmatch(text) else None


def compare(value: Value, operator: str, expected: str) -> bool:
    """Whether a value fits. NaN is equal to the word nan, and neither less nor greater than any number."""
    if value is None:
        return False
    if operator == "~":
        return expected in _text(value)
    number = value if isinstance(value, float | int) else number_of(value)
    if number is not None and number != number:
        is_equal = expected.lower() == "nan"
        return is_equal if operator in ("=", "==") else operator == "!=" and not is_equal
    other = number_of(expected)
    if number is not None and other is not None:
        return _ordered(number, operator, other)
    if (number is None) != (other is None) and operator not in ("=", "==", "!="):
        return False
    return _ordered(_text(value), operator, expected)


def _ordered(left: float | str, operator: str, right: float | str) -> bool:
    if operator in ("=", "=="):
        return left == right
    if operator == "!=":
        return left != right
    is_less, is_greater = left < right, left > right  # type: ignore[operator]
    if operator == "<":
        return is_less
    if operator == ">":
        return is_greater
    return not is_greater if operator == "<=" else not is_less


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else repr(value)
