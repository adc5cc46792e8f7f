"""Files and command line of one container.

Three subfolders of the attempt folder are mounted in the container, under OpenPAI's runtime home: `config`
(read-only), `shared` between task and supervisor, and `work`. The attempt folder is closed to all other
accounts of the host, so that the subfolders can be open to whichever user the image has.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paicluster.engines.common import mount_specs, task_files
from paicluster.engines.common.attempt_folder import environment_marker
from paicluster.engines.common.folder_size import remove_leftover
from paicluster.engines.common.shell_exports import can_be_exported, exports
from paicluster.engines.container.attempt_files import CONTAINER_FILE, write
from paicluster.engines.container.client import ATTEMPT_LABEL, CLUSTER_LABEL, Client, mount_options
from paicluster.engines.container.gpu_options import DRIVER_FOLDER, gpu_options
from paicluster.engines.interface import LaunchFailed, Mount, TaskLaunch
from pairuntime import saved_environment
from pairuntime.local_files.replaceable_folder import is_replaceable
from pairuntime.supervisor import attempt, container_attempt, exit_record

HOME = "/usr/local/pai"
CONFIG = "config"
SHARED = "shared"
WORK = "work"
RUNTIME = f"{HOME}/runtime"

DEFAULT_SHM_MB = 512

# Init process of the container. It runs the task, reads stop requests, and writes the exit status. It relies
# on shell built-ins only; `sleep` is the only program it needs, and only while it waits.
_INIT_SCRIPT = f"""
d={HOME}/{SHARED}
pause() {{ sleep 0.05 || sleep 1; }}
(
  while read -r request; do
    until [ -e $d/{container_attempt.STARTED} ]; do pause; done
    kill -TERM -1
    kill -CONT -1
  done <$d/{container_attempt.STOP_PIPE}
  # The supervisor has exited.
  kill -KILL -1
) >/dev/null 2>&1 &
listener=$!
sh {HOME}/{CONFIG}/main.sh </dev/null >$d/stdout 2>$d/stderr
code=$?
exec 2>/dev/null
kill -KILL $listener
wait $listener
# Remaining processes get a moment to end by themselves, then SIGTERM, then end with the container.
n=0
while [ $n -lt 20 ] && kill -0 -1; do
  n=$((n + 1))
  if [ $n -eq 10 ]; then kill -TERM -1; kill -CONT -1; fi
  pause
done
oom=
for file in @counters@; do
  [ -r $file ] || continue
  while read -r name count; do
    if [ "$name" = oom_kill ] && [ "$count" -gt 0 ]; then oom=oom; fi
  done <$file
done
echo $code $oom >$d/{container_attempt.STATUS}
exit $code
"""
_COUNTERS = "/sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control"

# The whole environment of a task, for its script and for commands that are run beside it.
_ENVIRONMENT = f"""
. {HOME}/{CONFIG}/env.sh
PAI_WORK_DIR=$(pwd)
PATH=$PATH:{RUNTIME}/bin
export PAI_WORK_DIR PATH
"""
_EXEC = f"""{_ENVIRONMENT}
exec @enter@ @env@ "$@"
"""
_SESSION_FOLDER = f"{HOME}/{SHARED}/{saved_environment.FOLDER}"
_MAIN = f"""
: >{HOME}/{SHARED}/{container_attempt.STARTED}
@check@
@unpack@
{_ENVIRONMENT}
if command -v bash >/dev/null 2>&1; then
  exec @env@ bash -o errexit -o nounset -o pipefail {HOME}/{CONFIG}/task.sh
fi
exec @env@ sh -e -u {HOME}/{CONFIG}/task.sh
"""
_UNPACK = f"""
command -v tar >/dev/null 2>&1 || {{ echo 'The image has no tar to unpack the sources with.' >&2; exit 127; }}
tar -xpf {HOME}/sources.tar || {{ echo 'The sources could not be unpacked.' >&2; exit 127; }}
"""
# A task runs from the moment its container is requested, which takes a second to create. Its arguments: the
# files that tell that the container has started, and that the task has ended, then a command.
_WAIT_FOR_CONTAINER = """
started=$1 ended=$2 n=0
shift 2
until [ -e "$started" ] || [ -e "$ended" ] || [ $n -eq 1200 ]; do
  n=$((n + 1))
  sleep 0.05
done
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """How all containers of a cluster are run."""

    client: Client
    cluster: str
    runtime: Path
    # False: a network of its own, with the task's ports published.
    host_network: bool = True
    enforce_limits: bool = True
    max_processes: int = 0


def container_name(uid: str) -> str:
    return f"pai-{uid}"


def prepare(
    folder: Path,
    task: TaskLaunch,
    image: str,
    spec: Mapping[str, object],
    options: ContainerOptions,
) -> None:
    """Write everything the supervisor and the container need. `spec.json` comes last."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    client = options.client
    content = {
        "image": task.image,
        # So that a later server can exec and forward without detecting the client.
        "exec": {kind: _exec_prefix(client, folder, kind == "terminal") for kind in ("plain", "terminal")},
        "pid": _in_environment(client, client.pid(container_name(folder.name))),
    }
    write(folder / CONTAINER_FILE, json.dumps(content))
    config, shared, work = folders = _create_folders(folder)
    _check_mounts(task)
    devices, has_driver_folder = gpu_options(client, task.gpus)
    for file, text in _scripts(folder, task, options, has_driver_folder=has_driver_folder).items():
        write(config / file, text, mode=0o644)
    name = container_name(task.uid)
    key, _, marker = environment_marker(task.uid).partition("=")
    complete = {
        **spec,
        "attempt": task.uid,
        "argv": _run_arguments(task, image, name, devices, folders, options),
        "cwd": "/",
        "env": {**client.environment, key: marker},
        "secrets": list(task.secrets),
        "time_limit_s": task.time_limit_s,
        "output_upload": task_files.output_upload_spec(task, work, options.runtime.parent, sys.executable),
        "container": {
            "shared": str(shared),
            "kill": client.kill(name),
            "remove": client.command(*client.remove_arguments(name)),
        },
    }
    if storages := mount_specs.spec_of(task, folder, in_container=True):
        complete["storage_mounts"] = storages
    staging = folder / "spec.staging"
    write(staging, json.dumps(complete))
    staging.rename(folder / attempt.SPEC)


def _create_folders(folder: Path) -> tuple[Path, Path, Path]:
    """The folders that the container mounts, with the pipes: config, shared, work."""
    config, shared, work = (folder / name for name in (CONFIG, SHARED, WORK))
    # Left from a launch before the machine crashed. Root in the container may have made any link there.
    for path in (shared, work):
        remove_leftover(path)
    for path in (config, shared, work):
        path.mkdir(exist_ok=True)
    open_folders = [
        (path, 0o1777) for path in (shared, work, *map(Path, task_files.create_output_folders(work)))
    ]
    # The inner ones first: they cannot be exchanged while the outer ones are closed.
    for path, mode in ((config, 0o755), *reversed(open_folders)):
        path.chmod(mode)
    for pipe in ("stdout", "stderr", container_attempt.STOP_PIPE):
        if not (shared / pipe).exists():
            os.mkfifo(shared / pipe)
        (shared / pipe).chmod(0o666)
    return config, shared, work


def _check_mounts(task: TaskLaunch) -> None:
    """Create the folders to mount that may be created; LaunchFailed if another does not exist."""
    for mount in task.mounts:
        if mount.create:
            _create_folder(mount.source)
            _check_own_folder(mount)
        elif not mount.source.exists():
            raise LaunchFailed(f"The folder to mount at {mount.target} does not exist: {mount.source}.")


def _scripts(
    folder: Path, task: TaskLaunch, options: ContainerOptions, *, has_driver_folder: bool
) -> dict[str, str]:
    """Scripts that run in the container, by their file names."""
    environment = _environment(task)
    saves_environment = task_files.saves_environment(task)
    if saves_environment:
        environment[saved_environment.VARIABLE] = _SESSION_FOLDER
    not_exported = {name: value for name, value in environment.items() if not can_be_exported(name)}
    variables = exports(environment)
    if has_driver_folder:
        variables += f"export LD_LIBRARY_PATH={DRIVER_FOLDER}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\n"
    limited = options.enforce_limits and options.client.limits_memory and task.memory_mb > 0
    # A shell drops variables whose names it rejects; `env` sets them after the shell.
    env_command = (
        "env " + " ".join(shlex.quote(f"{key}={value}") for key, value in not_exported.items())
        if not_exported
        else ""
    )
    enter = shlex.join(saved_environment.enter(_SESSION_FOLDER, ())) if saves_environment else ""
    return {
        "init.sh": _INIT_SCRIPT.replace("@counters@", _COUNTERS if limited else ""),
        "main.sh": _MAIN.replace("@unpack@", _UNPACK if task.sources else "")
        .replace("@env@", env_command)
        .replace("@check@", mount_specs.check_script(task, folder.name)),
        "exec.sh": _EXEC.replace("@env@", env_command).replace("@enter@", enter),
        "env.sh": variables,
        "task.sh": task.script + "\n",
    }


def _create_folder(path: Path) -> None:
    """Create the folder of one user. Those above it, if there are none yet, are for all users."""
    for folder in reversed([parent for parent in path.parents if not parent.exists()]):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    path.mkdir(exist_ok=True)


def _check_own_folder(mount: Mount) -> None:
    """LaunchFailed if another account, or a task, may have replaced the folder of a user.

    The container program follows links, as root perhaps: one to `/` would give the task the whole machine.
    """
    if not stat.S_ISDIR(mount.source.lstat().st_mode):
        raise LaunchFailed(
            f"Nothing is mounted at {mount.target}: {mount.source} is no folder, and no link is followed. "
            "An administrator can replace it by a folder, or mount one there."
        )
    if is_replaceable(str(mount.source)):
        raise LaunchFailed(
            f"Nothing is mounted at {mount.target}: every account may replace {mount.source}. "
            f"An administrator has to close the folder above it: chmod o-w {mount.source.parent}."
        )


def _environment(task: TaskLaunch) -> dict[str, str]:
    variables = {
        name: value
        for name, value in {**task.shared_environment, **task.environment}.items()
        if name not in task_files.HOST_VARIABLES
    }
    # The working folder depends on the image; the output folder does not.
    variables.update(task_files.runtime_variables(variables, f"{HOME}/{WORK}", RUNTIME))
    del variables["PAI_WORK_DIR"], variables["PATH"]
    if task.gpus:
        # The container has only the GPUs of its task, counted from 0.
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(task.gpus))))
    return variables


def _run_arguments(
    task: TaskLaunch,
    image: str,
    name: str,
    devices: Sequence[str],
    folders: tuple[Path, Path, Path],
    options: ContainerOptions,
) -> list[str]:
    client = options.client
    config, shared, work = folders
    arguments = ["run", "--name", name, "--label", f"{ATTEMPT_LABEL}={task.uid}"]
    arguments += ["--label", f"{CLUSTER_LABEL}={options.cluster}", "--pull=never", "--log-driver=none"]
    arguments += ["--no-healthcheck", "--security-opt", "label=disable", "--entrypoint", "sh"]
    # Otherwise root in the container could create a device of the host on a mounted storage.
    arguments.append("--cap-drop=MKNOD")
    if client.kind == "podman":
        arguments.append("--http-proxy=false")
    arguments += ["--env", environment_marker(task.uid), *client.run_options, *devices]
    arguments += ["--shm-size", f"{task.shm_mb if task.shm_mb is not None else DEFAULT_SHM_MB}m"]
    if options.enforce_limits:
        if client.limits_cpu and task.cpu > 0:
            arguments += ["--cpus", str(task.cpu)]
        if client.limits_memory and task.memory_mb > 0:
            arguments += ["--memory", f"{task.memory_mb}m", "--memory-swap", f"{task.memory_mb}m"]
        # A client that can limit memory can limit this, too.
        if client.limits_memory and options.max_processes:
            arguments += ["--pids-limit", str(options.max_processes)]
    if options.host_network:
        # On the host's network it must not capture the traffic of others.
        arguments += ["--network=host", "--cap-drop=NET_RAW"]
    else:
        for port in sorted({port for numbers in task.ports.values() for port in numbers}):
            arguments += ["--publish", f"{port}:{port}"]
    mounts = [
        Mount(config, f"{HOME}/{CONFIG}", read_only=True),
        Mount(shared, f"{HOME}/{SHARED}"),
        Mount(work, f"{HOME}/{WORK}"),
        Mount(options.runtime.parent, RUNTIME, read_only=True),
        *task.mounts,
        *mount_specs.binds_of(task, mount_specs.folder_of(config.parent)),
    ]
    if task.sources is not None:
        mounts.append(Mount(task.sources, f"{HOME}/sources.tar", read_only=True))
        # The task's folder; without sources the image decides.
        arguments += ["--workdir", f"{HOME}/{WORK}"]
    for mount in mounts:
        arguments += mount_options(mount)
    return client.command(*arguments, image, f"{HOME}/{CONFIG}/init.sh")


def _exec_prefix(client: Client, folder: Path, terminal: bool) -> list[str]:
    marks = [str(folder / SHARED / container_attempt.STARTED), str(folder / exit_record.NAME)]
    options = ["--interactive", *(["--tty"] if terminal else [])]
    shell = ["sh", f"{HOME}/{CONFIG}/exec.sh"]
    command = client.command("exec", *options, container_name(folder.name), *shell)
    return ["/bin/sh", "-c", _WAIT_FOR_CONTAINER, "sh", *marks, *_in_environment(client, command)]


def _in_environment(client: Client, command: Sequence[str]) -> list[str]:
    """The command line with the environment of the client alone."""
    variables = [f"{name}={value}" for name, value in client.environment.items()]
    return ["/usr/bin/env", "-i", *variables, *command]
