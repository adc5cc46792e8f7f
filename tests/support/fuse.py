"""FUSE, for tests that mount something."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.external_services import debian, in_ci


def has_fuse() -> bool:
    """Whether this machine can mount with FUSE. In CI it must."""
    if not Path("/dev/fuse").exists():
        if in_ci():
            pytest.fail("/dev/fuse is needed for this test: load the kernel module fuse.")
        return False
    if os.geteuid() != 0:
        debian(["fuse3"], commands=["fusermount3"])
    return True


@pytest.fixture(name="fuse")
def fuse_fixture() -> None:
    if not has_fuse():
        pytest.skip("This machine has no /dev/fuse.")


__all__ = ["fuse_fixture", "has_fuse"]
