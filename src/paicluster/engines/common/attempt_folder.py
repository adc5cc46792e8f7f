"""The attempt folder: what the engine writes before a start, and what it concludes from it after."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

from paicluster.engines.common import folder_size, task_files
from paicluster.engines.common.shared_environment import encode_shared_variables, task_specific
from paicluster.engines.common.unix_accounts import Account
from paicluster.engines.interface import ABSENT, Observation, Phase, TaskLaunch
from pairuntime.supervisor import attempt, claim, exit_record, process_tree, zygote

SCRIPT = "task.sh"
WORK = "work"

_BASH_HEADER = "set -o errexit -o nounset -o pipefail\n"
_SH_HEADER = "set -o errexit -o nounset\n"


def path_of(tasks: Path, uid: str) -> Path:
    return tasks.joinpath(uid[:2], uid)


def environment_marker(uid: str) -> str:
    """In the environment of every process of the attempt, so that orphans can be found."""
    return f"PAI_ATTEMPT_UID={uid}"


@cache
def shell() -> str:
    return shutil.which("bash") or shutil.which("sh") or "/bin/sh"


def is_complete(folder: Path, boot_id: str) -> bool:
    """Whether everything is there that a supervisor needs, or the time for that is over."""
    if not folder.exists():
        return False
    spec = _spec(folder)
    # The files are not forced to disk one by one. What was written before the machine was last started
    # may be cut short, and nobody can be reading it: it is written again.
    return (spec is not None and spec.get("boot_id") == boot_id) or (folder / claim.NAME).exists()


def cgroup_of(folder: Path) -> process_tree.Cgroup | None:
    """How the attempt's tree was told to be held; None when that cannot be read."""
    held = (_spec(folder) or {}).get("tree")
    return process_tree.Cgroup(str(held["mode"]), str(held["path"])) if isinstance(held, dict) else None


def _spec(folder: Path) -> dict[str, object] | None:
    try:
        return dict(json.loads((folder / attempt.SPEC).read_bytes()))
    except (FileNotFoundError, ValueError):
        return None


def prepare(
    folder: Path,
    task: TaskLaunch,
    spec: dict[str, object],
    shared_file: Path | None,
    account: Account | None = None,
    *,
    runtime: Path,
) -> None:
    """Write everything a supervisor needs. `spec.json` comes last: with it the folder is complete.

    With an account of its own the task can pass through the folder to its work and its script, and see or
    touch nothing else there.
    """
    # Paths are texts here: of the time that a large gang takes to prepare, `Path` would have a third.
    home, work = str(folder), f"{folder}/{WORK}"
    script, beside = f"{home}/{SCRIPT}", str(runtime.parent)
    # The folder is closed to others: script and environment may carry secrets.
    os.makedirs(home, mode=0o700, exist_ok=True)  # noqa: PTH103
    with contextlib.suppress(FileExistsError):
        os.mkdir(work)  # noqa: PTH102
    inner = task_files.create_output_folders(work)
    if account is not None:
        for one in (work, *inner):
            _give(one, account, 0o700)
        for outer in (folder.parent, folder):
            outer.chmod(0o711)
    program = shell()
    header = _BASH_HEADER if program.endswith("bash") else _SH_HEADER
    unpack = ""
    if task.sources is not None:
        # The store of sources is closed to other accounts: their supervisor hands them the open file.
        bundle = shlex.quote(str(task.sources)) if account is None else f"- <&{attempt.SOURCES_FD}"
        unpack = f"tar -xpf {bundle} || {{ echo 'The sources could not be unpacked.' >&2; exit 127; }}\n"
        if account is not None:
            unpack += f"exec {attempt.SOURCES_FD}<&-\n"
            spec = {**spec, "sources": str(task.sources)}
    key, _, value = environment_marker(task.uid).partition("=")
    if shared_file is None:
        environment = {**task.shared_environment, **task.environment}
    else:
        environment, tails = task_specific(task)
        spec = {**spec, "tails": tails}
        _link(shared_file, f"{home}/{attempt.SHARED_ENVIRONMENT_FILE}")
    environment[key] = value
    environment.update(task_files.runtime_variables({**task.shared_environment, **environment}, work, beside))
    _write(script, unpack + header + task.script + "\n")
    if account is not None:
        if "HOME" not in task.shared_environment:
            environment.setdefault("HOME", work)
        spec = {**spec, "account": account.as_spec()}
        _give(script, account, 0o600)
    spec = {
        **spec,
        "attempt": task.uid,
        "argv": [program, script],
        "cwd": work,
        "env": environment,
        "mask": list(task.secrets),
        "time_limit_s": task.time_limit_s,
        "keep": task_files.output_upload_spec(
            task, work, beside, sys.executable if account is None else _any_python()
        ),
    }
    _write(f"{home}/spec.aside", json.dumps(spec))
    os.rename(f"{home}/spec.aside", f"{home}/{attempt.SPEC}")  # noqa: PTH104


@cache
def _any_python() -> str:
    """Ours may lie where other accounts cannot look."""
    return shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable


def _give(path: str, account: Account, mode: int) -> None:
    os.chown(path, account.uid, account.gid, follow_symlinks=False)
    os.chmod(path, mode)  # noqa: PTH101


def write_shared_environment(path: Path, task: TaskLaunch) -> None:
    """What this task's gang has in common, once for all its folders."""
    _write(path, encode_shared_variables(task))


def _link(source: Path, target: str) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        # Of an earlier start, before the machine went down.
        os.unlink(target)  # noqa: PTH108
        _link(source, target)
    except OSError as e:
        # The tasks' folders lie on another disk, or on one without links.
        if e.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        _write(target, source.read_bytes())


def request_stop(folder: Path, uid: str, grace_s: float) -> bool:
    """Leave the request to stop. True: the attempt had not started, and now never will."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / exit_record.NAME).exists():
        aside = folder / "stop.aside"
        try:
            _write(aside, json.dumps({"grace_s": grace_s}))
            aside.rename(folder / attempt.STOP)
        except OSError as e:
            _without_room(e, folder, attempt.STOP)
    try:
        return claim.bury(str(folder), uid)
    except OSError as e:
        return _without_room(e, folder, claim.NAME)


def _without_room(error: OSError, folder: Path, name: str) -> bool:
    """On a full disk another name for a file still fits: the spec has the usual grace, and no owner."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    try:
        os.link(folder / attempt.SPEC, folder / name)
    except FileExistsError:
        return False
    return True


def supervisor_failure(folder: Path) -> str:
    """What a supervisor that failed had to say about it."""
    try:
        return (folder / zygote.FAILURE).read_text(errors="replace")
    except OSError:
        return ""


def owner_of(folder: Path) -> dict[str, object] | None:
    return claim.read(str(folder))


def observe(folder: Path) -> Observation:
    """The table of docs/contributing/architecture.md, as code. LOST here says nothing of the tree."""
    owner = claim.read(str(folder))
    if owner is None:
        return ABSENT
    claimed_ms = _int(owner.get("claimed_ms"))
    if owner and "pid" not in owner:  # a tombstone
        return Observation(Phase.ENDED, ended_ms=claimed_ms or None, stopped=True, killed_by_us=True)
    # The lock is asked first: had it been free and the record absent at different moments, a task
    # that ended in between would look lost.
    alive = claim.is_held(str(folder))
    ended = exit_record.read(str(folder))
    if ended is not None:
        return observation_from_record(ended)
    if alive:
        return Observation(Phase.RUNNING, started_ms=claimed_ms)
    return Observation(Phase.LOST, started_ms=claimed_ms)


def observation_from_record(ended: dict[str, object]) -> Observation:
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
        signaled=bool(sent),
        killed_by_us=isinstance(sent, list) and signum in sent,
        timed_out=bool(ended.get("timed_out")),
        out_of_memory=bool(ended.get("oom")),
    )


def _int(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0


def _write(path: Path | str, content: str | bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        data = content.encode() if isinstance(content, str) else content
        while data:  # a disk that is nearly full takes a part and says nothing
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def sizes(tasks: Path) -> dict[str, int]:
    """The bytes on disk of every attempt folder."""
    return {path.name: folder_size.disk_usage(path) for path in tasks.glob("*/*")}
