"""The lock on a cluster's home."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from paicluster.server.home_lock import HomeInUse, lock_home
from support.server_fixture import DEADLINE_S


def test_lock_that_is_released_in_time_is_taken(tmp_path: Path) -> None:
    """As by what a killed server was about to start."""
    first = lock_home(tmp_path)
    with pytest.raises(HomeInUse, match="Another server is running"):
        lock_home(tmp_path, timeout_s=0.05)
    threading.Timer(0.1, first.close).start()
    with lock_home(tmp_path, timeout_s=DEADLINE_S), pytest.raises(HomeInUse):
        lock_home(tmp_path)
