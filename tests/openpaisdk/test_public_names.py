"""Names that users import stay where they are, and are the same objects as those inside the product."""

import pickle
import re
from importlib.util import find_spec

import pytest

import openpaisdk.errors
import openpaisdk.protocol
import paiprotocol.errors
import paiprotocol.jobs
from support.paths import REPOSITORY

PAGES = [REPOSITORY / "README.md", *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("examples/**/*.py")]
# Names that need a package which the product does not install.
_FRAMEWORKS = {
    "LightningLogger": "lightning",
    "KerasCallback": "keras",
    "TransformersCallback": "transformers",
}
STATEMENT = re.compile(
    r"^\s*from (openpaisdk[\w.]*) import ([\w, ]+)$|^\s*import (openpaisdk[\w.]*)", re.MULTILINE
)


def documented_imports() -> set[tuple[str, str]]:
    found = set()
    for page in PAGES:
        for module, names, whole in STATEMENT.findall(page.read_text()):
            found |= {(module or whole, name.split()[0]) for name in (names or "__name__").split(",")}
    return found


def test_every_documented_import_works() -> None:
    imports = documented_imports()
    assert ("openpaisdk.protocol", "JobBuilder") in imports and len(imports) > 15
    for module, name in imports:
        package = _FRAMEWORKS.get(name)
        if package is None or find_spec(package):
            exec(f"from {module} import {name}", {})
            continue
        with pytest.raises(ImportError, match=f"{name} needs the package {package}, which is not installed"):
            exec(f"from {module} import {name}", {})


def test_errors_are_the_same_under_both_names() -> None:
    classes = [value for value in vars(paiprotocol.errors).values() if isinstance(value, type)]
    assert len(classes) > 12
    for each in classes:
        assert getattr(openpaisdk.errors, each.__name__) is each
        assert each.__module__ == "openpaisdk.errors", "shown in tracebacks, and named in pickled results"
    again = pickle.loads(pickle.dumps(paiprotocol.errors.NotFound("no job")))
    assert type(again) is openpaisdk.errors.NotFound and str(again) == "no job"


def test_jobs_are_the_same_under_both_names() -> None:
    assert openpaisdk.protocol.__all__ == paiprotocol.jobs.__all__
    for name in openpaisdk.protocol.__all__:
        assert getattr(openpaisdk.protocol, name) is getattr(paiprotocol.jobs, name)
    assert set(openpaisdk.protocol.__all__) <= set(dir(openpaisdk.protocol))
