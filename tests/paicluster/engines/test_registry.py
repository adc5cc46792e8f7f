"""Registration of engine kinds, and the check of what jobs say to them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from paicluster.engines.registry import ENGINE_KINDS, LOCAL_KINDS, check_job_options
from paiprotocol.errors import ProtocolError
from paiprotocol.jobs.extras import ADDITIONS, additions


def test_every_kind_is_registered_by_its_package() -> None:
    for name, kind in ENGINE_KINDS.items():
        assert kind.name == name
        module = importlib.import_module(f"paicluster.engines.{name}.kind")
        assert kind is getattr(module, name.upper())


def test_engine_class_schedules_itself_as_its_kind_says() -> None:
    engines = {
        "process": ("process.engine", "ProcessEngine"),
        "container": ("container.engine", "ContainerEngine"),
        "slurm": ("slurm.engine", "SlurmEngine"),
        "kubernetes": ("kubernetes.engine", "KubernetesEngine"),
    }
    assert engines.keys() == ENGINE_KINDS.keys()
    for name, (module, cls) in engines.items():
        engine = getattr(importlib.import_module(f"paicluster.engines.{module}"), cls)
        assert getattr(engine, "schedules_itself", False) == ENGINE_KINDS[name].schedules_itself
        assert (name in LOCAL_KINDS) != ENGINE_KINDS[name].schedules_itself


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slurm": ["constraint"]}, "extras.openpaisdk.slurm[0]: expected one option in one word"),
        ({"slurm": {"constraint": "a100"}}, "extras.openpaisdk.slurm: expected a list"),
        ({"slurn": ["--hold"]}, 'extras.openpaisdk.slurn: unknown key; did you mean "slurm"?'),
        ({"process": ["--hold"]}, "extras.openpaisdk.process: unknown key"),
    ],
)
def test_job_options_that_no_engine_takes_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ProtocolError) as rejected:
        check_job_options(options)
    assert message in rejected.value.message


def test_job_options_of_an_engine_pass_through_the_protocol() -> None:
    extras = {"openpaisdk": {"slurm": ["--hold"], "timeLimit": 5}}
    assert ADDITIONS.accepts(extras["openpaisdk"])
    assert dict(additions(extras).engine_options) == {"slurm": ["--hold"]}
    check_job_options(additions(extras).engine_options)


@pytest.mark.parametrize("typo", [{"timeLimt": 5}, {"outputz": ["a"]}, {"slurm": "--hold"}])
def test_misspelt_addition_is_no_engine_option(typo: dict[str, Any]) -> None:
    assert not ADDITIONS.accepts(typo)
