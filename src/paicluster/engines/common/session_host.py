"""Command lines of the hosts of exec sessions and of forwarders, processes of the server's machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pairuntime
from pairuntime.session import sftp_server
from pairuntime.task import job_ssh

# Set by SSH clients in tasks of the same job: which task they mean.
SSH_TASK_VARIABLE = job_ssh.TASK_VARIABLE

# From the package, not from the installed archive: its byte code is cached, which saves a third of the start.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from pairuntime.__main__ import main; sys.exit(main(sys.argv[1:]))"
)

_IN_SHELL = (
    'if [ -n "$SHELL" ] && [ -x "$SHELL" ]; then exec "$SHELL" -c "$0"; fi; '
    'if command -v bash >/dev/null 2>&1; then exec bash -c "$0"; fi; exec sh -c "$0"'
)
# The source travels with the command: nothing has to be in the image, and nothing is left in the task.
_SFTP = (
    "for python in python3 python; do "
    'if "$python" -c "import sys; sys.exit(sys.version_info < (3, 6))" 2>/dev/null; then '
    'exec "$python" -I -S -c "$0"; fi; done; '
    "for server in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec; do "
    'if [ -x "$server/sftp-server" ]; then exec "$server/sftp-server"; fi; done; '
    'echo "scp and sftp need Python 3 or an sftp-server in the image of the task; it has neither." >&2; '
    # scp ends its ssh with the end of the output: the sentence must have been printed before.
    "sleep 1; exit 127"
)


def host_in_task(folder: Path) -> list[str]:
    """A host that enters the task of this attempt folder itself."""
    return [*_runtime(), "session", "task", str(folder)]


def host_with_command(prefix: Sequence[str]) -> list[str]:
    """A host that enters the task by this command line, to which the session's command is appended."""
    return [*_runtime(), "session", "command", *prefix]


def host_of_node(prefix: Sequence[str], account: tuple[int, int] | None = None) -> list[str]:
    """A host that enters a task on another machine by this command line, which passes signals on.

    ``account``: user and group to which the command line changes; None: those of the server.
    """
    return [*_runtime(), "session", "node", _account_text(account), *prefix]


def shell_command(line: str) -> list[str]:
    """Command that runs a line in the shell of the task, as sshd does for the line of a client."""
    return ["/bin/sh", "-c", _IN_SHELL, line]


def sftp_command() -> list[str]:
    """Command that serves the task's files by SFTP: our server, where there is a Python to run it."""
    return ["/bin/sh", "-c", _SFTP, Path(sftp_server.__file__).read_text()]


def local_forwarder(folder: Path, pid_command: Sequence[str] = ()) -> list[str]:
    """A forwarder of the task of this attempt folder, a process of this machine.

    ``pid_command``: prints a process whose network it enters; by default it stays in the server's.
    """
    return [*_runtime(), "forward", "local", str(folder), *pid_command]


def remote_forwarder(
    folder: Path, node_command: Sequence[str], account: tuple[int, int] | None = None
) -> list[str]:
    """A forwarder of the task of this attempt folder, which runs on another machine.

    ``node_command``: runs the node's end of the forwarder there. ``account``: user and group to which it
    changes; None: those of the server.
    """
    return [*_runtime(), "forward", "command", _account_text(account), str(folder), *node_command]


def _account_text(account: tuple[int, int] | None) -> str:
    user, group = account or ("", "")
    return f"{user}:{group}"


def _runtime() -> list[str]:
    packages = Path(pairuntime.__file__).parent.parent
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(packages)]
