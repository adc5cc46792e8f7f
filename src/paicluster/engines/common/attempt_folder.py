"""The attempt folder: files that an engine writes before a launch, and the observation derived from them."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from paicluster.engines.common import folder_size, mount_specs, task_files
from paicluster.engines.common.shared_environment import encode_shared_variables, task_specific
from paicluster.engines.common.unix_accounts import Account
from paicluster.engines.interface import ABSENT, Observation, Phase, TaskLaunch
from pairuntime import saved_environment
from pairuntime.supervisor import attempt, claim, exit_record, process_tree, shared_environment, zygote

SCRIPT = "task.sh"
WORK = "work"
# Files and folders with the job's secrets or the task's token. They are removed when the attempt has ended,
# and no backup contains them. The names of all engines: `config` and `shared` are a container's, `login.json`
# is Slurm's.
FILES_WITH_SECRETS = (
    SCRIPT,
    attempt.SPEC,
    "spec.staging",
    shared_environment.SHARED_ENVIRONMENT_FILE,
    "config",
    "login.json",
    saved_environment.FOLDER,
    f"shared/{saved_environment.FOLDER}",
)
# More than we write to a folder of them.
_MAX_SECRET_FILES = 50

_BASH_HEADER = "set -o errexit -o nounset -o pipefail\n"
_SH_HEADER = "set -o errexit -o nounset\n"


def path_of(tasks: Path, uid: str) -> Path:
    return tasks.joinpath(uid[:2], uid)


def environment_marker(uid: str) -> str:
    """Variable in the environment of every process of the attempt, by which orphans are found."""
    return f"PAI_ATTEMPT_UID={uid}"


@cache
def shell() -> str:
    return shutil.which("bash") or shutil.which("sh") or "/bin/sh"


def is_complete(folder: Path, boot_id: str) -> bool:
    """Whether the folder has everything a supervisor needs, or is claimed already."""
    if not folder.exists():
        return False
    spec = _spec(folder)
    # The files are not synced one by one. What was written before the last boot may be truncated, and no
    # process can be reading it: it is written again.
    return (spec is not None and spec.get("boot_id") == boot_id) or (folder / claim.NAME).exists()


def cgroup_of(folder: Path) -> process_tree.Cgroup | None:
    """The cgroup that the attempt was started with; None if its spec cannot be read."""
    cgroup = (_spec(folder) or {}).get("cgroup")
    if not isinstance(cgroup, dict):
        return None
    return process_tree.Cgroup(str(cgroup["mode"]), str(cgroup["path"]))


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

    A task with its own account can traverse the folder to its working folder and its script, and cannot read
    or write anything else there.
    """
    # Paths are strings here: `Path` would take a third of the time to prepare a large gang.
    home, work = str(folder), f"{folder}/{WORK}"
    script, runtime_folder = f"{home}/{SCRIPT}", str(runtime.parent)
    # Closed to other accounts: script and environment may contain secrets.
    os.makedirs(home, mode=0o700, exist_ok=True)  # noqa: PTH103
    _create_empty(work)
    inner = task_files.create_output_folders(work)
    if account is not None:
        # The working folder last: until then no other account can exchange anything in it.
        for path in (*reversed(inner), work):
            _give_folder(path, account)
        for outer in (folder.parent, folder):
            outer.chmod(0o711)
    program = shell()
    header = _BASH_HEADER if program.endswith("bash") else _SH_HEADER
    unpack = ""
    if task.sources is not None:
        # The source archives are closed to other accounts: the supervisor passes the open file.
        bundle = shlex.quote(str(task.sources)) if account is None else f"- <&{attempt.SOURCES_FD}"
        unpack = f"tar -xpf {bundle} || {{ echo 'The sources could not be unpacked.' >&2; exit 127; }}\n"
        if account is not None:
            unpack += f"exec {attempt.SOURCES_FD}<&-\n"
            spec = {**spec, "sources": str(task.sources)}
    key, _, value = environment_marker(task.uid).partition("=")
    if shared_file is None:
        environment = {**task.shared_environment, **task.environment}
    else:
        environment, suffixes = task_specific(task)
        spec = {**spec, "env_suffixes": suffixes}
        _link(shared_file, f"{home}/{shared_environment.SHARED_ENVIRONMENT_FILE}")
    environment[key] = value
    if task_files.saves_environment(task):
        session_folder = f"{home}/{saved_environment.FOLDER}"
        _create_empty(session_folder)
        if account is not None:
            _give_folder(session_folder, account)
        environment[saved_environment.VARIABLE] = session_folder
        spec = {**spec, "session_folder": session_folder}
    environment.update(
        task_files.runtime_variables({**task.shared_environment, **environment}, work, runtime_folder)
    )
    _write(script, unpack + header + task.script + "\n", account)
    if account is not None:
        if "HOME" not in task.shared_environment:
            environment.setdefault("HOME", work)
        spec = {**spec, "account": account.as_spec()}
    spec = {
        **spec,
        "attempt": task.uid,
        "argv": [program, script],
        "cwd": work,
        "env": environment,
        "secrets": list(task.secrets),
        "time_limit_s": task.time_limit_s,
        "output_upload": task_files.output_upload_spec(
            task, work, runtime_folder, sys.executable if account is None else _system_python()
        ),
    }
    if storages := mount_specs.spec_of(task, folder, in_container=False):
        spec["storage_mounts"] = storages
    _write(f"{home}/spec.staging", json.dumps(spec))
    os.rename(f"{home}/spec.staging", f"{home}/{attempt.SPEC}")  # noqa: PTH104


@cache
def _system_python() -> str:
    """A system Python: the server's own may be unreadable to other accounts."""
    return shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable


def _create_empty(path: str) -> None:
    try:
        os.mkdir(path)  # noqa: PTH102
    except FileExistsError:
        # The machine crashed, and with it the claim may be gone, but not the links that the task made.
        folder_size.remove_leftover(Path(path))
        os.mkdir(path)  # noqa: PTH102


def _give_folder(path: str, account: Account) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(fd, account.uid, account.gid)
        os.fchmod(fd, 0o700)
    finally:
        os.close(fd)


def write_shared_environment(path: Path, task: TaskLaunch) -> None:
    """Write the variables that this task's gang shares, once for all its folders."""
    _write(path, encode_shared_variables(task))


def _link(source: Path, target: str) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        # Left from a launch before the machine crashed.
        os.unlink(target)  # noqa: PTH108
        _link(source, target)
    except OSError as e:
        # The task folders are on another file system, or on one without hard links.
        if e.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        _write(target, source.read_bytes())


def request_stop(folder: Path, uid: str, grace_s: float) -> bool:
    """Write the stop request. True: the attempt had not started, and now never will."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / exit_record.NAME).exists():
        staging = folder / "stop.staging"
        try:
            _write(staging, json.dumps({"grace_s": grace_s}))
            staging.rename(folder / attempt.STOP)
        except OSError as e:
            _link_instead(e, folder, attempt.STOP)
    try:
        return _bury(folder, uid)
    except OSError:
        # It is still not started. A later launch must not find the request: it would end without a start.
        (folder / attempt.STOP).unlink(missing_ok=True)
        raise


def _bury(folder: Path, uid: str) -> bool:
    try:
        return claim.bury(str(folder), uid)
    except OSError as e:
        return _link_instead(e, folder, claim.NAME)


def _link_instead(error: OSError, folder: Path, name: str) -> bool:
    """On a full disk, link the spec as the stop request: it has the default grace period, and no owner."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    try:
        os.link(folder / attempt.SPEC, folder / name)
    except FileExistsError:
        return False
    except FileNotFoundError:  # the disk was full before the spec was written, too
        raise error from None
    return True


def remove_secrets(folder: Path) -> None:
    """Remove the files with secrets. Only an unfinished task needs them, and they must not outlive it.

    The task may have put anything in their place: no link is followed, and of a folder with more than the
    secrets the rest stays until the attempt is deleted. To empty it would hold up all other work.
    """
    with contextlib.suppress(OSError), _opened(str(folder)) as fd:
        for name in FILES_WITH_SECRETS:
            with contextlib.suppress(OSError):
                *outer, last = name.split("/")
                if outer:
                    with _opened(outer[0], fd) as parent:
                        _remove_secret(parent, last)
                else:
                    _remove_secret(fd, last)


def _remove_secret(parent: int, name: str) -> None:
    """Remove a file or a folder with secrets, by name in an open folder."""
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        with _opened(name, parent) as fd:
            for file in _names_of_secrets(fd):
                with contextlib.suppress(OSError):
                    os.unlink(file, dir_fd=fd)
        os.rmdir(name, dir_fd=parent)


def _names_of_secrets(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        first = itertools.islice(entries, _MAX_SECRET_FILES)
        return [*saved_environment.FILES, *(entry.name for entry in first)]


@contextlib.contextmanager
def _opened(name: str, parent: int | None = None) -> Iterator[int]:
    """A folder, unless a link is in its place."""
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)


def supervisor_failure(folder: Path) -> str:
    """Traceback of a supervisor that failed; empty without one."""
    try:
        return (folder / zygote.FAILURE).read_text(errors="replace")
    except OSError:
        return ""


def owner_of(folder: Path) -> dict[str, object] | None:
    return claim.read(str(folder))


def observe(folder: Path) -> Observation:
    """The table of docs/contributing/architecture.md as code. LOST does not mean that the tree is empty."""
    owner = claim.read(str(folder))
    if owner is None:
        return ABSENT
    claimed_ms = _int(owner.get("claimed_ms"))
    if owner and "pid" not in owner:  # a tombstone
        return Observation(Phase.ENDED, ended_ms=claimed_ms or None, stopped=True, killed_by_us=True)
    # The lock is tested before the record is read: in the other order a task that ends in between would look
    # lost.
    alive = claim.is_held(str(folder))
    record = exit_record.read(str(folder))
    if record is not None:
        return observation_from_record(record)
    if alive:
        return Observation(Phase.RUNNING, started_ms=claimed_ms)
    return Observation(Phase.LOST, started_ms=claimed_ms)


def observation_from_record(record: dict[str, object]) -> Observation:
    code, signum = record.get("exit_code"), record.get("signal")
    sent = record.get("signals_sent")
    return Observation(
        Phase.ENDED,
        started_ms=_int(record.get("started_ms")),
        ended_ms=_int(record.get("ended_ms")),
        exit_code=None if code is None else _int(code),
        signal=None if signum is None else _int(signum),
        start_error=_printable(str(record.get("start_error") or "")),
        stopped=bool(record.get("stopped")),
        signaled=bool(sent),
        killed_by_us=isinstance(sent, list) and signum in sent,
        timed_out=bool(record.get("timed_out")),
        out_of_memory=bool(record.get("oom")),
        forks_refused=bool(record.get("forks_refused")),
    )


def _printable(text: str) -> str:
    """Text that a database and a terminal can take: other programs write anything, such as a zero byte."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)


def _int(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0


def _write(path: Path | str, content: str | bytes, account: Account | None = None) -> None:
    """Write a file. ``account``: its owner; None: the server."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        if account is not None:
            os.fchown(fd, account.uid, account.gid)
            os.fchmod(fd, 0o600)
        data = content.encode() if isinstance(content, str) else content
        while data:  # a nearly full disk writes a part without an error
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def sizes(tasks: Path) -> dict[str, int]:
    """Disk usage of every attempt folder in bytes, by uid."""
    return {path.name: folder_size.disk_usage(path) for path in tasks.glob("*/*")}
