"""Advice about a module that a job misses and this machine has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from openpaisdk.jobs.local_modules import local_advice


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages; the current folder is another one."""
    folder = tmp_path / "lib/site-packages"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return folder


def install(packages: Path, module: str, direct_url: str = "") -> None:
    (packages / f"{module}.py").touch()
    info = packages / f"some_{module}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: some-{module}\nVersion: 1.5\n")
    (info / "RECORD").write_text(f"{module}.py,,\n")
    if direct_url:
        (info / "direct_url.json").write_text(direct_url)


def test_package_of_an_index_is_named_with_its_version(packages: Path) -> None:
    install(packages, "ofindex")
    advice = local_advice("ofindex.part")
    assert f"at {packages / 'ofindex.py'}: --pip-installs some-ofindex==1.5 installs this version" in advice


@pytest.mark.parametrize(
    ("direct_url", "shown"),
    [
        ('{"url": "https://me:pass@git.example/x.git", "vcs_info": {}}', "from https://git.example/x.git: "),
        ('{"url": "file:///home/me/x", "dir_info": {}}', "from file:///home/me/x: "),
        ("not JSON", "from a path or URL: "),
    ],
)
def test_package_of_an_address_is_not_looked_for_in_an_index(
    packages: Path, direct_url: str, shown: str
) -> None:
    install(packages, "direct", direct_url)
    advice = local_advice("direct")
    assert shown in advice and "--pip-installs" not in advice and "pass" not in advice


def test_module_of_the_current_folder_is_sent(packages: Path) -> None:
    Path("mine").mkdir()
    Path("mine/__init__.py").touch()
    assert local_advice("mine").endswith("/project/mine: add --sources mine.")


def test_module_that_only_the_python_of_the_path_has_is_found(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/elsewhere.py").touch()
    python = tmp_path / "bin/python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/other exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert f"elsewhere is on this machine, at {tmp_path}/other/elsewhere.py: " in local_advice("elsewhere")


def test_folder_of_data_is_no_module(packages: Path) -> None:
    """Weights & Biases writes its logs to a folder of its name."""
    Path("wandb/run").mkdir(parents=True)
    Path("wandb/run/output.log").touch()
    (packages / "google/one").mkdir(parents=True)
    assert local_advice("wandb") == local_advice("google.two") == ""


@pytest.mark.parametrize("module", ["no_such_module_here", "sys", "itertools", "json", "x.y", "__main__"])
def test_module_that_is_not_here_or_belongs_to_python_has_no_advice(packages: Path, module: str) -> None:
    assert local_advice(module) == ""
