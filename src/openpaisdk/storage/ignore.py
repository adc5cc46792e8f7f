"""What stays behind when a folder travels: what ``.paiignore`` says, or else ``.gitignore``."""

from __future__ import annotations

import os
import re

IGNORE_FILES = (".paiignore", ".gitignore")
CACHES = ("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints")
NEVER = frozenset((".git", ".hg", ".svn", ".openpai", ".DS_Store", *CACHES))
"""Nobody's program needs these, and some of them hold secrets or grow without end."""

_CLASS = re.compile(r"\[:([^]]*):\]")
_CLASSES = {
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
    """One line of an ignore file, for paths under the folder it lies in.

    ``base`` is that folder as paths are written, ending in /. Where it lies above the folder that travels,
    ``front`` is the way from it to that folder.
    """

    __slots__ = ("keeps", "matches", "only_folders", "prefix", "root")

    def __init__(self, base: str, front: str, pattern: str, keeps: bool, only_folders: bool):
        self.root = base
        self.prefix = front
        self.keeps = keeps
        self.only_folders = only_folders
        self.matches = re.compile(pattern, re.DOTALL).fullmatch


def read_rules(folder: str, base: str = "", front: str = "") -> list[Rule]:
    """The rules of the ignore file in ``folder``, for paths that begin with ``base``."""
    for name in IGNORE_FILES:
        try:
            with open(os.path.join(folder, name), encoding="utf-8-sig", errors="surrogateescape") as f:
                return [rule for line in f if (rule := read_rule(line, base, front))]
        except OSError:
            continue
    return []


def read_rule(line: str, base: str = "", front: str = "") -> Rule | None:
    """A line as git reads it."""
    text = line.rstrip("\r\n")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    if keeps:
        text = text[1:]
    only_folders = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    anchored = "/" in text
    text = text.removeprefix("/")
    try:
        pattern = _pattern_to_regex(text) if anchored else "(?:.*/)?" + _pattern_to_regex(text)
    except LookupError:
        return None  # git, too, passes over a pattern it cannot read
    return Rule(base, front, pattern, keeps, only_folders)


def is_ignored(path: str, is_folder: bool, rules: list[Rule]) -> bool:
    """Whether a path stays behind. The last rule that matches decides."""
    for rule in reversed(rules):
        if rule.only_folders and not is_folder:
            continue
        if path.startswith(rule.root) and rule.matches(rule.prefix + path[len(rule.root) :]):
            return not rule.keeps
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
    """What one bracket matches, and where it ends; one without an end is a LookupError."""
    i = start + 1
    negated = text[i : i + 1] in ("!", "^")
    i += negated
    first, members, before = i, "", ""
    while i == first or text[i : i + 1] != "]":
        named = _CLASS.match(text, i)
        if named:
            members += _CLASSES[named[1]]
            before, i = "", named.end()
        elif before and text.startswith("-", i) and text[i + 1 : i + 2] not in ("", "]"):
            last, i = _letter(text, i + 1)
            if before <= last:
                members += f"{re.escape(before)}-{re.escape(last)}"
            before = ""
        else:
            before, i = _letter(text, i)
            members += re.escape(before)
    if negated:
        return f"[^/{members}]", i + 1
    return (f"(?!/)[{members}]" if members else "(?!)"), i + 1


def _letter(text: str, i: int) -> tuple[str, int]:
    """The letter there, which a backslash may stand before, and where the next one is."""
    i += text.startswith("\\", i)
    return text[i], i + 1


def rules_above(folder: str) -> list[Rule]:
    """Rules of the folders above, up to the root of the repository: git heeds them too."""
    folder = os.path.realpath(folder)
    above: list[str] = []
    at = folder
    while not os.path.exists(os.path.join(at, ".git")):
        at, before = os.path.dirname(at), at
        if at == before:
            return []  # no repository: what lies above has no say
        above.append(at)
    rules: list[Rule] = []
    for up in reversed(above):
        rules += read_rules(up, front=os.path.relpath(folder, up).replace(os.sep, "/") + "/")
    return rules
