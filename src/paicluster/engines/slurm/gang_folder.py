"""The folders of a gang and its tasks, on the file system that all nodes share.

Where there is none they are here alone: tasks have a copy of their own, and what they write is brought here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paicluster.engines.common import folder_size, task_files
from paicluster.engines.common.attempt_folder import environment_marker, path_of
from paicluster.engines.common.shell_exports import exports, not_exportable
from paicluster.engines.common.task_files import HOST_VARIABLES
from paicluster.engines.common.unix_accounts import Account
from paicluster.engines.interface import LaunchFailed, TaskLaunch
from paicluster.engines.slurm import container_command, sbatch_command, untrusted_files
from paicluster.engines.slurm.launch_bundle import RemoteLaunch
from paicluster.engines.slurm.launch_bundle import batch_script as carried_script
from paicluster.engines.slurm.options import SlurmOptions
from pairuntime.slurm import gang_launcher as inside
from pairuntime.supervisor import attempt, claim

JOB = "job"
SUBMITTING = "submitting"
REFUSED = "refused"
LEFT = "left"
COMMAND = "sbatch.json"
OWNER = f"{inside.RUN}/{inside.OWNER}"
OUTPUT = f"{inside.RUN}/slurm.out"
# A hash of what the tasks of a gang have to show when they report over the network.
TICKET = "ticket"
WORK = "work"
SCRIPT = "task.sh"
_HEADER = 'set -o errexit -o nounset\nif [ -n "${BASH_VERSION:-}" ]; then set -o pipefail; fi\n'


@dataclass(frozen=True, slots=True)
class SlurmFolders:
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
    home: SlurmFolders,
    gang: Sequence[TaskLaunch],
    options: SlurmOptions,
    runtime: Path,
    usual: dict[str, object],
    command: Sequence[str],
    account: Account | None,
    carried: RemoteLaunch | None = None,
) -> None:
    """Write everything; `gang.json` comes last: with it the gang is complete. All, or nothing is left."""
    folder = home.gang(gang[0].uid)
    made: list[Path] = []
    try:
        made.append(folder)
        if account is not None:
            # What an earlier server left unfinished may be the account's already, with anything in it.
            folder_size.remove_tree(folder)
        open_folder(folder, 0o700)
        (folder / inside.RUN).mkdir(mode=0o700, exist_ok=True)
        for task in gang[1:]:
            open_folder(home.gang(task.uid).parent)
            _write(home.gang(task.uid), gang[0].uid)
        there = _there(home, gang, carried)
        for task, seen in zip(gang, there, strict=True):
            path = home.task(task.uid)
            if not os.path.lexists(path / claim.NAME):
                made.append(path)
                if account is not None:
                    folder_size.remove_tree(path)
                _prepare_task(home, seen, task, gang, options, runtime, usual, carried)
        alone = len(gang) == 1
        if carried is None:
            script = sbatch_command.batch_script(options, runtime, folder, alone=alone)
        else:
            _write(folder / TICKET, hash_of(carried.ticket))
            below = {"archive": runtime.relative_to(home.root), "folder": folder.relative_to(home.root)}
            script = carried_script(carried, options.python, uid=gang[0].uid, alone=alone, **below)
        _write(folder / "batch.sh", script)
        _write(folder / COMMAND, json.dumps(list(command)))
        if len(gang) > 1:
            own = {name for task in gang for name in task.environment}
            # Each has its own of these, which leads to the runtime.
            own.update(task_files.runtime_variables(gang[0].shared_environment, "", ""))
            # In an image they mean nothing.
            own.update(HOST_VARIABLES)
            _write(folder / inside.COMMON_BLANK, exports(gang[0].shared_environment, exclude=own))
        if account is not None:
            _hand_over(made, account, shared=carried is None)
        # The account reads it; the server believes it, so it is nobody's to change.
        _write(
            folder / inside.GANG,
            json.dumps({**_description(there, gang), **_carriage(home, carried, runtime)}),
            0o644 if account is not None and carried is None else 0o600,
        )
    except OSError as error:
        for path in made:
            folder_size.remove_tree(path)
        raise LaunchFailed(
            f"The tasks' folders could not be written: {error.strerror} ({error.filename})."
        ) from error


def hash_of(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()


def _there(
    home: SlurmFolders, gang: Sequence[TaskLaunch], carried: RemoteLaunch | None
) -> list[SlurmFolders]:
    """What each task sees as the home: ours, or a folder of its own on its node."""
    if carried is None:
        return [home] * len(gang)
    if len(gang) == 1:
        return [SlurmFolders(carried.root)]
    found = {
        member: SlurmFolders(carried.of(number, rank))
        for number, part in enumerate(sbatch_command.components(gang))
        for rank, member in enumerate(part.members)
    }
    return [found[number] for number in range(len(gang))]


def _carriage(home: SlurmFolders, carried: RemoteLaunch | None, runtime: Path) -> dict[str, object]:
    """What a gang's description says beside, where it has to travel; ``nodes`` lies beside it then."""
    if carried is None:
        return {}
    archive = str(runtime.relative_to(home.root))
    return {"carried": True, "archive": archive, "nodes": home.nodes_file.name}


def _description(there: Sequence[SlurmFolders], gang: Sequence[TaskLaunch]) -> dict[str, object]:
    parts = sbatch_command.components(gang)
    part_of = {member: number for number, part in enumerate(parts) for member in part.members}
    tasks = []
    for number, task in enumerate(gang):
        blanks = None
        if task.placeholders is not None:
            blanks = {
                "ip": task.placeholders.ip,
                "gpus": task.placeholders.gpus,
                "ports": dict(task.placeholders.ports),
            }
        tasks.append(
            {
                "uid": task.uid,
                "folder": str(there[number].task(task.uid)),
                "component": part_of[number],
                "sources": "" if task.sources is None else task.sources.name,
                "ports": {} if blanks is None else {k: len(v) for k, v in task.placeholders.ports.items()},  # type: ignore[union-attr]
                "blanks": blanks,
                "image": task.image or "",
                "login": "" if task.login is None else task.login.username,
            }
        )
    return {
        "tasks": tasks,
        "components": [sbatch_command.srun_options(part) for part in parts],
        "nodes": str(there[0].nodes_file),
    }


def _prepare_task(
    home: SlurmFolders,
    there: SlurmFolders,
    task: TaskLaunch,
    gang: Sequence[TaskLaunch],
    options: SlurmOptions,
    runtime: Path,
    usual: dict[str, object],
    carried: RemoteLaunch | None,
) -> None:
    """Written here, in words for ``there``."""
    written = home.task(task.uid)
    open_folder(written, 0o700)
    (written / WORK).mkdir(exist_ok=True)
    task_files.create_output_folders(written / WORK)
    path = there.task(task.uid)
    work = path / WORK
    secrets = list(task.secrets)
    if carried is not None:
        runtime = there.root / runtime.relative_to(home.root)
        usual = {**usual, "carried": True, "events": ""}
        secrets.append(carried.ticket)
    key, _, value = environment_marker(task.uid).partition("=")
    environment = {**task.environment, key: value}
    environment.update(
        task_files.runtime_variables(
            {**task.shared_environment, **environment}, str(work), str(runtime.parent)
        )
    )
    if "HOME" not in task.shared_environment:
        environment.setdefault("HOME", str(work))
    text = ""
    if len(gang) == 1:
        environment = {**task.shared_environment, **environment}
    else:
        common = there.gang(gang[0].uid) / inside.RUN / inside.COMMON
        usual = {**usual, "shared_exports": str(common)}
        text = f". {shlex.quote(str(common))}\n"
        shared = task.shared_environment
        hosts = {name: shared[name] for name in HOST_VARIABLES & shared.keys()}
        environment = {**hosts, **dict(not_exportable(shared)), **environment}
    folders = [path, there.gang(gang[0].uid), runtime.parent]
    if task.sources is not None:
        bundle = there.sources / _bring(task.sources, home.sources).name
        folders.append(bundle.parent)
        text += f"tar -xpf {shlex.quote(str(bundle))} || {{ echo 'The sources could not be unpacked.' >&2; "
        text += "exit 127; }\n"
    _write(written / SCRIPT, text + _HEADER + task.script + "\n")
    spec = {
        **usual,
        "attempt": task.uid,
        "gang": gang[0].uid,
        "slurm": True,
        "argv": container_command.program(task, options, path / SCRIPT, work, folders, environment),
        **container_command.details(task, options, work),
        "cwd": str(work),
        "env": environment,
        "secrets": secrets,
        "time_limit_s": task.time_limit_s,
        "output_upload": task_files.output_upload_spec(task, work, runtime.parent, options.python),
    }
    if (login := container_command.login(task, options)) is not None:
        _write(written / container_command.LOGIN, login)
    _write(written / attempt.SPEC, json.dumps(spec))


def _bring(sources: Path, shared: Path) -> Path:
    """Uploaded sources to where the nodes see them; another name for the same file where that is possible."""
    target = shared / sources.name
    if not target.exists():
        open_folder(shared)
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


def remove(home: SlurmFolders, uid: str) -> None:
    for path in (home.task(uid), home.gang(uid)):
        folder_size.remove_tree(path)


def open_folder(folder: Path, mode: int = 0o711) -> None:
    """Make it, if it is not there, with this mode whatever our umask is; what leads there can be passed."""
    try:
        folder.mkdir()
    except FileExistsError:
        return
    except FileNotFoundError:
        open_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    folder.chmod(mode)


def _hand_over(made: Sequence[Path], account: Account, *, shared: bool) -> None:
    """``made``: the gang's folder, then its tasks'. Of what travels, only whose it is can be seen here."""
    if not shared:
        os.chown(made[0] / inside.RUN, account.uid, account.gid)
        return
    for path in made[1:]:
        _give(path, account)
    _open_gang(made[0], account)


def _open_gang(folder: Path, account: Account) -> None:
    """The account may read what is for it, and write in one folder; the marks stay the server's own."""
    # The batch script is for sbatch alone, which finds options in it too.
    for name in (inside.COMMON_BLANK, inside.RUN):
        if (folder / name).exists():
            os.chown(folder / name, account.uid, account.gid)
    folder.chmod(0o711)


def _give(folder: Path, account: Account) -> None:
    # The folder last: until then nobody else can put anything into it.
    for path in (*folder.rglob("*"), folder):
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    # The folder may be another account's, which cannot have put anything under a name it did not know.
    aside = f"{path}.{os.urandom(8).hex()}"
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(fd, "w") as f:
        f.write(text)
        # Whatever our umask is.
        os.fchmod(fd, mode)
    os.rename(aside, path)  # noqa: PTH104 - on the way of every job


def write_flag(folder: Path, name: str, text: str) -> None:
    _write(folder / name, text)


def read_flag(folder: Path, name: str) -> str | None:
    try:
        return untrusted_files.tail(folder / name).decode(errors="replace").strip()
    except OSError:
        return None


def request_stop(path: Path, uid: str, grace_s: float) -> None:
    """Leave the request to stop; an attempt that has not started never will."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Readable for the supervisor, which may be another account's.
    _write(path / attempt.STOP, json.dumps({"grace_s": grace_s}), 0o644)
    claim.bury(str(path), uid)


def members(folder: Path) -> tuple[str, ...]:
    """The tasks of a gang; none when it is not complete."""
    try:
        found: dict[str, Any] = json.loads((folder / inside.GANG).read_text())
    except (OSError, ValueError):
        return ()
    return tuple(task["uid"] for task in found["tasks"])


def image_of(folder: Path, uid: str) -> tuple[str, str]:
    """The image of one of a gang's tasks, and who logs in where it comes from; empty where there is none."""
    try:
        said = json.loads((folder / inside.GANG).read_text())
    except OSError:  # it is being removed
        return "", ""
    return next(
        (task.get("image", ""), task.get("login", "")) for task in said["tasks"] if task["uid"] == uid
    )


def leader_of(home: SlurmFolders, uid: str) -> str | None:
    """The first task of an attempt's gang, by which the gang is known; None when it has none."""
    path = home.gang(uid)
    try:
        # Not from the attempt's own folder: whoever can write there would choose what the server believes.
        return uid if path.is_dir() else path.read_text()
    except OSError:
        return None


def run_folder(home: SlurmFolders, uid: str) -> Path:
    """In the folder of an attempt's gang, what is its account's."""
    return home.gang(leader_of(home, uid) or uid) / inside.RUN


def on_node(home: SlurmFolders, uid: str) -> tuple[Path, Path] | None:
    """Where an attempt that has travelled has the runtime, and its own folder; None: here."""
    said = json.loads((run_folder(home, uid).parent / inside.GANG).read_text())
    if "archive" not in said:
        return None
    own = next(Path(task["folder"]) for task in said["tasks"] if task["uid"] == uid)
    # Below its root everything is as it is here.
    root = own.parents[len(home.task(uid).relative_to(home.root).parts) - 1]
    return root / said["archive"], own


def owner_of(folder: Path) -> int:
    """The account whose job of Slurm this gang is; -1 when the folder is being removed."""
    try:
        return (folder / inside.RUN).stat().st_uid if os.geteuid() == 0 else os.geteuid()
    except OSError:
        return -1


def job_of(path: Path) -> list[str]:
    """How srun is told the allocation that an attempt runs in; nothing before it runs."""
    job, part = untrusted_files.allocation_of(path)
    return [f"--jobid={job}", *([f"--het-group={part}"] if part else [])] if job else []


def never_reported(folder: Path) -> bool:
    """Whether it should have fetched its tasks from here, and did not."""
    return (folder / TICKET).exists() and not (folder / OWNER).exists()


def last_words(folder: Path, size: int = 600) -> str:
    """The end of what the batch script and Slurm itself wrote."""
    try:
        data = untrusted_files.tail(folder / OUTPUT, size)
    except OSError:
        return ""
    return " ".join(untrusted_files.sanitize(data.decode(errors="replace")).split())
