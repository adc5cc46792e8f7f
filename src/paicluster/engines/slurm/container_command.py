"""How a task's script is run in an image, by the programs that Slurm clusters have for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from paicluster.engines.common import image_names
from paicluster.engines.common.shell_exports import can_be_exported
from paicluster.engines.common.task_files import HOST_VARIABLES
from paicluster.engines.interface import TaskLaunch
from paicluster.engines.slurm.options import SlurmOptions
from pairuntime.slurm.placement import ALL_GPUS
from pairuntime.slurm.slurm_attempt import NOT_STARTED

# Beside a task's script, for podman: the login of its image's registry.
LOGIN = "login.json"

# What Slurm says to a task, for programs that pass on only what they are told to.
_OF_SLURM = (
    *("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"),
    *("SLURMD_NODENAME", "SLURM_CPUS_PER_TASK", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"),
)
# The best shell there is.
_SHELL = 'command -v bash >/dev/null 2>&1 && exec bash "$0"; exec sh "$0"'
# In a container: that it began is told by emptying a file, which takes no room on any disk.
_INSIDE = f'{{ true >"${{0%/*}}/{NOT_STARTED}"; }} 2>/dev/null; {_SHELL}'
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
    """What the supervisor starts. ``folders`` are those the task needs to see at their own places;
    ``variables`` the names of what is in its environment."""
    if not task.image or not options.container:
        return shell_command(script)
    if options.container == "enroot":
        # It knows no working folder.
        begin = [*_enroot(task, options, folders, variables), "sh", "-c", f'cd "$1" && {{ {_INSIDE}; }}']
        return [*begin, str(script), str(work)]
    if options.container == "apptainer":
        return [*_apptainer(task, options, work, folders), "sh", "-c", _INSIDE, str(script)]
    begin = _podman(task, options, script, work, folders, variables)
    return [*begin, "sh", "-c", _WITH_RUNTIME + _INSIDE, str(script)]


def details(task: TaskLaunch, options: SlurmOptions, work: Path) -> dict[str, object]:
    """What the supervisor has to know of a task in an image, beside the program."""
    if not task.image or not options.container:
        return {}
    found: dict[str, object] = {
        "image": task.image,
        "cleanup": cleanup(task, options),
        "exec_prefix": exec_prefix(task, options, work),
    }
    full = image_names.full_name(task.image)
    if options.container == "podman" and full != task.image:
        # A node's own image may have a short name; one that has to be pulled comes from where docker would.
        found["exists"] = [*_command(options), "image", "exists", task.image]
        found["full_name"] = full
    return found


def login(task: TaskLaunch, options: SlurmOptions) -> str | None:
    """What podman reads the login from; None where there is none to read."""
    if not task.image or task.login is None or options.container != "podman":
        return None
    return image_names.login_file(task.image, task.login)


def cleanup(task: TaskLaunch, options: SlurmOptions) -> list[str]:
    """What removes whatever is left of a task in an image; nothing where nothing can be."""
    if not task.image or options.container != "podman":
        return []
    return [*_command(options), "rm", "--force", "--ignore", "--time=0", f"pai-{task.uid}"]


def exec_prefix(task: TaskLaunch, options: SlurmOptions, work: Path) -> list[str]:
    """What comes before a command that is to run beside a task in its image; nothing: it runs on the host."""
    if not task.image or options.container != "podman":
        return []
    return [*_command(options), "exec", "--interactive", f"--workdir={work}", f"pai-{task.uid}"]


def _command(options: SlurmOptions) -> tuple[str, ...]:
    return options.container_command or ("podman",)


def _podman(
    task: TaskLaunch,
    options: SlurmOptions,
    script: Path,
    work: Path,
    folders: Sequence[Path],
    variables: Iterable[str],
) -> list[str]:
    registry = image_names.registry_of(str(task.image))
    words = [*_command(options), "run", "--rm", f"--name=pai-{task.uid}"]
    words.append(f"--pull={'never' if registry == 'localhost' else 'missing'}")
    if image_names.is_local_registry(registry):
        words.append("--tls-verify=false")
    if task.login is not None:
        words.append(f"--authfile={script.with_name(LOGIN)}")
    words += ["--network=host", "--ipc=host", f"--workdir={work}", "--entrypoint="]
    # Whose folders these are is the account, and that is root inside, whatever user the image names.
    words += ["--user=0:0", "--security-opt=label=disable", "--no-healthcheck", "--log-driver=none"]
    # Names alone: it takes the values from its own environment, of which the node's part stays outside.
    words += [f"--env={name}" for name in variables if name not in HOST_VARIABLES and "*" not in name]
    words += ["--env=SLURM*", f"--env=PAI_WORK_DIR={work}"]
    words += [f"--volume={folder}:{folder}" for folder in folders]
    words += [
        f"--volume={mount.source}:{mount.target}{':ro' if mount.read_only else ''}" for mount in task.mounts
    ]
    if task.gpu_count:
        # Which they are is known on the node.
        words += [ALL_GPUS, "--env=CUDA_VISIBLE_DEVICES"]
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
