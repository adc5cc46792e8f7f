"""Command lines that run a task's script in an image: podman, apptainer, enroot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from paicluster.engines.common import image_names
from paicluster.engines.common.shell_exports import can_be_exported
from paicluster.engines.common.task_files import HOST_VARIABLES
from paicluster.engines.interface import TaskLaunch
from paicluster.engines.slurm import node_mounts
from paicluster.engines.slurm.options import SlurmOptions
from pairuntime.slurm.allocation import ALL_GPUS
from pairuntime.slurm.slurm_attempt import NOT_STARTED

# Beside a task's script, for podman: the registry login of its image.
LOGIN = "login.json"

# Slurm's variables, for container clients that pass on only named ones.
_SLURM_VARIABLES = (
    *("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"),
    *("SLURMD_NODENAME", "SLURM_CPUS_PER_TASK", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"),
)
# bash if the node or image has it.
_SHELL = 'command -v bash >/dev/null 2>&1 && exec bash "$0"; exec sh "$0"'
# In a container: signal the start by truncating a file, which needs no disk space.
_CONTAINER_SHELL = f'{{ true >"${{0%/*}}/{NOT_STARTED}"; }} 2>/dev/null; {_SHELL}'
# The image's own programs come first.
_WITH_RUNTIME = "PATH=$PATH:$PAI_RUNTIME_DIR/bin; export PATH; "


def shell_command(script: Path) -> list[str]:
    return ["/bin/sh", "-c", _SHELL, str(script)]


def program(
    task: TaskLaunch,
    options: SlurmOptions,
    script: Path,
    work: Path,
    folders: Sequence[Path],
    variables: Iterable[str] = (),
) -> list[str]:
    """The command the supervisor starts. ``folders`` are mounted at their own paths; ``variables`` are the
    names in the environment."""
    if not task.image or not options.container:
        return shell_command(script)
    if options.container == "enroot":
        # It has no option for the working folder.
        prefix = [
            *_enroot(task, options, folders, variables),
            "sh",
            "-c",
            f'cd "$1" && {{ {_CONTAINER_SHELL}; }}',
        ]
        return [*prefix, str(script), str(work)]
    if options.container == "apptainer":
        return [*_apptainer(task, options, work, folders), "sh", "-c", _CONTAINER_SHELL, str(script)]
    prefix = _podman(task, options, script, work, folders, variables)
    return [*prefix, "sh", "-c", _WITH_RUNTIME + _CONTAINER_SHELL, str(script)]


def details(task: TaskLaunch, options: SlurmOptions, work: Path) -> dict[str, object]:
    """Further keys of the spec of a task in an image."""
    if not task.image or not options.container:
        return {}
    keys: dict[str, object] = {
        "image": task.image,
        "cleanup": cleanup(task, options),
        "exec_prefix": exec_prefix(task, options, work),
    }
    full = image_names.full_name(task.image)
    if options.container == "podman" and full != task.image:
        # A local image may have a short name; a pulled one comes from docker's default registry.
        keys["exists"] = [*_command(options), "image", "exists", task.image]
        keys["full_name"] = full
    return keys


def login(task: TaskLaunch, options: SlurmOptions) -> str | None:
    """Content of podman's login file; None if there is no login."""
    if not task.image or task.login is None or options.container != "podman":
        return None
    return image_names.login_file(task.image, task.login)


def cleanup(task: TaskLaunch, options: SlurmOptions) -> list[str]:
    """Command that removes a task's container; empty if none can be left behind."""
    if not task.image or options.container != "podman":
        return []
    return [*_command(options), "rm", "--force", "--ignore", "--time=0", f"pai-{task.uid}"]


def sessions_enter_image(task: TaskLaunch, options: SlurmOptions) -> bool:
    """Whether sessions run in the image of the task; else they run on its node, in another environment."""
    return not (task.image and options.container) or bool(exec_prefix(task, options, Path()))


def exec_prefix(task: TaskLaunch, options: SlurmOptions, work: Path) -> list[str]:
    """Prefix of a command that runs inside a task's container; empty: it runs on the host."""
    if not task.image or options.container != "podman":
        return []
    return [*_command(options), "exec", "--interactive", f"--workdir={work}", f"pai-{task.uid}"]


def _binds(task: TaskLaunch, options: SlurmOptions) -> list[str]:
    """Folders of the node at other paths of the container, as all three programs write them."""
    mounts = [*task.mounts, *node_mounts.binds_of(task, options)]
    return [f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}" for mount in mounts]


def _command(options: SlurmOptions) -> tuple[str, ...]:
    """podman up to its verb. Its warnings would be lines of the task's log: version 5 writes one at each call
    where a node has cgroups v1."""
    said = options.container_command or ("podman",)
    return said if any(word.startswith("--log-level") for word in said) else (*said, "--log-level=error")


def _podman(
    task: TaskLaunch,
    options: SlurmOptions,
    script: Path,
    work: Path,
    folders: Sequence[Path],
    variables: Iterable[str],
) -> list[str]:
    registry = image_names.registry_of(str(task.image))
    arguments = [*_command(options), "run", "--rm", f"--name=pai-{task.uid}"]
    arguments.append(f"--pull={'never' if registry == 'localhost' else 'missing'}")
    if image_names.is_local_registry(registry):
        arguments.append("--tls-verify=false")
    if task.login is not None:
        arguments.append(f"--authfile={script.with_name(LOGIN)}")
    arguments += ["--network=host", "--ipc=host", f"--workdir={work}", "--entrypoint="]
    # The account owns the folders and is root inside, whatever user the image names.
    arguments += ["--user=0:0", "--security-opt=label=disable", "--no-healthcheck", "--log-driver=none"]
    # Names only: podman takes the values from its own environment; the node's variables stay outside.
    arguments += [f"--env={name}" for name in variables if name not in HOST_VARIABLES and "*" not in name]
    arguments += ["--env=SLURM*", f"--env=PAI_WORK_DIR={work}"]
    arguments += [f"--volume={folder}:{folder}" for folder in folders]
    arguments += [f"--volume={bind}" for bind in _binds(task, options)]
    if task.gpu_count:
        # Replaced on the node, where the numbers are known.
        arguments += [ALL_GPUS, "--env=CUDA_VISIBLE_DEVICES"]
    return [*arguments, *options.container_options, str(task.image)]


def _apptainer(task: TaskLaunch, options: SlurmOptions, work: Path, folders: Sequence[Path]) -> list[str]:
    arguments = [*(options.container_command or ("apptainer",)), "exec", f"--pwd={work}"]
    arguments += [f"--bind={folder}" for folder in folders]
    arguments += [f"--bind={bind}" for bind in _binds(task, options)]
    if task.gpu_count:
        arguments.append("--nv")
    image = str(task.image)
    known = image.startswith("/") or "://" in image
    return [*arguments, *options.container_options, image if known else f"docker://{image}"]


def _enroot(
    task: TaskLaunch, options: SlurmOptions, folders: Sequence[Path], variables: Iterable[str]
) -> list[str]:
    """The image is a squashfs file, or one that `enroot import` made beforehand under its name."""
    arguments = [*(options.container_command or ("enroot",)), "start", "--rw"]
    # Names only: enroot takes the values from its own environment, so none is on a command line.
    arguments += [
        f"--env={name}" for name in dict.fromkeys((*variables, *_SLURM_VARIABLES)) if can_be_exported(name)
    ]
    arguments += [f"--mount={folder}:{folder}" for folder in folders]
    arguments += [f"--mount={bind}" for bind in _binds(task, options)]
    return [*arguments, *options.container_options, str(task.image)]
