"""``--python`` selects the interpreter of a job, ``container-sdk-branch`` the SDK that it installs."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.wheels import WITHOUT_COMPARISON, make_wheel

SHOW = "import sys; print(sys.executable)"


@pytest.fixture(scope="module", name="interpreter")
def interpreter_fixture(tmp_path_factory) -> Path:
    """A Python in a folder whose name needs quoting; like on Debian, it is called only python3."""
    folder = tmp_path_factory.mktemp("it's $a") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    # As it is in most environments; its installation takes five seconds.
    [packages] = folder.glob("lib/python*/site-packages")
    shutil.copytree(Path(str(find_spec("pip").origin)).parent, packages / "pip", copy_function=os.link)
    (folder / "bin/python").unlink()
    (folder / "bin/python3").unlink()
    (folder / "bin/python3").symlink_to(Path(sys.executable).resolve())
    return folder / "bin/python3"


def run(user, *words: str):
    return user.pai("sub", "--mem", "256m", "-f", "--env", WITHOUT_COMPARISON, *words)


@pytest.mark.slow
def test_every_name_of_python_is_the_selected_one(user, interpreter) -> None:
    user.write(x__py=SHOW, y__py=f"#!/usr/bin/env python3\n{SHOW}\n")
    line = f"python x.py; python3 x.py; chmod +x y.py; ./y.py; cd /; python -c '{SHOW}'; pip --version"
    done = run(user, "--python", str(interpreter), line)
    assert done.status == 0, done
    *lines, pip = done.out.splitlines()
    assert lines == [str(interpreter)] * 4
    assert pip.startswith("pip ") and str(interpreter.parent.parent) in pip


@pytest.mark.slow
def test_quoted_command_uses_the_selected_python(user, interpreter) -> None:
    user.write(x__py=SHOW)
    done = run(user, "--python", str(interpreter), "--", "python", "x.py")
    assert done.status == 0 and done.out.strip() == str(interpreter), done


def test_python_of_the_sources_may_be_selected(user) -> None:
    user.write(mine="#!/bin/sh\necho my own: $1\n")
    (user.project / "mine").chmod(0o755)
    done = run(user, "--python", "./mine", "cd /; python x.py")
    assert done.status == 0 and done.out == "my own: x.py\n", done


@pytest.mark.slow
def test_packages_are_installed_for_the_selected_python(user, interpreter) -> None:
    make_wheel(user.project, "seen_here", "1.0", {"seen_here.py": "VALUE = 41"})
    query = "import seen_here, sys; print(seen_here.VALUE + 1, sys.prefix != sys.base_prefix)"
    wheel = "./seen_here-1.0-py3-none-any.whl"
    done = run(
        user, "--python", str(interpreter), "--pip", wheel, f'python3 -c "{query}"; python -m pip list'
    )
    assert done.status == 0 and "42 True\n" in done.out and "seen_here" in done.out.replace("-", "_"), done


@pytest.mark.slow
def test_changed_file_is_installed_again(user) -> None:
    # An environment is reused for the same packages; a path says nothing about what is behind it.
    for version in ("1", "2"):
        (user.project / "w").mkdir(exist_ok=True)
        wheel = make_wheel(user.project / "w", "changing", "1.0", {"changing.py": f"VALUE = {version}"})
        done = run(user, "--pip", str(wheel), "python -c 'import changing; print(changing.VALUE)'")
        assert done.status == 0 and done.out.splitlines()[-1] == version, done


@pytest.mark.parametrize("python", ["/none/python3", "python-that-is-not-there", "/tmp"])
def test_missing_python_is_the_cause_of_failure(user, python: str) -> None:
    done = user.pai("sub", "--no-sources", "--mem", "64m", "--wait", "--python", python, "--", "python", "-V")
    assert done.status == 3, done
    status = user.pai("job-status", done.out.strip()).out
    assert "The Python that the job selects (--python) does not exist where the task runs" in status
    assert f"The task has no Python {python}" in status
    assert "Check the path in the image" in status


def test_preview_shows_the_sdk_that_is_installed(user) -> None:
    for value, requirement in (
        ("0.4.1", "openpaisdk==0.4.1"),
        (">=0.4,<0.6", "'openpaisdk>=0.4,<0.6'"),
        ("/opt/openpaisdk.whl", "/opt/openpaisdk.whl"),
        ("https://example.org/openpaisdk.whl", "https://example.org/openpaisdk.whl"),
        ("git+https://example.org/sdk@next", "git+https://example.org/sdk@next"),
    ):
        user.pai("set", f"container-sdk-branch={value}")
        shown = user.pai("sub", "--preview", "--no-sources", "true").out
        assert f"pai-runtime packages {requirement}" in shown, shown
        assert f"python -m pip install -U {requirement}" in shown
    user.pai("unset", "container-sdk-branch")
    assert "pip" not in user.pai("sub", "-j", "plain", "--preview", "--no-sources", "true").out


@pytest.mark.slow
def test_sdk_of_a_path_is_installed_into_the_task(user) -> None:
    from openpaisdk import __version__

    for version in ("99.1", __version__):  # also where the task sees an SDK of the same version
        init = f"__version__ = {version!r}\nORIGIN = 'the wheel'\n"
        wheel = make_wheel(user.project, "openpaisdk", version, {"openpaisdk/__init__.py": init})
        user.pai("set", f"container-sdk-branch={wheel}")
        done = run(user, "python -c 'import openpaisdk as o; print(o.__version__, o.ORIGIN)'")
        assert done.status == 0 and done.out.splitlines()[-1] == f"{version} the wheel", done
