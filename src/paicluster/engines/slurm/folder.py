"""The folders of a gang and its tasks, on the file system that all nodes share."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paicluster.engines import aids
from paicluster.engines.exports import beside_exports, exports
from paicluster.engines.interface import LaunchFailed, Place, TaskLaunch
from paicluster.engines.process.accounts import Account
from paicluster.engines.process.folder import marker, path_of
from paicluster.engines.slurm import commands, images
from paicluster.engines.slurm.options import SlurmOptions
from pairuntime.slurm import gang as inside
from pairuntime.slurm import place as placing
from pairuntime.supervisor import claim, supervise

JOB = "job"
SUBMITTING = "submitting"
REFUSED = "refused"
COMMAND = "sbatch.json"
OWNER = f"{inside.RUN}/{inside.OWNER}"
OUTPUT = f"{inside.RUN}/slurm.out"
_WORK = "work"
_SCRIPT = "task.sh"
_HEADER = 'set -o errexit -o nounset\nif [ -n "${BASH_VERSION:-}" ]; then set -o pipefail; fi\n'


@dataclass(frozen=True, slots=True)
class Home:
    """Where everything of one Slurm engine lies."""

    root: Path

    @property
    def tasks(self) -> Path:
        return self.root / "tasks"

    @property
    def notes(self) -> Path:
        return self.root / "notes"

    @property
    def sources(self) -> Path:
        return self.root / "sources"

    @property
    def nodes_file(self) -> Path:
        return self.root / "nodes.json"

    def task(self, uid: str) -> Path:
        return path_of(self.tasks, uid)

    def gang(self, uid: str) -> Path:
        return path_of(self.root / "gangs", uid)


def prepare(
    home: Home,
    gang: Sequence[TaskLaunch],
    options: SlurmOptions,
    runtime: Path,
    usual: dict[str, object],
    command: Sequence[str],
    account: Account | None,
) -> None:
    """Write everything; `gang.json` comes last: with it the gang is complete. All, or nothing is left."""
    folder = home.gang(gang[0].uid)
    made: list[Path] = []
    try:
        made.append(folder)
        _make(folder)
        (folder / inside.RUN).mkdir(mode=0o700, exist_ok=True)
        for task in gang:
            path = home.task(task.uid)
            if not (path / claim.NAME).exists():
                made.append(path)
                _prepare_task(home, path, task, gang, options, runtime, usual)
        _write(folder / "batch.sh", commands.batch_script(options, runtime, folder, alone=len(gang) == 1))
        _write(folder / COMMAND, json.dumps(list(command)))
        if len(gang) > 1:
            own = {name for task in gang for name in task.environment}
            _write(folder / inside.COMMON_BLANK, exports(gang[0].shared_environment, but=own))
        if account is not None:
            for path in made[1:]:
                _give(path, account)
            _open_gang(folder, account)
        _write(folder / inside.GANG, json.dumps(_description(home, gang)), account)
    except OSError as error:
        for path in made:
            shutil.rmtree(path, ignore_errors=True)
        raise LaunchFailed(
            f"The tasks' folders could not be written: {error.strerror} ({error.filename})."
        ) from error


def _description(home: Home, gang: Sequence[TaskLaunch]) -> dict[str, object]:
    parts = commands.components(gang)
    part_of = {member: number for number, part in enumerate(parts) for member in part.members}
    tasks = []
    for number, task in enumerate(gang):
        blanks = None
        if task.blanks is not None:
            blanks = {"ip": task.blanks.ip, "gpus": task.blanks.gpus, "ports": dict(task.blanks.ports)}
        tasks.append(
            {
                "uid": task.uid,
                "folder": str(home.task(task.uid)),
                "component": part_of[number],
                "ports": {} if blanks is None else {k: len(v) for k, v in task.blanks.ports.items()},  # type: ignore[union-attr]
                "blanks": blanks,
            }
        )
    return {
        "tasks": tasks,
        "components": [commands.step_options(part) for part in parts],
        "nodes": str(home.nodes_file),
    }


def _prepare_task(
    home: Home,
    path: Path,
    task: TaskLaunch,
    gang: Sequence[TaskLaunch],
    options: SlurmOptions,
    runtime: Path,
    usual: dict[str, object],
) -> None:
    _make(path)
    work = path / _WORK
    work.mkdir(exist_ok=True)
    aids.make_folders(work)
    key, _, value = marker(task.uid).partition("=")
    environment = {**task.environment, key: value}
    environment.update(
        aids.variables({**task.shared_environment, **environment}, str(work), str(runtime.parent))
    )
    if "HOME" not in task.shared_environment:
        environment.setdefault("HOME", str(work))
    text = ""
    if len(gang) == 1:
        environment = {**task.shared_environment, **environment}
    else:
        common = home.gang(gang[0].uid) / inside.RUN / inside.COMMON
        usual = {**usual, "common": str(common)}
        text = f". {shlex.quote(str(common))}\n"
        for name, value in beside_exports(task.shared_environment):
            environment.setdefault(name, value)
    folders = [path, home.gang(gang[0].uid), runtime.parent]
    if task.sources is not None:
        bundle = _bring(task.sources, home.sources)
        folders.append(bundle.parent)
        text += f"tar -xpf {shlex.quote(str(bundle))} || {{ echo 'The sources could not be unpacked.' >&2; "
        text += "exit 127; }\n"
    _write(path / _SCRIPT, text + _HEADER + task.script + "\n")
    spec = {
        **usual,
        "attempt": task.uid,
        "gang": gang[0].uid,
        "slurm": True,
        "argv": images.program(task, options, path / _SCRIPT, work, folders),
        "cleanup": images.cleanup(task, options),
        "cwd": str(work),
        "env": environment,
        "mask": list(task.secrets),
        "time_limit_s": task.time_limit_s,
        "keep": aids.keeping(task, work, runtime.parent, options.python),
    }
    _write(path / supervise.SPEC, json.dumps(spec))


def _bring(sources: Path, shared: Path) -> Path:
    """Uploaded sources to where the nodes see them; another name for the same file where that is possible."""
    target = shared / sources.name
    if not target.exists():
        shared.mkdir(mode=0o711, parents=True, exist_ok=True)
        aside = target.with_name(f"{target.name}.{os.getpid()}")
        aside.unlink(missing_ok=True)
        try:
            os.link(sources, aside)
        except OSError:
            shutil.copyfile(sources, aside)
        # Whoever knows its name, a hash of what is in it, may read it: tasks of any account do.
        aside.chmod(0o644)
        aside.rename(target)
    return target


def _make(folder: Path) -> None:
    folder.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def _open_gang(folder: Path, account: Account) -> None:
    """The account may read what is for it, and write in one folder; the marks stay the server's own."""
    for name in ("batch.sh", inside.COMMON_BLANK, inside.RUN):
        if (folder / name).exists():
            os.chown(folder / name, account.uid, account.gid)
    folder.chmod(0o711)


def _give(folder: Path, account: Account) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _write(path: Path, text: str, account: Account | None = None) -> None:
    aside = path.with_name(f"{path.name}.aside")
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as f:
        f.write(text)
    if account is not None:
        os.chown(aside, account.uid, account.gid)
    aside.rename(path)


def write_mark(folder: Path, name: str, text: str) -> None:
    _write(folder / name, text)


def read_mark(folder: Path, name: str) -> str | None:
    try:
        return _read(folder / name).decode(errors="replace").strip()
    except OSError:
        return None


def _read(path: Path) -> bytes:
    """Not through a link: the folder may be an account's that must not read what this server can."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as f:
        return f.read()


def request_stop(path: Path, uid: str, grace_s: float) -> None:
    """Leave the request to stop; an attempt that has not started never will."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path / f"stop.{os.urandom(8).hex()}"
    # Readable for the supervisor, which may be another account's.
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(fd, "w") as f:
        f.write(json.dumps({"grace_s": grace_s}))
    aside.rename(path / supervise.STOP)
    claim.bury(str(path), uid)


def members(folder: Path) -> tuple[str, ...]:
    """The tasks of a gang; none when it is not complete."""
    try:
        told: dict[str, Any] = json.loads((folder / inside.GANG).read_text())
    except (OSError, ValueError):
        return ()
    return tuple(task["uid"] for task in told["tasks"])


def gang_of(path: Path) -> str | None:
    """The gang of an attempt; None when its folder is not complete."""
    try:
        found = json.loads((path / supervise.SPEC).read_text()).get("gang")
    except (OSError, ValueError):
        return None
    return str(found) if found else None


def place_of(path: Path) -> Place | None:
    told = _placed(path)
    if told is None:
        return None
    ports = {label: tuple(numbers) for label, numbers in told["ports"].items()}
    return Place(told["node"], told["ip"], ports, tuple(told["gpus"]))


def job_of(path: Path) -> list[str]:
    """How srun is told the allocation that an attempt runs in; nothing before it runs."""
    told = _placed(path)
    if told is None or not told.get("job"):
        return []
    part = told.get("part")
    return [f"--jobid={told['job']}", *([f"--het-group={part}"] if part else [])]


def _placed(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((path / placing.PLACE).read_text()))
    except (OSError, ValueError):
        return None


def last_words(folder: Path, size: int = 600) -> str:
    """The end of what the batch script and Slurm itself wrote."""
    try:
        data = _read(folder / OUTPUT)[-size:]
    except OSError:
        return ""
    return " ".join(data.decode(errors="replace").split())
