"""How a task's script is run in an image, by the programs that Slurm clusters have for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from paicluster.engines.exports import can_be_exported
from paicluster.engines.interface import TaskLaunch
from paicluster.engines.slurm.options import SlurmOptions
from pairuntime.slurm.place import ALL_GPUS

# What Slurm says to a task, for programs that pass on only what they are told to.
_OF_SLURM = (
    *("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"),
    *("SLURMD_NODENAME", "SLURM_CPUS_PER_TASK", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"),
)
# The best shell there is.
_SHELL = 'command -v bash >/dev/null 2>&1 && exec bash "$0"; exec sh "$0"'


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
    """What the supervisor starts. ``folders`` are those the task needs to see at their own places;
    ``variables`` the names of what is in its environment."""
    if not task.image or not options.container:
        return shell_command(script)
    if options.container == "enroot":
        # It knows no working folder.
        begin = [*_enroot(task, options, folders, variables), "sh", "-c", f'cd "$1" && {{ {_SHELL}; }}']
        return [*begin, str(script), str(work)]
    build = {"podman": _podman, "apptainer": _apptainer}[options.container]
    return [*build(task, options, work, folders), "sh", "-c", _SHELL, str(script)]


def cleanup(task: TaskLaunch, options: SlurmOptions) -> list[str]:
    """What removes whatever is left of a task in an image; nothing where nothing can be."""
    if not task.image or options.container != "podman":
        return []
    command = options.container_command or ("podman",)
    return [*command, "rm", "--force", "--ignore", "--time=0", f"pai-{task.uid}"]


def entering(task: TaskLaunch, options: SlurmOptions, work: Path) -> list[str]:
    """What comes before a command that is to run beside a task in its image; nothing: it runs on the host."""
    if not task.image or options.container != "podman":
        return []
    command = options.container_command or ("podman",)
    return [*command, "exec", "--interactive", f"--workdir={work}", f"pai-{task.uid}"]


def _podman(task: TaskLaunch, options: SlurmOptions, work: Path, folders: Sequence[Path]) -> list[str]:
    words = [
        *(options.container_command or ("podman",)),
        "run",
        "--rm",
        f"--name=pai-{task.uid}",
        "--pull=missing",
    ]
    # What the supervisor gave it is the task's whole environment.
    words += ["--env-host", "--network=host", "--ipc=host", f"--workdir={work}", "--entrypoint="]
    words += [f"--volume={folder}:{folder}" for folder in folders]
    words += [
        f"--volume={mount.source}:{mount.target}{':ro' if mount.read_only else ''}" for mount in task.mounts
    ]
    if task.gpu_count:
        words.append(ALL_GPUS)
    return [*words, *options.container_options, str(task.image)]


def _apptainer(task: TaskLaunch, options: SlurmOptions, work: Path, folders: Sequence[Path]) -> list[str]:
    words = [*(options.container_command or ("apptainer",)), "exec", f"--pwd={work}"]
    words += [f"--bind={folder}" for folder in folders]
    words += [
        f"--bind={mount.source}:{mount.target}{':ro' if mount.read_only else ''}" for mount in task.mounts
    ]
    if task.gpu_count:
        words.append("--nv")
    image = str(task.image)
    known = image.startswith("/") or "://" in image
    return [*words, *options.container_options, image if known else f"docker://{image}"]


def _enroot(
    task: TaskLaunch, options: SlurmOptions, folders: Sequence[Path], variables: Iterable[str]
) -> list[str]:
    """An image is a squashfs file, or one that `enroot import` has made beforehand under its name."""
    words = [*(options.container_command or ("enroot",)), "start", "--rw"]
    # Names alone: it takes the values from its own environment, and nobody reads them on a command line.
    words += [f"--env={name}" for name in dict.fromkeys((*variables, *_OF_SLURM)) if can_be_exported(name)]
    words += [f"--mount={folder}:{folder}" for folder in folders]
    words += [
        f"--mount={mount.source}:{mount.target}{':ro' if mount.read_only else ''}" for mount in task.mounts
    ]
    return [*words, *options.container_options, str(task.image)]
