"""Workflows of GitHub Actions, which nothing here runs: their form, and that their commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from support.paths import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
MAKE = re.compile(r"^make ([a-z-]+)", re.MULTILINE)


def commands(workflow: Path) -> list[str]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def made_targets() -> set[str]:
    return {name for workflow in WORKFLOWS for line in commands(workflow) for name in MAKE.findall(line)}


@pytest.mark.slow
def test_workflows_match_the_schema_of_github() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_mistake_in_a_workflow_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs-at:", 1))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, str(wrong)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "runs-at" in done.stdout, done.stdout + done.stderr


def test_workflows_run_targets_of_make() -> None:
    assert made_targets() <= TARGETS
    assert {"lint", "test", "test-fast", "dist"} <= made_targets()


def test_tests_run_on_every_python_that_is_claimed() -> None:
    jobs = yaml.safe_load((REPOSITORY / ".github/workflows/checks.yml").read_text())["jobs"]
    versions = jobs["tests"]["strategy"]["matrix"]["python-version"]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={versions[0]}"
    assert versions == ["3.11", "3.12", "3.13", "3.14"]


def test_actions_are_those_of_github() -> None:
    """Others would run code of their authors with the token of the repository."""
    used = re.findall(r"uses: (\S+)", "".join(workflow.read_text() for workflow in WORKFLOWS))
    assert used and all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in used)
