"""Interruption of a running call, as a preemption would: for tests of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pairuntime.transport.call_format import process_file

if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient


def interrupt(client: ClusterClient, job: str, task: int, call: int, at_time_limit: bool) -> bool:
    """Send the signal of an interruption to the process of a task that makes a call; False if none does."""
    name = "TERM" if at_time_limit else "USR2"
    script = f'[ -s {process_file(call)} ] && kill -s {name} "$(cat {process_file(call)})"'
    return _run_in_task(client, job, task, ["sh", "-c", script]) == 0


def _run_in_task(client: ClusterClient, job: str, task: int, command: list[str]) -> int:
    """Run a command in a task; returns its exit status."""
    session = client.open_session(job, index=task)
    try:
        session.start(command)
        while session.exit_status is None:
            list(session.receive())
        return session.exit_status
    finally:
        session.close()
