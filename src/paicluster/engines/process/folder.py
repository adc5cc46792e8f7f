"""The attempt folder: what the engine writes before a start, and what it concludes from it after."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from paicluster.engines.interface import ABSENT, Observation, Phase, TaskLaunch
from pairuntime.supervisor import claim, record, supervise

SCRIPT = "task.sh"
WORK = "work"

_BASH_HEADER = "set -o errexit -o nounset -o pipefail\n"
_SH_HEADER = "set -o errexit -o nounset\n"


def path_of(tasks: Path, uid: str) -> Path:
    return tasks / uid[:2] / uid


def marker(uid: str) -> str:
    """In the environment of every process of the attempt, so that orphans can be found."""
    return f"PAI_ATTEMPT_UID={uid}"


def shell() -> str:
    return shutil.which("bash") or shutil.which("sh") or "/bin/sh"


def prepare(folder: Path, task: TaskLaunch, spec: dict[str, object], shared_file: Path | None) -> None:
    """Write everything a supervisor needs. `spec.json` comes last: with it the folder is complete."""
    if (folder / supervise.SPEC).exists():
        return
    # The folder is closed to others: script and environment may carry secrets.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    work = folder / WORK
    work.mkdir(exist_ok=True)
    program = shell()
    header = _BASH_HEADER if program.endswith("bash") else _SH_HEADER
    unpack = ""
    if task.sources is not None:
        unpack = (
            f"tar -xpf '{task.sources}' || {{ echo 'The sources could not be unpacked.' >&2; exit 127; }}\n"
        )
    _write(folder / SCRIPT, unpack + header + task.script + "\n")
    key, _, value = marker(task.uid).partition("=")
    _write(folder / "env.json", json.dumps({**task.environment, key: value, "PAI_WORK_DIR": str(work)}))
    if shared_file is not None:
        os.link(shared_file, folder / "env.shared.json")
    spec = {
        **spec,
        "attempt": task.uid,
        "argv": [program, str(folder / SCRIPT)],
        "cwd": str(work),
        "mask": list(task.secrets),
    }
    aside = folder / "spec.aside"
    _write(aside, json.dumps(spec))
    aside.rename(folder / supervise.SPEC)


def request_stop(folder: Path, uid: str, grace_s: float) -> bool:
    """Leave the request to stop. True: the attempt had not started, and now never will."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / record.NAME).exists():
        aside = folder / "stop.aside"
        _write(aside, json.dumps({"grace_s": grace_s}))
        aside.rename(folder / supervise.STOP)
    return claim.bury(str(folder), uid)


def owner_of(folder: Path) -> dict[str, object] | None:
    return claim.read(str(folder))


def look(folder: Path) -> Observation:
    """The table of docs/contributing/architecture.md, as code. LOST here says nothing of the tree."""
    owner = claim.read(str(folder))
    if owner is None:
        return ABSENT
    claimed_ms = _int(owner.get("claimed_ms"))
    if owner.get("tombstone"):
        return Observation(Phase.ENDED, ended_ms=claimed_ms, stopped=True, killed_by_us=True)
    # The lock is asked first: had it been free and the record absent at different moments, a task
    # that ended in between would look lost.
    alive = claim.held(str(folder))
    ended = record.read(str(folder))
    if ended is not None:
        return _from_record(ended)
    if alive:
        return Observation(Phase.RUNNING, started_ms=claimed_ms)
    return Observation(Phase.LOST, started_ms=claimed_ms)


def _from_record(ended: dict[str, object]) -> Observation:
    code, signum = ended.get("exit_code"), ended.get("signal")
    sent = ended.get("signals_sent")
    return Observation(
        Phase.ENDED,
        started_ms=_int(ended.get("started_ms")),
        ended_ms=_int(ended.get("ended_ms")),
        exit_code=None if code is None else _int(code),
        signal=None if signum is None else _int(signum),
        start_error=str(ended.get("start_error") or ""),
        stopped=bool(ended.get("stopped")),
        killed_by_us=isinstance(sent, list) and signum in sent,
    )


def _int(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
