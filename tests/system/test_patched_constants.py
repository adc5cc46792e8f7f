"""Tests pass timeouts, intervals and limits as parameters; they patch no constant of a module."""

from __future__ import annotations

import re

import pytest

from support.paths import REPOSITORY

# `setattr(module, "NAME", …)`, `setattr("package.module.NAME", …)` and `module.NAME = …` of a script.
_PATCHED = re.compile(
    r'setattr\(\s*(?:[\w.]+,\s*)?"(?:[\w.]+\.)?(_?[A-Z][A-Z0-9_]+)"|^[a-z_]+\.(_?[A-Z][A-Z0-9_]+) = ', re.M
)
_TIME_OR_SIZE = re.compile(r"_(S|MS|NS|BYTES|CHARS|ENTRIES|SIZE|BLOCK|DRAWS|FILES)$|^_?(MAX|MIN)_")
# Of the connection that every request uses: nothing passes a parameter to it.
_LEFT = {"SLOW_RESPONSE_S"}


def patched_constants(text: str) -> set[str]:
    """Times, sizes and counts that a test replaces in a module."""
    names = {name or assigned for name, assigned in _PATCHED.findall(text)}
    return {name for name in names if _TIME_OR_SIZE.search(name)}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('monkeypatch.setattr(readers, "_IDLE_TIMEOUT_S", 0.2)', {"_IDLE_TIMEOUT_S"}),
        ('    patch.setattr(\n        "openpaisdk.data.packer.FIRST_FILES", 1\n    )', {"FIRST_FILES"}),
        ("packer.MAX_ITEMS = 1", {"MAX_ITEMS"}),
        ('monkeypatch.setattr(time, "sleep", pause)', set()),
        ('monkeypatch.setattr(home, "LOCAL_DISKS", ())', set()),
        ("self.MAX_ITEMS == 1", set()),
    ],
)
def test_patched_constants_are_recognized(line: str, found: set[str]) -> None:
    assert patched_constants(line) == found


def test_timeouts_and_limits_are_parameters() -> None:
    patched = {
        str(path.relative_to(REPOSITORY)): names - _LEFT
        for path in sorted((REPOSITORY / "tests").rglob("*.py"))
        if path.name != "test_patched_constants.py" and (names := patched_constants(path.read_text())) - _LEFT
    }
    assert not patched, "make it a parameter of what the test calls, with this value as its default"
