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
    return all(map(is_installed, packages))


def is_installed(package: "str") -> "bool":
    """Whether this Python has a package; nothing is imported."""
    from importlib.util import find_spec

    return find_spec(package) is not None


def _expose_data_folders(packages: "tuple[str, ...]") -> "None":
    """Let Jupyter find what belongs to packages that this environment sees in another one: templates, pages.

    It searches below the prefix of the running Python, and they are below that of the packages.
    """
    from importlib.util import find_spec

    for name in packages:
        spec = find_spec(name)
        folder = os.path.dirname(spec.origin) if spec and spec.origin else ""
        # PREFIX/lib/pythonX.Y/site-packages/PACKAGE
        prefix = os.path.normpath(os.path.join(folder, *[os.pardir] * 4))
        if prefix == sys.prefix:
            continue
        _append_path("JUPYTER_PATH", os.path.join(prefix, "share", "jupyter"))
        _append_path("JUPYTER_CONFIG_PATH", os.path.join(prefix, "etc", "jupyter"))
        lab = os.path.join(prefix, "share", "jupyter", "lab")
        if os.path.isdir(lab):
            os.environ.setdefault("JUPYTERLAB_DIR", lab)


def _append_path(variable: "str", folder: "str") -> "None":
    folders = [path for path in os.environ.get(variable, "").split(os.pathsep) if path]
    if os.path.isdir(folder) and folder not in folders:
        os.environ[variable] = os.pathsep.join(folders + [folder])


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
