"""No public name of the SDK hides one of its modules, whatever was imported before."""

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

PACKAGES = ("openpaisdk", "openpaisdk.functions", "openpaisdk.data")


def modules_of(package: ModuleType) -> set[str]:
    return {module.name for module in pkgutil.iter_modules(package.__path__)}


@pytest.mark.parametrize("name", PACKAGES)
def test_no_public_name_is_that_of_a_module(name: str) -> None:
    package = importlib.import_module(name)
    shadowed = {
        public
        for public in package.__all__
        if public in modules_of(package) and not isinstance(getattr(package, public), ModuleType)
    }
    assert shadowed == set()


def test_functions_are_those_in_whatever_order_they_are_imported() -> None:
    """``openpaisdk.submit`` is a function, ``openpaisdk.functions`` and ``openpaisdk.data`` are packages."""
    program = (
        "import openpaisdk\n"
        "names = 'map', 'submit', 'remote', 'Executor', 'Job'\n"
        "functions = tuple(getattr(openpaisdk, name) for name in names)\n"
        "import openpaisdk.functions, openpaisdk.data, openpaisdk.jobs, openpaisdk.cluster\n"
        "import openpaisdk.functions.executor, openpaisdk.functions.job_future\n"
        "import openpaisdk.cli.submission.submit\n"
        "from openpaisdk import Executor, Job, map, remote, submit\n"
        "assert functions == (map, submit, remote, Executor, Job)\n"
        "assert all(callable(function) for function in functions)\n"
        "assert openpaisdk.functions.submit is submit and openpaisdk.functions.remote is remote\n"
        "from types import ModuleType\n"
        "for module in (openpaisdk.functions, openpaisdk.data, openpaisdk.jobs, openpaisdk.cluster):\n"
        "    assert isinstance(module, ModuleType), module\n"
        "assert list(__builtins__.map(str, [1])) == ['1']\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
