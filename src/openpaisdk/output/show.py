"""One place decides how a result prints."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FORMATS = ("table", "json", "yaml")


def show(value: object, form: str, people: Callable[[], str]) -> None:
    """Print ``value`` for programs, or what ``people`` makes of it. One result, one call."""
    if form == "json":
        text = _json(value)
    elif form == "yaml":
        text = _yaml(value)
    else:
        text = people()
    if text:
        _write(text + "\n")


def show_all(values: Iterable[object], form: str, people: Callable[[], Iterable[str]]) -> None:
    """The same for a list that may be long: each of it is made when its turn comes."""
    is_empty = True
    if form == "json":
        for value in values:
            _write(("[\n  " if is_empty else ",\n  ") + _json(value).replace("\n", "\n  "))
            is_empty = False
        _write("[]\n" if is_empty else "\n]\n")
    elif form == "yaml":
        for value in values:
            _write(_yaml([value]) + "\n")
            is_empty = False
        _write("[]\n" if is_empty else "")
    else:
        for line in people():
            _write(line + "\n")


def _json(value: object) -> str:
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False)
    if not text.isascii():
        # Of a name that is no UTF-8 the bytes as escapes: as they are, they would make all of it no JSON.
        text = text.encode("utf-8", "backslashreplace").decode()
    return text


def _yaml(value: object) -> str:
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text.rstrip("\n")


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # a terminal that knows fewer letters than the result has
        known = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(known, "backslashreplace").decode(known))


def print_notice(text: str) -> None:
    """A remark for the person at the terminal. It goes to stderr, so that it never mixes with a result."""
    sys.stdout.flush()
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # nobody listens; the result still counts
