"""Command lines of the hosts of exec sessions and of forwarders, processes of the server's machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pairuntime

# From the package, not from the installed archive: its byte code is cached, which saves a third of the start.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from pairuntime.__main__ import main; sys.exit(main(sys.argv[1:]))"
)


def host_in_task(folder: Path) -> list[str]:
    """A host that enters the task of this attempt folder itself."""
    return [*_runtime(), "session", "task", str(folder)]


def host_with_command(prefix: Sequence[str]) -> list[str]:
    """A host that enters the task by this command line, to which the session's command is appended."""
    return [*_runtime(), "session", "command", *prefix]


def local_forwarder(folder: Path, *, network_of: str = "") -> list[str]:
    """A forwarder of the task of this attempt folder, a process of this machine.

    ``network_of``: variable of a process whose network it enters; by default it stays in the server's.
    """
    return [*_runtime(), "forward", "local", str(folder), *([network_of] if network_of else [])]


def _runtime() -> list[str]:
    packages = Path(pairuntime.__file__).parent.parent
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(packages)]
