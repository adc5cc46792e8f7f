"""Environments with Python packages, as a task builds them."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pairuntime.task import python_packages
from support.wheels import WITHOUT_COMPARISON, make_wheel

pytestmark = pytest.mark.slow
PIP_FOLDER = Path(str(find_spec("pip").origin)).parents[1]  # type: ignore[union-attr]


@pytest.fixture
def package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of wheels that pip installs from; environments are cached below the test's folder."""
    for name in ("first", "second"):
        make_wheel(tmp_path, name, "1.0", {f"{name}.py": "x = 42\n"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "it's a cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv(*WITHOUT_COMPARISON.split("="))
    return tmp_path


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.usefixtures("package_index")
def test_environment_has_a_pip_that_installs_into_it() -> None:
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


def python_with_editable_packages(folder: Path) -> Path:
    """Python of a virtual environment with two editable packages: one by its path, one by code that runs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    [packages] = (folder / "venv").glob("lib/python*/site-packages")
    for name in ("by_path", "by_code"):
        (folder / name).mkdir()
        (folder / name / f"{name}.py").write_text("x = 42\n")
    (packages / "by_path.pth").write_text(f"{folder / 'by_path'}\n")
    (packages / "by_code.pth").write_text("import by_code_finder; by_code_finder.install()\n")
    (packages / "by_code_finder.py").write_text(
        "import sys\nruns = 0\ndef install():\n    global runs\n    runs += 1\n"
        f"    sys.path.append({str(folder / 'by_code')!r})\n"
    )
    # pip, which a virtual environment has in general, is that of the Python that runs the tests.
    (packages / "pip.pth").write_text(f"{PIP_FOLDER}\n")
    return folder / "venv/bin/python"


def test_editable_packages_are_seen_in_an_environment_and_in_one_that_is_built_on_it(
    package_index: Path,
) -> None:
    program = "import by_path, by_code, by_code_finder; print(by_path.x, by_code.x, by_code_finder.runs)"
    python: str | Path = python_with_editable_packages(package_index)
    for package in ("first", "second"):
        python = Path(python_packages.environment(str(python), [package])) / "bin/python"
        assert output(python, "-c", program) == "42 42 1\n"
        assert output(python, "-c", "import first; print(first.x)") == "42\n"


def test_environment_of_a_python_without_virtual_environment_runs_code_of_pth_files_once(
    package_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = str(Path(sys.base_prefix) / "bin/python3")
    # Its own packages are read by Python, in each environment: those of the user stand for them.
    monkeypatch.setenv("PYTHONUSERBASE", str(package_index / "user"))
    packages = Path(output(base, "-c", "import site; print(site.getusersitepackages())").strip())
    packages.mkdir(parents=True)
    (packages / "counted.py").write_text("runs = 0\ndef run():\n    global runs\n    runs += 1\n")
    (packages / "counted.pth").write_text("import counted; counted.run()\n")
    environment = Path(python_packages.environment(base, ["first"]))
    assert output(environment / "bin/python", "-c", "import first, counted; print(counted.runs)") == "1\n"


def test_environment_that_an_earlier_version_cached_is_built_again(
    package_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = python_with_editable_packages(package_index)
    with monkeypatch.context() as earlier:
        earlier.setattr(python_packages, "_LAYOUT", "1")
        earlier.setattr(python_packages, "_share_sites", lambda python, venv_python: None)
        earlier.setattr(python_packages, "_add_pip", lambda python: None)
        earlier.setenv("PYTHONPATH", str(PIP_FOLDER))
        python_packages.environment(str(python), ["first"])
    environment = Path(python_packages.environment(str(python), ["first"]))
    assert output(environment / "bin/python", "-c", "import by_path; print(by_path.x)") == "42\n"
    assert python_packages.environment(str(python), ["first"]) == str(environment)
