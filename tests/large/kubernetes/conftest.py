"""One cluster of Kubernetes with one node, and the rig of the engine contract on it, for all tests here."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.container_images import NO_SHELL, PLAIN, WITH_BASH, WITH_PYTHON
from support.coroutine_tests import pytest_pyfunc_call  # noqa: F401
from support.kubernetes_cluster import RealKubernetes
from support.kubernetes_rig import KubernetesRig
from support.server_fixture import eventually


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKubernetes]:
    # Paths of sockets and of mounts are limited; those of pytest are long.
    cluster = RealKubernetes(tmp_path_factory.mktemp("k8s"))
    try:
        cluster.start()
        for image in (WITH_BASH, WITH_PYTHON, PLAIN, NO_SHELL):
            cluster.add_image(image)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def rig(kubernetes: RealKubernetes, tmp_path: Path) -> Iterator[KubernetesRig]:
    claim = f"test-{uuid.uuid4().hex[:12]}"
    kubernetes.add_folder(claim, tmp_path)
    (tmp_path / "home").mkdir()
    made = KubernetesRig(
        tmp_path / "home", kubernetes.kubeconfig, kubernetes.nodes[0], kubernetes.host, (tmp_path, claim)
    )
    made.many = 5
    yield made
    made.close()
    # An engine that a test closes leaves what its next server would delete.
    for kind, names in (
        ("pods", [pod["metadata"]["name"] for pod in kubernetes.pods()]),
        ("secrets", kubernetes.secrets()),
    ):
        for name in names:
            with contextlib.suppress(RuntimeError):  # gone meanwhile
                kubernetes.request("DELETE", f"/api/v1/namespaces/default/{kind}/{name}?gracePeriodSeconds=0")
    eventually(lambda: not kubernetes.pods(), "the end of all pods")
