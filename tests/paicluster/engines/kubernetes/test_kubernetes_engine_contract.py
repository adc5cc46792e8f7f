"""Engine contract of the Kubernetes engine, with pods made of namespaces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import external_services, namespace_kubernetes
from support.engine_contract.launch_contract import LaunchContract
from support.engine_contract.log_contract import LogContract
from support.engine_contract.stop_contract import StopContract
from support.engine_rig import Driven
from support.kubernetes_rig import KubernetesRig

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubernetes-contract")]


# Not yet: sessions and usage.
class TestKubernetesEngine(LaunchContract, StopContract, LogContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[KubernetesRig]:
        if os.geteuid() != 0:
            external_services.missing("root, to make namespaces")
        (tmp_path / "pods").mkdir()
        (tmp_path / "home").mkdir()
        # Tasks see the folder of the test under its own name.
        with namespace_kubernetes.running(tmp_path / "pods", shared=tmp_path) as cluster:
            kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
            made = KubernetesRig(tmp_path / "home", kubeconfig, namespace_kubernetes.NODE)
            yield made
            made.close()

    async def test_missing_limits_give_a_notice(self, rig: KubernetesRig) -> None:  # type: ignore[override]
        """Not applicable: Kubernetes limits every container."""

    async def test_ports_in_use_are_not_free(self, rig: KubernetesRig) -> None:  # type: ignore[override]
        """Not applicable: a pod has an address of its own."""
        async with Driven(rig) as driven:
            assert driven.engine.ports_free(rig.node, [80], non_ephemeral=False)
