"""Files that clients write through a descriptor: one thread watches them, however often they come and go."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from paicluster.files.transfer.passed_descriptors import PassedDescriptors


def watchers() -> int:
    return sum(thread.name == "passed-descriptors" for thread in threading.enumerate())


def test_one_thread_watches_while_files_come_and_go(tmp_path: Path) -> None:
    passed = PassedDescriptors(interval_s=0)
    upload: Any = SimpleNamespace(user=SimpleNamespace(name="alice"), reject=lambda: None)
    before = watchers()
    most = 0
    for number in range(300):
        fd = os.open(tmp_path / str(number % 10), os.O_RDWR | os.O_CREAT)
        while True:
            try:
                passed.add(upload, fd, 100)
                break
            except Exception:  # as many as a user may have
                pass
        os.close(fd)
        most = max(most, watchers() - before)
    assert most == 1
