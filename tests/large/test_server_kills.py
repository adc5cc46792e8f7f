"""Servers that are killed dozens of times: rare races show only in many repetitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.server_fixture import Cluster, new_cluster_fixture  # noqa: F401
from support.server_kills import kill_after_acceptance, kill_under_load

pytestmark = pytest.mark.slow


def test_dozens_of_server_kills_under_load(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    kill_under_load(new_cluster().start(), tmp_path / "ran", 40)


def test_dozens_of_kills_right_after_a_job_is_accepted(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    kill_after_acceptance(new_cluster().start(), tmp_path / "ran", 25)
