"""What stays behind when a folder travels: what ``.paiignore`` says, or else ``.gitignore``."""

from __future__ import annotations

import os
import re

IGNORE_FILES = (".paiignore", ".gitignore")
CACHES = ("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints")
NEVER = frozenset((".git", ".hg", ".svn", ".openpai", ".DS_Store", *CACHES))
"""Nobody's program needs these, and some of them hold secrets or grow without end."""


class Rule:
    """One line of an ignore file, for paths under the folder it lies in.

    ``base`` is that folder as paths are written, ending in /. Where it lies above the folder that travels,
    ``front`` is the way from it to that folder.
    """

    __slots__ = ("base", "front", "keeps", "matches", "only_folders")

    def __init__(self, base: str, front: str, pattern: str, keeps: bool, only_folders: bool):
        self.base = base
        self.front = front
        self.keeps = keeps
        self.only_folders = only_folders
        self.matches = re.compile(pattern, re.DOTALL).fullmatch


def read_rules(folder: str, base: str = "", front: str = "") -> list[Rule]:
    """The rules of the ignore file in ``folder``, for paths that begin with ``base``."""
    for name in IGNORE_FILES:
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="surrogateescape") as f:
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
    text = text.rstrip("/")
    if not text:
        return None
    anchored = "/" in text
    text = text.lstrip("/")
    pattern = _translated(text) if anchored else "(?:.*/)?" + _translated(text)
    try:
        return Rule(base, front, pattern, keeps, only_folders)
    except re.error:
        return None  # git, too, passes over a pattern it cannot read


def is_ignored(path: str, is_folder: bool, rules: list[Rule]) -> bool:
    """Whether a path stays behind. The last rule that matches decides."""
    for rule in reversed(rules):
        if rule.only_folders and not is_folder:
            continue
        if path.startswith(rule.base) and rule.matches(rule.front + path[len(rule.base) :]):
            return not rule.keeps
    return False


def _translated(text: str) -> str:
    out, i = [], 0
    while i < len(text):
        c = text[i]
        if text.startswith("**/", i) and (i == 0 or text[i - 1] == "/"):
            out.append("(?:.*/)?")
            i += 3
        elif text.startswith("/**", i) and i + 3 == len(text):
            out.append("/.*")
            i += 3
        elif c == "*":
            while text.startswith("*", i):
                i += 1
            out.append("[^/]*")
        elif c == "?":
            out.append("[^/]")
            i += 1
        elif c == "[" and (end := _bracket_end(text, i)) > 0:
            inside = text[i + 1 : end].replace("\\", "\\\\")
            if inside.startswith(("!", "^")):
                inside = "^" + inside[1:]
            out.append("(?!/)[" + inside.replace("[", "\\[") + "]")
            i = end + 1
        else:
            if c == "\\" and i + 1 < len(text):
                i += 1
                c = text[i]
            out.append(re.escape(c))
            i += 1
    return "".join(out)


def _bracket_end(text: str, start: int) -> int:
    i = start + 1
    if text[i : i + 1] in ("!", "^"):
        i += 1
    return text.find("]", i + 1)


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
