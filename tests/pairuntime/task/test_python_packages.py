"""Environments with Python packages, as a task builds them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pairuntime.task import python_packages
from support.wheels import make_wheel

pytestmark = pytest.mark.slow


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_environment_has_a_pip_that_installs_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        make_wheel(tmp_path, name, "1.0", {f"{name}.py": "x = 42\n"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "it's a cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    environment = Path(python_packages.environment(sys.executable, ["first"]))
    assert output(environment / "bin/python", "-c", "import first; print(first.x)") == "42\n"
    for pip in ("pip", "pip3"):
        assert output(environment / "bin" / pip, "--version").startswith("pip ")
    output(environment / "bin/pip", "install", "second")
    [packages] = environment.glob("lib/python*/site-packages")
    assert {"first.py", "second.py"} <= {path.name for path in packages.iterdir()}
    # The one that its Python sees: a copy takes several seconds.
    assert not (packages / "pip").exists()


def test_python_without_pip_gets_one(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python_packages._add_pip(str(tmp_path / "bare/bin/python"))
    assert str(tmp_path / "bare") in output(tmp_path / "bare/bin/pip", "--version")
