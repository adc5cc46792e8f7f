"""Host of exec sessions as a process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from paicluster.engines.common import session_host
from support.import_budget import HEAVY


def test_host_imports_little(tmp_path: Path) -> None:
    """Every command waits for the start of its host."""
    python, *arguments = session_host.host_in_task(tmp_path)
    ran = subprocess.run(
        [python, "-X", "importtime", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "pairuntime.session.host" in imported
    assert not imported & (HEAVY | {"ctypes", "enum", "re", "json.decoder", "socket", "struct", "termios"})
