"""The contract suite without root privileges: in delegated cgroups, and without cgroups."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import unprivileged_user
from support.engine_rig import missing

# Contract tests that the process engine skips: it has no images, and limits depend on the machine.
_NOT_FOR_PROCESSES = (
    "without_python_and_bash",
    "out_of_memory",
    "memory_of_a_session",
    "missing_limits",
)


@pytest.fixture
def delegated() -> Iterator[list[Path]]:
    """A cgroup of each version that belongs to the unprivileged user, as an administrator delegates it."""
    if os.geteuid() != 0:
        missing("root, to change the account")
    parents = [_mounted("cgroup2"), _mounted("cgroup", "pids")]
    groups = [parent / f"pai-delegated-{os.getpid()}" for parent in parents]
    for group in groups:
        group.mkdir()
        for path in (group, *group.iterdir()):
            os.chown(path, unprivileged_user.UID, unprivileged_user.UID)
    yield groups
    for group in groups:
        deadline = time.monotonic() + 90
        for path in sorted(group.rglob("*"), reverse=True):
            if path.is_dir():
                path.rmdir()
        while group.exists() and time.monotonic() < deadline:
            try:
                group.rmdir()
            except OSError:
                time.sleep(0.02)


def _mounted(kind: str, option: str = "") -> Path:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, found, options, *_ = line.split()
        if found == kind and (not option or option in options.split(",")):
            return Path(where)
    missing(f"a {kind} file system {option}".rstrip())
    raise AssertionError


@pytest.mark.slow
@pytest.mark.xdist_group("unprivileged-user")
def test_process_engine_contract_as_an_unprivileged_user(delegated: list[Path]) -> None:
    # Without the full-disk tests: a small disk needs a mount, and that needs root. Nothing else may be
    # skipped.
    output = unprivileged_user.run(
        (
            "process/test_process_engine_contract.py",
            "process/test_process_engine_recovery.py",
            "process/test_zygote_and_prelaunch.py",
        ),
        words=["-k", f"not ({' or '.join(_NOT_FOR_PROCESSES)})", "-rs"],
        groups=delegated,
    )
    assert " passed" in output
    assert "skipped" not in output, output[-3000:]
