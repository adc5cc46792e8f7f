"""The command lines by which a gang becomes an allocation. Pure: what is sent can be looked at beforehand."""

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

# Between the end of a task's own limit and Slurm's: Slurm's is only for when ours fails.
_TIME_MARGIN_S = 120
_COMMENT = "pai:"
# What root may do and the job's user may not, where sbatch is called by root: to come before everybody else,
# to go where he is not let in, to read root's files, to restart nodes.
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
# Whole names that others begin with: --mem is not short for --mem-bind.
_WHOLE = ("--gpus", "--gres", "--mem", "--ntasks", "--time")
# These read a file when they are given one.
_LISTS = ("nodelist", "exclude")
_LONGEST_EXTRAS = 16384


@dataclass(frozen=True, slots=True)
class Component:
    """Tasks that need the same, by their place in the gang: one part of an allocation."""

    cpu: int
    memory_mb: int
    gpus: int
    members: tuple[int, ...]


def components(gang: Sequence[TaskLaunch]) -> list[Component]:
    """One for each kind of need, in the order of the tasks."""
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
    """The words that submit this gang; the script is `batch_script`. ``account``: whose job it is to be."""
    first = gang[0]
    extras = check_extras(first.options.get("slurm", ()), for_others=account is not None)
    share = _share(first.vc, options)
    _check_against(extras, share, first.vc)
    for task in gang:
        if task.image and (task.image.startswith("-") or not task.image.isprintable()):
            raise _refused(f"{task.image!r} is no name of an image.")
    words = ["sbatch", "--parsable"]
    for number, component in enumerate(components(gang)):
        if number:
            words.append(":")
        words += _resources(component, options, alone=len(gang) == 1)
        # Of two options that say the same the later holds: the cluster's own.
        words += [*extras, *share, *_time(first)]
        words += [
            f"--job-name={_job_name(first)}",
            f"--comment={_COMMENT}{first.uid}",
            f"--output={folder / 'run' / 'slurm.out' if options.shared else '/dev/null'}",
            "--no-requeue",
            "--open-mode=append",
            f"--chdir={folder / 'run' if options.shared else options.node_folder}",
            "--export=ALL",
        ]
        if account is not None:
            words += [f"--uid={account[0]}", f"--gid={account[1]}"]
    words.append(str(folder / "batch.sh"))
    return words


def check_extras(said: object, *, for_others: bool = False) -> list[str]:
    """Any option is passed on, but none that would make the job another's, or several."""
    if not isinstance(said, list | tuple):
        raise _refused("Options of sbatch are a list of words, such as [--constraint=a100].")
    words = [str(word) for word in said]
    if not all(word.isprintable() for word in words) or sum(map(len, words)) > _LONGEST_EXTRAS:
        raise _refused("Options of sbatch must be printable, and not thousands of characters long.")
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            raise _refused(f"{word!r} is no option of sbatch in one word, such as --constraint=a100.")
        name = option.option_name(word)
        if not name:
            raise _refused(
                f"The option {word} of sbatch must be given by its long name, such as {option.EXAMPLE}."
            )
        if option.is_reserved(name) or (for_others and option.matches_any(name, _PRIVILEGED)):
            raise _refused(f"The option {word} of sbatch is the cluster's own.")
        if for_others and "/" in word and option.matches_any(name, _LISTS):
            raise _refused(f"The option {word} of sbatch names a file; name the nodes.")
    return words


def _check_against(extras: Sequence[str], share: Sequence[str], vc: str) -> None:
    """What the virtual cluster decides would hold without a word, and the job be not what was asked for."""
    for word in extras:
        name = word.partition("=")[0]
        for own in share:
            its_name = own.partition("=")[0]
            if its_name == name or (name not in _WHOLE and its_name.startswith(name)):
                raise _refused(f"The option {word} of sbatch is the cluster's own: {vc} has {own}.")


def _refused(message: str) -> LaunchFailed:
    return LaunchFailed(message, transient=False)


def uid_of(comment: str) -> str:
    """The gang that a job of Slurm is; empty for a job that is none of ours."""
    return comment.removeprefix(_COMMENT) if comment.startswith(_COMMENT) else ""


def _resources(component: Component, options: SlurmOptions, *, alone: bool) -> list[str]:
    tasks = len(component.members)
    words = [f"--ntasks={tasks}", f"--cpus-per-task={component.cpu}"]
    if component.memory_mb:
        memory = component.memory_mb + options.overhead_mb * (1 if alone else 2)
        # sbatch takes no two ways to ask for memory, not even for different components.
        if alone:
            words.append(f"--mem={memory}M")
        else:
            words.append(f"--mem-per-cpu={math.ceil(memory / component.cpu)}M")
    if component.gpus:
        if alone:
            words.append(f"--gres={options.gres}:{component.gpus}")
        else:
            kind = options.gres.partition(":")[2]
            words.append(f"--gpus-per-task={kind + ':' if kind else ''}{component.gpus}")
    if tasks == 1:
        words.append("--nodes=1")
    return words


def _share(vc: str, options: SlurmOptions) -> list[str]:
    share = options.share(vc)
    words = [
        f"--{name}={value}"
        for name, value in (("partition", share.partition), ("account", share.account), ("qos", share.qos))
        if value
    ]
    return words + list(share.options)


def _time(task: TaskLaunch) -> list[str]:
    if task.time_limit_s is None:
        return []
    return [f"--time={math.ceil((task.time_limit_s + _TIME_MARGIN_S) / 60)}"]


def _job_name(task: TaskLaunch) -> str:
    return re.sub(r"[^\w.~-]", "_", f"{task.owner}~{task.job}" if task.job else "pai")[:200]


def srun_options(component: Component) -> list[str]:
    """How srun starts the tasks of one component."""
    words = [f"--ntasks={len(component.members)}", f"--cpus-per-task={component.cpu}"]
    if component.gpus:
        words.append(f"--gpus-per-task={component.gpus}")
    return words


def batch_script(options: SlurmOptions, archive: Path, folder: Path, *, alone: bool) -> str:
    words = loader(archive, folder) if alone else ["-I", "-S", str(archive), "slurm", str(folder)]
    return f"#!/bin/sh\nexec {shlex.join([options.python, *words])}\n"
