"""Ignore files of uploads: ``.paiignore``, else ``.gitignore``, with git's pattern syntax."""

from __future__ import annotations

import os
import re

IGNORE_FILES = (".paiignore", ".gitignore")
CACHE_FOLDERS = ("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints")
RUNTIME_FOLDER = ".pai"
"""In a task's working folder: the runtime's own files, and the outputs of that task."""
ALWAYS_IGNORED = frozenset((".git", ".hg", ".svn", ".openpai", RUNTIME_FOLDER, ".DS_Store", *CACHE_FOLDERS))
"""No job needs these, and some of them contain secrets or grow without limit."""

_NAMED_CLASS = re.compile(r"\[:([^]]*):\]")
_NAMED_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t-\r ",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


class Rule:
    """One pattern of an ignore file, for paths below the file's folder.

    ``root`` is that folder as a path prefix, ending in /. For an ignore file above the uploaded folder,
    ``prefix`` is the path from the ignore file's folder to the uploaded folder.
    """

    __slots__ = ("folders_only", "is_negated", "matches", "prefix", "root")

    def __init__(self, root: str, prefix: str, pattern: str, is_negated: bool, folders_only: bool):
        self.root = root
        self.prefix = prefix
        self.is_negated = is_negated
        self.folders_only = folders_only
        self.matches = re.compile(pattern, re.DOTALL).fullmatch


def read_rules(folder: str, root: str = "", prefix: str = "") -> list[Rule]:
    """Rules of the ignore file in ``folder``, for paths that begin with ``root``."""
    for name in IGNORE_FILES:
        try:
            with open(os.path.join(folder, name), encoding="utf-8-sig", errors="surrogateescape") as f:
                return [rule for line in f if (rule := read_rule(line, root, prefix))]
        except OSError:
            continue
    return []


def read_rule(line: str, root: str = "", prefix: str = "") -> Rule | None:
    """Parse one line as git does."""
    text = line.rstrip("\r\n")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    is_negated = text.startswith("!")
    if is_negated:
        text = text[1:]
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    anchored = "/" in text
    text = text.removeprefix("/")
    try:
        pattern = _pattern_to_regex(text) if anchored else "(?:.*/)?" + _pattern_to_regex(text)
    except LookupError:
        return None  # git, too, ignores an invalid pattern
    return Rule(root, prefix, pattern, is_negated, folders_only)


def is_ignored(path: str, is_folder: bool, rules: list[Rule]) -> bool:
    """Whether a path is ignored. The last matching rule decides."""
    for rule in reversed(rules):
        if rule.folders_only and not is_folder:
            continue
        if path.startswith(rule.root) and rule.matches(rule.prefix + path[len(rule.root) :]):
            return not rule.is_negated
    return False


def _pattern_to_regex(text: str) -> str:
    out, i = [], 0
    while i < len(text):
        c = text[i]
        if c == "*":
            end = i + len(text[i:]) - len(text[i:].lstrip("*"))
            crosses = end - i > 1 and (i == 0 or text[i - 1] == "/")
            if crosses and text.startswith("/", end):
                out.append("(?:.*/)?")
                end += 1
            else:
                out.append(".*" if crosses and end == len(text) else "[^/]*")
            i = end
        elif c == "?":
            out.append("[^/]")
            i += 1
        elif c == "[":
            matched, i = _bracket(text, i)
            out.append(matched)
        else:
            if c == "\\" and i + 1 < len(text):
                i += 1
                c = text[i]
            out.append(re.escape(c))
            i += 1
    return "".join(out)


def _bracket(text: str, start: int) -> tuple[str, int]:
    """Regular expression of one bracket, and the index after it; LookupError if it is not closed."""
    i = start + 1
    negated = text[i : i + 1] in ("!", "^")
    i += negated
    first, members, before = i, "", ""
    while i == first or text[i : i + 1] != "]":
        named = _NAMED_CLASS.match(text, i)
        if named:
            members += _NAMED_CLASSES[named[1]]
            before, i = "", named.end()
        elif before and text.startswith("-", i) and text[i + 1 : i + 2] not in ("", "]"):
            last, i = _read_char(text, i + 1)
            if before <= last:
                members += f"{re.escape(before)}-{re.escape(last)}"
            before = ""
        else:
            before, i = _read_char(text, i)
            members += re.escape(before)
    if negated:
        return f"[^/{members}]", i + 1
    return (f"(?!/)[{members}]" if members else "(?!)"), i + 1


def _read_char(text: str, i: int) -> tuple[str, int]:
    """The character at an index, after an optional backslash, and the index of the next one."""
    i += text.startswith("\\", i)
    return text[i], i + 1


def rules_above(folder: str) -> list[Rule]:
    """Rules of the parent folders up to the root of the repository, as git applies them."""
    folder = os.path.realpath(folder)
    above: list[str] = []
    at = folder
    while not os.path.exists(os.path.join(at, ".git")):
        at, before = os.path.dirname(at), at
        if at == before:
            return []  # no repository: ignore files of parent folders do not apply
        above.append(at)
    rules: list[Rule] = []
    for up in reversed(above):
        rules += read_rules(up, prefix=os.path.relpath(folder, up).replace(os.sep, "/") + "/")
    return rules
