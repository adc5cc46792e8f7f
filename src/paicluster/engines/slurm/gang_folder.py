"""Folders of a gang and its tasks, on the file system that all nodes share.

Without one they exist on the server only: tasks have a copy, and upload what they write.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paicluster.engines.common import folder_size, mount_specs, task_files, untrusted_files
from paicluster.engines.common.attempt_folder import environment_marker
from paicluster.engines.common.gang_folders import SCRIPT_HEADER, TICKET, GangFolders, copy_sources, hash_of
from paicluster.engines.common.shell_exports import exports, not_exportable
from paicluster.engines.common.task_files import HOST_VARIABLES
from paicluster.engines.common.unix_accounts import Account
from paicluster.engines.interface import LaunchFailed, TaskLaunch
from paicluster.engines.slurm import container_command, node_mounts, sbatch_command
from paicluster.engines.slurm.options import SlurmOptions
from paicluster.engines.slurm.remote_launch import RemoteLaunch, remote_batch_script
from pairuntime import saved_environment
from pairuntime.reports import placement
from pairuntime.slurm import gang_launcher
from pairuntime.supervisor import attempt, claim

JOB = "job"
SUBMITTING = "submitting"
REJECTED = "rejected"
CANCELLED_AS_STALE = "cancelled-as-stale"
SBATCH_COMMAND = "sbatch.json"
OWNER = f"{gang_launcher.RUN}/{gang_launcher.OWNER}"
OUTPUT = f"{gang_launcher.RUN}/slurm.out"
WORK = "work"
SCRIPT = "task.sh"


@dataclass(frozen=True, slots=True)
class SlurmFolders(GangFolders):
    """Paths of one Slurm engine."""

    @property
    def events(self) -> Path:
        return self.root / "events"

    @property
    def sources(self) -> Path:
        return self.root / "sources"

    @property
    def nodes_file(self) -> Path:
        return self.root / "nodes.json"


def prepare(
    home: SlurmFolders,
    gang: Sequence[TaskLaunch],
    options: SlurmOptions,
    runtime: Path,
    common_spec: dict[str, object],
    command: Sequence[str],
    account: Account | None,
    remote: RemoteLaunch | None = None,
) -> None:
    """Write all files of a gang. `gang.json` comes last and marks it complete; a failure removes all."""
    folder = home.gang(gang[0].uid)
    created: list[Path] = []
    try:
        created.append(folder)
        if account is not None:
            # What an earlier server left unfinished may belong to the account already, with any content.
            folder_size.remove_leftover(folder)
        create_folder(folder, 0o700)
        (folder / gang_launcher.RUN).mkdir(mode=0o700, exist_ok=True)
        for task in gang[1:]:
            create_folder(home.gang(task.uid).parent)
            _write(home.gang(task.uid), gang[0].uid)
        node_folders = _node_folders(home, gang, remote)
        for task, node_folder in zip(gang, node_folders, strict=True):
            path = home.task(task.uid)
            if not os.path.lexists(path / claim.NAME):
                created.append(path)
                if account is not None:
                    folder_size.remove_leftover(path)
                _prepare_task(home, node_folder, task, gang, options, runtime, common_spec, remote)
        alone = len(gang) == 1
        if remote is None:
            script = sbatch_command.batch_script(options, runtime, folder, alone=alone)
        else:
            _write(folder / TICKET, hash_of(remote.ticket))
            paths = {"archive": runtime.relative_to(home.root), "folder": folder.relative_to(home.root)}
            script = remote_batch_script(remote, options.python, uid=gang[0].uid, alone=alone, **paths)
        _write(folder / "batch.sh", script)
        _write(folder / SBATCH_COMMAND, json.dumps(list(command)))
        if len(gang) > 1:
            own = {name for task in gang for name in task.environment}
            # Each task has its own value of these, which depends on the runtime's path.
            own.update(task_files.runtime_variables(gang[0].shared_environment, "", ""))
            # In an image they have no meaning.
            own.update(HOST_VARIABLES)
            # Known on the node only.
            own.update(mount.variable for mount in gang[0].storage_mounts)
            _write(
                folder / gang_launcher.ENVIRONMENT_TEMPLATE, exports(gang[0].shared_environment, exclude=own)
            )
        if account is not None:
            _give_to_account(created, account, shared=remote is None)
        # The account may read it; the server trusts it, so only the server may change it.
        _write(
            folder / gang_launcher.GANG,
            json.dumps({**_description(node_folders, gang), **_remote_description(home, remote, runtime)}),
            0o644 if account is not None and remote is None else 0o600,
        )
    except OSError as error:
        for path in created:
            folder_size.remove_tree(path)
        raise LaunchFailed.not_written(error) from error


def _node_folders(
    home: SlurmFolders, gang: Sequence[TaskLaunch], remote: RemoteLaunch | None
) -> list[SlurmFolders]:
    """The folders as each task sees them: the shared ones, or its own copy on its node."""
    if remote is None:
        return [home] * len(gang)
    if len(gang) == 1:
        return [SlurmFolders(remote.root)]
    folders = {
        member: SlurmFolders(remote.of(number, rank))
        for number, part in enumerate(sbatch_command.components(gang))
        for rank, member in enumerate(part.members)
    }
    return [folders[number] for number in range(len(gang))]


def _remote_description(home: SlurmFolders, remote: RemoteLaunch | None, runtime: Path) -> dict[str, object]:
    """Further keys of a gang's description in a launch bundle; ``nodes`` then lies beside it."""
    if remote is None:
        return {}
    archive = str(runtime.relative_to(home.root))
    return {"remote": True, "archive": archive, "nodes": home.nodes_file.name}


def _description(node_folders: Sequence[SlurmFolders], gang: Sequence[TaskLaunch]) -> dict[str, object]:
    parts = sbatch_command.components(gang)
    part_of = {member: number for number, part in enumerate(parts) for member in part.members}
    tasks = []
    for number, task in enumerate(gang):
        placeholders = None
        if task.placeholders is not None:
            placeholders = {
                "ip": task.placeholders.ip,
                "gpus": task.placeholders.gpus,
                "ports": dict(task.placeholders.ports),
            }
        tasks.append(
            {
                "uid": task.uid,
                "folder": str(node_folders[number].task(task.uid)),
                "component": part_of[number],
                "sources": "" if task.sources is None else task.sources.name,
                "ports": {}
                if placeholders is None
                else {k: len(v) for k, v in task.placeholders.ports.items()},  # type: ignore[union-attr]
                "placeholders": placeholders,
                "image": task.image or "",
                "login": "" if task.login is None else task.login.username,
            }
        )
    return {
        "tasks": tasks,
        "components": [sbatch_command.srun_options(part, gang[0].tasks_per_node) for part in parts],
        "nodes": str(node_folders[0].nodes_file),
    }


def _prepare_task(
    home: SlurmFolders,
    node_folder: SlurmFolders,
    task: TaskLaunch,
    gang: Sequence[TaskLaunch],
    options: SlurmOptions,
    runtime: Path,
    common_spec: dict[str, object],
    remote: RemoteLaunch | None,
) -> None:
    """Write a task's folder here, with the paths of ``node_folder``."""
    folder = home.task(task.uid)
    create_folder(folder, 0o700)
    (folder / WORK).mkdir(exist_ok=True)
    task_files.create_output_folders(folder / WORK)
    path = node_folder.task(task.uid)
    work = path / WORK
    secrets = list(task.secrets)
    if remote is not None:
        runtime = node_folder.root / runtime.relative_to(home.root)
        common_spec = {**common_spec, "remote": True, "events": ""}
        secrets.append(remote.ticket)
    key, _, value = environment_marker(task.uid).partition("=")
    environment = {**task.environment, key: value}
    environment.update(
        task_files.runtime_variables(
            {**task.shared_environment, **environment}, str(work), str(runtime.parent)
        )
    )
    if "HOME" not in task.shared_environment:
        environment.setdefault("HOME", str(work))
    if task_files.saves_environment(task) and container_command.sessions_enter_image(task, options):
        session_folder = str(path / saved_environment.FOLDER)
        environment[saved_environment.VARIABLE] = session_folder
        common_spec = {**common_spec, "session_folder": session_folder}
    text = ""
    if len(gang) == 1:
        environment = {**task.shared_environment, **environment}
    else:
        common = node_folder.gang(gang[0].uid) / gang_launcher.RUN / gang_launcher.ENVIRONMENT
        common_spec = {**common_spec, "shared_exports": str(common)}
        text = f". {shlex.quote(str(common))}\n"
        shared = task.shared_environment
        own = HOST_VARIABLES.union(mount.variable for mount in task.storage_mounts)
        hosts = {name: shared[name] for name in own & shared.keys()}
        environment = {**hosts, **dict(not_exportable(shared)), **environment}
    folders = [path, node_folder.gang(gang[0].uid), runtime.parent]
    in_container = bool(task.image and options.container)
    if in_container:
        text += mount_specs.check_script(task, task.uid)
    if task.sources is not None:
        bundle = node_folder.sources / _share_sources(task.sources, home.sources).name
        folders.append(bundle.parent)
        text += f"tar -xpf {shlex.quote(str(bundle))} || {{ echo 'The sources could not be unpacked.' >&2; "
        text += "exit 127; }\n"
    _write(folder / SCRIPT, text + SCRIPT_HEADER + task.script + "\n")
    spec = {
        **common_spec,
        "attempt": task.uid,
        "gang": gang[0].uid,
        "argv": container_command.program(task, options, path / SCRIPT, work, folders, environment),
        **container_command.details(task, options, work),
        "cwd": str(work),
        "env": environment,
        "secrets": secrets,
        "time_limit_s": task.time_limit_s,
        "output_upload": task_files.output_upload_spec(task, work, runtime.parent, options.python),
    }
    if storages := node_mounts.spec_of(task, options, path, in_container=in_container):
        spec["storage_mounts"] = storages
    if (login := container_command.login(task, options)) is not None:
        _write(folder / container_command.LOGIN, login)
    _write(folder / attempt.SPEC, json.dumps(spec))


def _share_sources(sources: Path, shared: Path) -> Path:
    """Copy uploaded sources to the shared folder."""
    target = shared / sources.name
    if not target.exists():
        create_folder(shared)
        # Readable for tasks of any account, by its name, which is a hash of its content.
        copy_sources(sources, target, 0o644)
    return target


def create_folder(folder: Path, mode: int = 0o711) -> None:
    """Create a folder with this mode, whatever the umask; its parents are traversable."""
    try:
        folder.mkdir()
    except FileExistsError:
        return
    except FileNotFoundError:
        create_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    folder.chmod(mode)


def _give_to_account(created: Sequence[Path], account: Account, *, shared: bool) -> None:
    """``created``: the gang's folder, then its tasks'. In a remote launch only the owner is recorded here."""
    if not shared:
        os.chown(created[0] / gang_launcher.RUN, account.uid, account.gid)
        return
    for path in created[1:]:
        _chown_tree(path, account)
    _open_gang(created[0], account)


def _open_gang(folder: Path, account: Account) -> None:
    """Let the account read its files and write in one folder; the flags stay the server's own."""
    # Not the batch script: only sbatch reads it, and it takes options from it.
    for name in (gang_launcher.ENVIRONMENT_TEMPLATE, gang_launcher.RUN):
        if (folder / name).exists():
            os.chown(folder / name, account.uid, account.gid)
    folder.chmod(0o711)


def _chown_tree(folder: Path, account: Account) -> None:
    # The folder last: until then no other account can create files in it.
    for path in (*folder.rglob("*"), folder):
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    # The folder may belong to another account, which cannot have prepared a file under this random name.
    temporary = f"{path}.{os.urandom(8).hex()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(fd, "w") as f:
            f.write(text)
            # Whatever the umask is.
            os.fchmod(fd, mode)
        os.rename(temporary, path)  # noqa: PTH104 - on the critical path of every job
    except OSError:
        os.unlink(temporary)  # noqa: PTH108
        raise


def write_flag(folder: Path, name: str, text: str) -> None:
    _write(folder / name, text)


def read_flag(folder: Path, name: str) -> str | None:
    try:
        return untrusted_files.tail(folder / name).decode(errors="replace").strip()
    except OSError:
        return None


def request_stop(path: Path, uid: str, grace_s: float) -> None:
    """Write the stop request; an attempt that has not started never will."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Readable for the supervisor, which may run under another account.
    _write(path / attempt.STOP, json.dumps({"grace_s": grace_s}), 0o644)
    claim.bury(str(path), uid)


def members(folder: Path) -> tuple[str, ...]:
    """The tasks of a gang; empty when its folder is not complete."""
    try:
        description: dict[str, Any] = json.loads((folder / gang_launcher.GANG).read_text())
    except (OSError, ValueError):
        return ()
    return tuple(task["uid"] for task in description["tasks"])


def image_of(folder: Path, uid: str) -> tuple[str, str]:
    """The image of a task and the user name for its registry; empty where there is none."""
    try:
        description = json.loads((folder / gang_launcher.GANG).read_text())
    except OSError:  # the folder is being removed
        return "", ""
    return next(
        (task.get("image", ""), task.get("login", "")) for task in description["tasks"] if task["uid"] == uid
    )


def run_folder(home: SlurmFolders, uid: str) -> Path:
    """The part of an attempt's gang folder that its account may write to."""
    return home.gang(home.leader_of(uid) or uid) / gang_launcher.RUN


def on_node(home: SlurmFolders, uid: str) -> tuple[Path, Path] | None:
    """Paths of the runtime and the attempt folder on its node after a remote launch; None if shared."""
    description = json.loads((run_folder(home, uid).parent / gang_launcher.GANG).read_text())
    if "archive" not in description:
        return None
    own = next(Path(task["folder"]) for task in description["tasks"] if task["uid"] == uid)
    # Below its root the layout is the same as here.
    root = own.parents[len(home.task(uid).relative_to(home.root).parts) - 1]
    return root / description["archive"], own


def owner_of(folder: Path) -> int:
    """The account that owns the gang's Slurm job; -1 when the folder is being removed."""
    try:
        return (folder / gang_launcher.RUN).stat().st_uid if os.geteuid() == 0 else os.geteuid()
    except OSError:
        return -1


def job_of(path: Path) -> list[str]:
    """Options of srun that select an attempt's allocation; empty before it runs."""
    job, component = _allocation_of(path)
    return [f"--jobid={job}", *([f"--het-group={component}"] if component else [])] if job else []


def _allocation_of(path: Path) -> tuple[str, str]:
    """The Slurm job of an attempt, and its component in a heterogeneous job; empty if unknown."""
    content = untrusted_files.read_json(path / placement.PLACEMENT) or {}
    job, component = str(content.get("job", "")), str(content.get("component", ""))
    return (job, component if component.isdecimal() else "") if job.isdecimal() else ("", "")


def never_reported(folder: Path) -> bool:
    """Whether a remote launch never downloaded its bundle."""
    return (folder / TICKET).exists() and not (folder / OWNER).exists()


def output_tail(folder: Path, size: int = 600) -> str:
    """The end of the output of the batch script and of Slurm itself."""
    try:
        data = untrusted_files.tail(folder / OUTPUT, size)
    except OSError:
        return ""
    return " ".join(untrusted_files.sanitize(data.decode(errors="replace")).split())
