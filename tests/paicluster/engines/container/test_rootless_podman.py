"""The container engine keeps the contract by an ordinary user's podman."""

from __future__ import annotations

import os

import pytest

from support import unprivileged_user
from support.engine_rig import missing
from support.external_services import debian

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.xdist_group("unprivileged-user")]


def test_container_engine_contract_as_an_unprivileged_user() -> None:
    if os.geteuid() != 0:
        missing("root, to change the account")
    debian(
        ["podman", "runc", "slirp4netns", "uidmap", "busybox-static"],
        commands=["podman", "runc", "slirp4netns", "newuidmap", "busybox"],
    )
    # On cgroup v1 podman without root cannot limit memory: two tests are skipped.
    output = unprivileged_user.run(["container/test_container_engine_contract.py"], words=["-x", "-rs"])
    assert " passed" in output
    assert "2 skipped" in output, output[-3000:]
