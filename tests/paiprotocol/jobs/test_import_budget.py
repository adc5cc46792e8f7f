"""Importing the package is cheap and imports no other package."""

from __future__ import annotations

import subprocess
import sys

import paiprotocol.jobs as protocol


def modules_after(statement):
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_importing_the_package_loads_nothing():
    loaded = modules_after("import paiprotocol.jobs")
    assert {name for name in loaded if name.startswith("paiprotocol.jobs.")} == set()
    assert not loaded & {"yaml", "re", "json", "dataclasses"}


def test_json_jobs_are_read_without_importing_yaml():
    job = (
        '{"protocolVersion":2,"name":"a","type":"job","prerequisites":[{"name":"i","type":"dockerimage","uri":"u"}],'
        '"taskRoles":{"r":{"dockerImage":"i","resourcePerInstance":{"cpu":1,"memoryMB":1,"gpu":0},"commands":["x"]}}}'
    )
    assert "yaml" not in modules_after(f"from paiprotocol.jobs import read_job; read_job({job!r})")


def test_every_exported_name_exists():
    for name in protocol.__all__:
        assert getattr(protocol, name) is not None
    assert set(protocol.__all__) <= set(dir(protocol))


def test_no_other_package_is_imported():
    names = ", ".join(protocol.__all__)
    loaded = modules_after(f"from paiprotocol.jobs import {names}")
    assert not {name.split(".")[0] for name in loaded} & {"openpaisdk", "paicluster", "pairuntime"}
    assert not loaded & {"socket", "asyncio", "http", "sqlalchemy", "msgspec"}
