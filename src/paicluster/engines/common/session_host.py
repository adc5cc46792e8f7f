"""Command line of the host of an exec session, a process of the server's machine."""

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
    return [*_host(), "task", str(folder)]


def host_with_command(prefix: Sequence[str]) -> list[str]:
    """A host that enters the task by this command line, to which the session's command is appended."""
    return [*_host(), "command", *prefix]


def _host() -> list[str]:
    packages = Path(pairuntime.__file__).parent.parent
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(packages), "session"]
