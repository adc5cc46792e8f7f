"""The check of the portal's style sheets finds rules of two files, and classes that nothing has."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest

from support.paths import REPOSITORY

CHECK = REPOSITORY / "portal/check_styles.py"
OTHER = {"pages/other.css": ".other { color: red }"}


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_styles", CHECK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_style_sheets_of_the_portal_pass() -> None:
    done = subprocess.run([sys.executable, str(CHECK)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "rules",
    [
        ".own .other { color: blue }",
        ".own.wide > td:is(.other, .that) { color: blue }",
        ".other:has(+ .own) { color: blue }",
        "/* .other {} */ .own { margin: 0 }",
        "@media (max-width: 760px) { .own { margin: 0 } }",
        "@keyframes other { from { opacity: 0 } to { opacity: 1 } } .own { animation: other }",
    ],
)
def test_rule_that_begins_with_a_class_of_its_file_is_accepted(check: ModuleType, rules: str) -> None:
    assert check.ownership_problems({**OTHER, "pages/own.css": rules}) == []


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        (".other { margin: 0 }", "other is in pages/other.css and pages/own.css"),
        ("@media (max-width: 760px) { .other { margin: 0 } }", "other is in"),
        (".own, .other .link { margin: 0 }", "other is in pages/other.css and pages/own.css"),
        ("td { margin: 0 }", "pages/own.css: td begins with no class of this file."),
    ],
)
def test_rule_of_another_file_is_named(check: ModuleType, rules: str, problem: str) -> None:
    found = check.ownership_problems({**OTHER, "pages/own.css": rules})
    assert any(one.startswith(problem) for one in found), found


def test_rules_of_elements_are_in_one_folder(check: ModuleType) -> None:
    assert check.ownership_problems({"style/base.css": "td { margin: 0 }"}) == []


def test_unused_classes_are_named(check: ModuleType) -> None:
    sheets = {"pages/own.css": ".own { margin: 0 } .own .none { margin: 0 } .own .c-name { margin: 0 }"}
    sources = {"pages/own.tsx": '<p class="own missing">{rows.map((row) => <b class={`c-${row}`} />)}</p>'}
    assert check.usage_problems(sheets, sources) == [
        "pages/own.css: no element has the class none.",
        "pages/own.tsx: no rule has the class missing.",
    ]
