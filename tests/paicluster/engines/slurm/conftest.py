"""Clusters over the worker's Slurm."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from paicluster.engines.container import client_detection
from paicluster.engines.container.client import Client
from support.external_services import install_podman
from support.server_fixture import Cluster
from support.slurm_cluster import RealSlurm
from support.slurm_jobs import make


@pytest.fixture(scope="module")
def cluster(slurm: RealSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = make(tmp_path_factory.mktemp("over"), slurm)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Client:
    install_podman()
    found = asyncio.run(client_detection.detect(tmp_path_factory.mktemp("podman"), ("podman",)))
    assert isinstance(found, Client), found
    return found
