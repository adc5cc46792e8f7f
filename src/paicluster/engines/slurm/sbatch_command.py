"""Command lines of sbatch and srun for a gang. Pure functions."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paicluster.engines.interface import LaunchFailed, TaskLaunch
from paicluster.engines.slurm import sbatch_options as option
from paicluster.engines.slurm.options import SlurmOptions
from paicluster.engines.slurm.runtime_archive import loader

# Between a task's own time limit and Slurm's, which only applies when the supervisor's fails.
_TIME_MARGIN_S = 120
# Memory of the process that serves a storage: its libraries, and what it reads ahead.
_MOUNT_MB = 256
_COMMENT = "pai:"
# Options that root may use but the job's user may not, where root calls sbatch: to raise priorities, to use
# partitions without access, to read root's files, to reboot nodes.
_PRIVILEGED = (
    "nice",
    "priority",
    "reservation",
    "hold",
    "nodefile",
    "bbf",
    "licenses",
    "partition",
    "account",
    "qos",
    "reboot",
    "core-spec",
    "thread-spec",
    "get-user-env",
    "propagate",
    "mcs-label",
)
# Full names that are prefixes of others: --mem is no abbreviation of --mem-bind.
_FULL_NAMES = ("--gpus", "--gres", "--mem", "--ntasks", "--time")
# Options that read a file if the value is a path.
_NODE_LISTS = ("nodelist", "exclude")
_MAX_EXTRA_CHARACTERS = 16384


@dataclass(frozen=True, slots=True)
class Component:
    """Tasks with the same resource request, by their index in the gang: one component of an allocation."""

    cpu: int
    memory_mb: int
    gpus: int
    members: tuple[int, ...]


def components(gang: Sequence[TaskLaunch]) -> list[Component]:
    """One for each distinct resource request, in the order of the tasks."""
    kinds: dict[tuple[int, int, int], list[int]] = {}
    for number, task in enumerate(gang):
        kinds.setdefault((max(1, task.cpu), task.memory_mb, task.gpu_count), []).append(number)
    return [Component(cpu, mb, gpus, tuple(members)) for (cpu, mb, gpus), members in kinds.items()]


def sbatch(
    gang: Sequence[TaskLaunch],
    options: SlurmOptions,
    folder: Path,
    *,
    account: tuple[int, int] | None = None,
) -> list[str]:
    """The command that submits a gang; its script is `batch_script`. ``account``: uid and gid of the job."""
    first = gang[0]
    extras = check_extras(first.options.get("slurm", ()), as_root=account is not None)
    queue = _queue_options(first.vc, options)
    _check_conflicts(extras, queue, first.vc)
    for task in gang:
        if task.image and (task.image.startswith("-") or not task.image.isprintable()):
            raise _rejected(f"{task.image!r} is not a valid image name.")
    arguments = ["sbatch", "--parsable"]
    for number, component in enumerate(components(gang)):
        if number:
            arguments.append(":")
        extra_mb = _MOUNT_MB * len(first.storage_mounts)
        arguments += _resources(component, options, extra_mb, alone=len(gang) == 1)
        arguments += node_options(component, first.tasks_per_node)
        # Of two equal options the later one counts: the cluster's own.
        arguments += [*extras, *queue, *_time(first)]
        arguments += [
            f"--job-name={_job_name(first)}",
            f"--comment={_COMMENT}{first.uid}",
            f"--output={folder / 'run' / 'slurm.out' if options.shared else '/dev/null'}",
            "--no-requeue",
            "--open-mode=append",
            f"--chdir={folder / 'run' if options.shared else options.node_folder}",
            "--export=ALL",
        ]
        if account is not None:
            arguments += [f"--uid={account[0]}", f"--gid={account[1]}"]
    arguments.append(str(folder / "batch.sh"))
    return arguments


def check_extras(extras: object, *, as_root: bool = False) -> list[str]:
    """Options of sbatch from a job. Any is passed on except those that change the job's owner or number."""
    if not isinstance(extras, list | tuple):
        raise _rejected("Options of sbatch must be a list of strings, such as [--constraint=a100].")
    checked = [str(extra) for extra in extras]
    if not all(extra.isprintable() for extra in checked) or sum(map(len, checked)) > _MAX_EXTRA_CHARACTERS:
        raise _rejected("Options of sbatch must be printable, and not longer than 16384 characters in all.")
    for extra in checked:
        if not extra.startswith("-") or extra in ("-", "--"):
            raise _rejected(f"{extra!r} is not an option of sbatch in one string, such as --constraint=a100.")
        name = option.option_name(extra)
        if not name:
            raise _rejected(
                f"The option {extra} of sbatch must be given by its long name, such as {option.EXAMPLE}."
            )
        if option.is_reserved(name) or (as_root and option.matches_any(name, _PRIVILEGED)):
            raise _rejected(f"The option {extra} of sbatch is reserved for the cluster.")
        if as_root and "/" in extra and option.matches_any(name, _NODE_LISTS):
            raise _rejected(f"The option {extra} of sbatch names a file; name the nodes.")
    return checked


def _check_conflicts(extras: Sequence[str], queue: Sequence[str], vc: str) -> None:
    """Reject options that the virtual cluster sets: they would be overridden silently."""
    for extra in extras:
        name = extra.partition("=")[0]
        for own in queue:
            own_name = own.partition("=")[0]
            if own_name == name or (name not in _FULL_NAMES and own_name.startswith(name)):
                raise _rejected(f"The option {extra} of sbatch is set by the virtual cluster {vc}: {own}.")


def _rejected(message: str) -> LaunchFailed:
    return LaunchFailed(message, transient=False)


def uid_of(comment: str) -> str:
    """The gang of a Slurm job; empty for a job of others."""
    return comment.removeprefix(_COMMENT) if comment.startswith(_COMMENT) else ""


def _resources(component: Component, options: SlurmOptions, extra_mb: int, *, alone: bool) -> list[str]:
    """Options for the resources of a component. ``extra_mb``: memory of each task beside its program's."""
    tasks = len(component.members)
    arguments = [f"--ntasks={tasks}", f"--cpus-per-task={component.cpu}"]
    if component.memory_mb:
        memory = component.memory_mb + extra_mb + options.overhead_mb * (1 if alone else 2)
        # sbatch accepts only one kind of memory option, even across components.
        if alone:
            arguments.append(f"--mem={memory}M")
        else:
            arguments.append(f"--mem-per-cpu={math.ceil(memory / component.cpu)}M")
    if component.gpus:
        if alone:
            arguments.append(f"--gres={options.gres}:{component.gpus}")
        else:
            kind = options.gres.partition(":")[2]
            arguments.append(f"--gpus-per-task={kind + ':' if kind else ''}{component.gpus}")
    if tasks == 1:
        arguments.append("--nodes=1")
    return arguments


def node_options(component: Component, tasks_per_node: int) -> list[str]:
    """Options of sbatch and srun that give consecutive tasks one node; none if they do not fill nodes."""
    nodes, rest = divmod(len(component.members), tasks_per_node)
    if tasks_per_node == 1 or rest:
        return []
    return [f"--nodes={nodes}", f"--ntasks-per-node={tasks_per_node}", "--distribution=block"]


def _queue_options(vc: str, options: SlurmOptions) -> list[str]:
    queue = options.queue_of(vc)
    arguments = [
        f"--{name}={value}"
        for name, value in (("partition", queue.partition), ("account", queue.account), ("qos", queue.qos))
        if value
    ]
    return arguments + list(queue.options)


def _time(task: TaskLaunch) -> list[str]:
    if task.time_limit_s is None:
        return []
    return [f"--time={math.ceil((task.time_limit_s + _TIME_MARGIN_S) / 60)}"]


def _job_name(task: TaskLaunch) -> str:
    return re.sub(r"[^\w.~-]", "_", f"{task.owner}~{task.job}" if task.job else "pai")[:200]


def srun_options(component: Component, tasks_per_node: int = 1) -> list[str]:
    """Options of srun for the tasks of one component."""
    arguments = [f"--ntasks={len(component.members)}", f"--cpus-per-task={component.cpu}"]
    if component.gpus:
        arguments.append(f"--gpus-per-task={component.gpus}")
    return arguments + node_options(component, tasks_per_node)


def batch_script(options: SlurmOptions, archive: Path, folder: Path, *, alone: bool) -> str:
    arguments = loader(archive, folder) if alone else ["-I", "-S", str(archive), "slurm", str(folder)]
    return f"#!/bin/sh\nexec {shlex.join([options.python, *arguments])}\n"
