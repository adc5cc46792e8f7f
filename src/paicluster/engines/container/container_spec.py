"""What lies in an attempt's folder for a task in a container, and the words that run it.

Three folders below the attempt's own are seen inside, under OpenPAI's runtime home: what the task is told
(read-only), what it shares with its supervisor, and a place to work in. The attempt's own folder is closed
to everybody else on the host, so that these can be open to whichever user the image has.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paicluster.engines.common import task_files
from paicluster.engines.common.attempt_folder import environment_marker
from paicluster.engines.common.shell_exports import can_be_exported, exports
from paicluster.engines.container.attempt_files import CONTAINER_FILE, write
from paicluster.engines.container.client import ATTEMPT_LABEL, CLUSTER_LABEL, Client, mount_options
from paicluster.engines.container.gpu_options import DRIVER_FOLDER, gpu_options
from paicluster.engines.interface import LaunchFailed, Mount, TaskLaunch
from pairuntime.supervisor import attempt, container_attempt

HOME = "/usr/local/pai"
CONFIG = "told"
SHARED = "shared"
WORK = "work"
RUNTIME = f"{HOME}/runtime"

DEFAULT_SHM_MB = 512

# The first process inside. It runs the task, listens for the request to stop, and has the last word. It may
# use nothing but what every shell has; `sleep` is the only program it needs, and only while it waits.
_INIT_SCRIPT = f"""
d={HOME}/{SHARED}
nap() {{ sleep 0.05 || sleep 1; }}
(
  while read -r word; do
    until [ -e $d/{container_attempt.STARTED} ]; do nap; done
    kill -TERM -1
    kill -CONT -1
  done <$d/{container_attempt.STOP_PIPE}
  # Whoever holds us is gone.
  kill -KILL -1
) >/dev/null 2>&1 &
listener=$!
sh {HOME}/{CONFIG}/main.sh </dev/null >$d/stdout 2>$d/stderr
code=$?
exec 2>/dev/null
kill -KILL $listener
wait $listener
# What it left gets a moment to end by itself, then is asked, then ends with us.
n=0
while [ $n -lt 20 ] && kill -0 -1; do
  n=$((n + 1))
  if [ $n -eq 10 ]; then kill -TERM -1; kill -CONT -1; fi
  nap
done
oom=
for file in @counters@; do
  [ -r $file ] || continue
  while read -r what count; do
    if [ "$what" = oom_kill ] && [ "$count" -gt 0 ]; then oom=oom; fi
  done <$file
done
echo $code $oom >$d/{container_attempt.STATUS}
exit $code
"""
_COUNTERS = "/sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control"

_MAIN = f"""
: >{HOME}/{SHARED}/{container_attempt.STARTED}
. {HOME}/{CONFIG}/env.sh
@unpack@
PAI_WORK_DIR=$(pwd)
PATH=$PATH:{RUNTIME}/bin
export PAI_WORK_DIR PATH
if command -v bash >/dev/null 2>&1; then
  exec @odd@ bash -o errexit -o nounset -o pipefail {HOME}/{CONFIG}/task.sh
fi
exec @odd@ sh -e -u {HOME}/{CONFIG}/task.sh
"""
_UNPACK = f"""
command -v tar >/dev/null 2>&1 || {{ echo 'The image has no tar to unpack the sources with.' >&2; exit 127; }}
tar -xpf {HOME}/sources.tar || {{ echo 'The sources could not be unpacked.' >&2; exit 127; }}
"""


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """How all containers of a cluster are run."""

    client: Client
    cluster: str
    runtime: Path
    # Else its own network, with the task's ports published.
    host_network: bool = True
    enforce_limits: bool = True


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
    name = container_name(task.uid)
    kept = {
        "image": task.image,
        # So that a later server needs to find out nothing to get in.
        "inside": {kind: _inside(client, task.uid, kind == "terminal") for kind in ("plain", "terminal")},
    }
    write(folder / CONTAINER_FILE, json.dumps(kept))
    told, shared, work = (folder / part for part in (CONFIG, SHARED, WORK))
    for path in (told, shared, work):
        path.mkdir(exist_ok=True)
    opened = [(path, 0o1777) for path in (shared, work, *map(Path, task_files.create_output_folders(work)))]
    for path, mode in ((told, 0o755), *opened):
        path.chmod(mode)
    for pipe in ("stdout", "stderr", container_attempt.STOP_PIPE):
        if not (shared / pipe).exists():
            os.mkfifo(shared / pipe)
        (shared / pipe).chmod(0o666)
    for mount in task.mounts:
        if mount.create:
            mount.source.mkdir(parents=True, exist_ok=True)
        elif not mount.source.exists():
            raise LaunchFailed(f"What is to be mounted at {mount.target} is not there: {mount.source}.")
    devices, by_hand = gpu_options(client, task.gpus)
    environment = _environment(task)
    odd = {name: value for name, value in environment.items() if not can_be_exported(name)}
    told_variables = exports(environment)
    if by_hand:
        told_variables += f"export LD_LIBRARY_PATH={DRIVER_FOLDER}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\n"
    limited = options.enforce_limits and client.limits_memory and task.memory_mb > 0
    # A shell drops names it cannot have itself; this hands them past it.
    past = "env " + " ".join(shlex.quote(f"{key}={value}") for key, value in odd.items()) if odd else ""
    texts = {
        "init.sh": _INIT_SCRIPT.replace("@counters@", _COUNTERS if limited else ""),
        "main.sh": _MAIN.replace("@unpack@", _UNPACK if task.sources else "").replace("@odd@", past),
        "env.sh": told_variables,
        "task.sh": task.script + "\n",
    }
    for file, text in texts.items():
        write(told / file, text, mode=0o644)
    words = _run_arguments(task, image, name, devices, (told, shared, work), options)
    key, _, mark = environment_marker(task.uid).partition("=")
    whole = {
        **spec,
        "attempt": task.uid,
        "argv": words,
        "cwd": "/",
        "env": {**client.environment, key: mark},
        "mask": list(task.secrets),
        "time_limit_s": task.time_limit_s,
        "keep": task_files.output_upload_spec(task, work, options.runtime.parent, sys.executable),
        "container": {
            "shared": str(shared),
            "kill": client.kill(name),
            "remove": client.command(*client.remove_arguments(name)),
        },
    }
    aside = folder / "spec.aside"
    write(aside, json.dumps(whole))
    aside.rename(folder / attempt.SPEC)


def _environment(task: TaskLaunch) -> dict[str, str]:
    found = {
        name: value
        for name, value in {**task.shared_environment, **task.environment}.items()
        if name not in task_files.HOST_VARIABLES
    }
    # Where it works depends on its image; where its results go does not.
    found.update(task_files.runtime_variables(found, f"{HOME}/{WORK}", RUNTIME))
    del found["PAI_WORK_DIR"], found["PATH"]
    if task.gpus:
        # Inside, those it has are all there are, and are counted from 0.
        found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(task.gpus))))
    return found


def _run_arguments(
    task: TaskLaunch,
    image: str,
    name: str,
    devices: Sequence[str],
    folders: tuple[Path, Path, Path],
    options: ContainerOptions,
) -> list[str]:
    client = options.client
    told, shared, work = folders
    words = ["run", "--name", name, "--label", f"{ATTEMPT_LABEL}={task.uid}"]
    words += ["--label", f"{CLUSTER_LABEL}={options.cluster}", "--pull=never", "--log-driver=none"]
    words += ["--no-healthcheck", "--security-opt", "label=disable", "--entrypoint", "sh"]
    # Else root inside could leave a device of the host on a storage, for anybody who logs in there.
    words.append("--cap-drop=MKNOD")
    if client.kind == "podman":
        words.append("--http-proxy=false")
    words += ["--env", environment_marker(task.uid), *client.run_options, *devices]
    words += ["--shm-size", f"{task.shm_mb if task.shm_mb is not None else DEFAULT_SHM_MB}m"]
    if options.enforce_limits:
        if client.limits_cpu and task.cpu > 0:
            words += ["--cpus", str(task.cpu)]
        if client.limits_memory and task.memory_mb > 0:
            words += ["--memory", f"{task.memory_mb}m", "--memory-swap", f"{task.memory_mb}m"]
    if options.host_network:
        # On the host's network it must not be able to listen to what others say there.
        words += ["--network=host", "--cap-drop=NET_RAW"]
    else:
        for port in sorted({port for numbers in task.ports.values() for port in numbers}):
            words += ["--publish", f"{port}:{port}"]
    mounts = [
        Mount(told, f"{HOME}/{CONFIG}", read_only=True),
        Mount(shared, f"{HOME}/{SHARED}"),
        Mount(work, f"{HOME}/{WORK}"),
        Mount(options.runtime.parent, RUNTIME, read_only=True),
        *task.mounts,
    ]
    if task.sources is not None:
        mounts.append(Mount(task.sources, f"{HOME}/sources.tar", read_only=True))
        # Its own folder; without sources it begins where the image says.
        words += ["--workdir", f"{HOME}/{WORK}"]
    for mount in mounts:
        words += mount_options(mount)
    return client.command(*words, image, f"{HOME}/{CONFIG}/init.sh")


def _inside(client: Client, uid: str, terminal: bool) -> list[str]:
    options = ["--interactive", *(["--tty"] if terminal else [])]
    # With what the task itself was told.
    shell = ["sh", "-c", f'. {HOME}/{CONFIG}/env.sh; exec "$@"', "sh"]
    passed = [f"{name}={value}" for name, value in client.environment.items()]
    return ["/usr/bin/env", "-i", *passed, *client.command("exec", *options, container_name(uid), *shell)]
