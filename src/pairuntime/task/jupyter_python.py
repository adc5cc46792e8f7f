"""Python of a task that has the Jupyter packages which a notebook needs.

Jupyter of the task's own environment is used if there is one. Otherwise an environment is built with pip,
once on each machine; it also sees the packages of the task's Python.
"""

import os
import shutil
import subprocess
import sys

from pairuntime.task import python_packages

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Iterable

EXECUTION_PACKAGES = ("nbclient", "nbconvert", "ipykernel")
# Set in the process that was started with the Python found here: it must not search again.
_CHOSEN = "PAI_JUPYTER_PYTHON"
_PROBE = "import importlib.util as u,sys;sys.exit(any(u.find_spec(name) is None for name in sys.argv[1:]))"


class NoJupyterError(Exception):
    """The task has no Jupyter, and none can be installed."""


def ensure_packages(packages: "Iterable[str]", argv: "list[str]") -> "None":
    """Return if this Python has the packages; otherwise run the same command with one that has them."""
    packages = tuple(packages)
    if os.environ.pop(_CHOSEN, "") or _has_packages_here(packages):
        _expose_data_folders(packages)
        return
    python = shutil.which("python") or ""  # this one may be python3, and that of another environment
    if python and _has_packages(python, packages):
        _restart(python, argv)
    _restart(_built_python(packages), argv)


def _restart(python: "str", argv: "list[str]") -> "None":
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[_CHOSEN] = python
    python = os.path.abspath(python)
    os.execv(python, [python, os.path.abspath(sys.argv[0])] + argv)


def _has_packages_here(packages: "tuple[str, ...]") -> "bool":
    from importlib.util import find_spec

    return all(find_spec(name) is not None for name in packages)


def _expose_data_folders(packages: "tuple[str, ...]") -> "None":
    """Let Jupyter find templates, kernels and pages of packages that this environment sees in another one.

    It searches below the prefix of the running Python, and they are below that of the packages.
    """
    from importlib.util import find_spec

    folders = os.environ.get("JUPYTER_PATH", "").split(os.pathsep)
    for name in packages:
        spec = find_spec(name)
        folder = os.path.dirname(spec.origin) if spec and spec.origin else ""
        # PREFIX/lib/pythonX.Y/site-packages/PACKAGE
        prefix = os.path.normpath(os.path.join(folder, *[os.pardir] * 4))
        data = os.path.join(prefix, "share", "jupyter")
        if prefix != sys.prefix and data not in folders and os.path.isdir(data):
            folders.append(data)
    if any(folders):
        os.environ["JUPYTER_PATH"] = os.pathsep.join(folder for folder in folders if folder)


def _has_packages(python: "str", packages: "tuple[str, ...]") -> "bool":
    try:
        return subprocess.call([python, "-c", _PROBE] + list(packages), stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def _built_python(packages: "tuple[str, ...]") -> "str":
    try:
        folder = python_packages.environment(sys.executable, list(packages))
    except (OSError, subprocess.CalledProcessError) as e:
        raise NoJupyterError(
            "This task has no Jupyter, and it could not be installed: %s Install it where the job runs, or "
            "use an image that has it: pip install %s" % (python_packages.reason(e), " ".join(packages))
        )
    return os.path.join(folder, "bin", "python")
