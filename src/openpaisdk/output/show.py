"""One place decides how a result prints."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS = ("table", "json", "yaml")


def show(value: object, form: str, people: Callable[[], str]) -> None:
    """Print ``value`` for programs, or what ``people`` makes of it. One result, one call."""
    if form == "json":
        import json

        text = json.dumps(value, indent=2, ensure_ascii=False)
        if not text.isascii():
            # Of a name that is no UTF-8 the bytes as escapes: as they are, they would make all of it no JSON.
            text = text.encode("utf-8", "backslashreplace").decode()
    elif form == "yaml":
        import yaml

        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False).rstrip(
            "\n"
        )
    else:
        text = people()
    if not text:
        return
    try:
        sys.stdout.write(text + "\n")
    except UnicodeEncodeError:  # a terminal that knows fewer letters than the result has
        known = sys.stdout.encoding or "ascii"
        sys.stdout.write((text + "\n").encode(known, "backslashreplace").decode(known))


def say(text: str) -> None:
    """A remark for the person at the terminal. It goes to stderr, so that it never mixes with a result."""
    sys.stdout.flush()
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # nobody listens; the result still counts
