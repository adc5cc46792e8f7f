"""One Slurm for all tests of this room, and coroutines as tests."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for _room in ("engines", "cluster", "people"):
    sys.path.insert(0, str(Path(__file__).parent.parent / _room))

pytest.register_assert_rewrite("contract", "driving")

from real_slurm import RealSlurm, running_slurm  # noqa: E402
from served import Cluster  # noqa: E402
from whole_jobs import make  # noqa: E402

from outside import debian  # noqa: E402
from paicluster.engines.container import finding  # noqa: E402
from paicluster.engines.container.client import Client  # noqa: E402


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    given = {name: value for name, value in pyfuncitem.funcargs.items() if name in wanted}
    asyncio.run(pyfuncitem.obj(**given))
    return True


@pytest.fixture(scope="session")
def slurm() -> Iterator[RealSlurm]:
    with running_slurm() as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(made.conf))
        yield made


@pytest.fixture(scope="module")
def cluster(slurm: RealSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = make(tmp_path_factory.mktemp("over"), slurm)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Client:
    debian(["podman", "runc", "netavark", "busybox-static"], commands=["podman", "busybox"])
    found = asyncio.run(finding.find(tmp_path_factory.mktemp("podman"), ("podman",)))
    assert isinstance(found, Client), found
    return found
