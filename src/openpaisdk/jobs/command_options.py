"""Options of a command job from the values of a program or a job file, validated as those of ``pai sub``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from openpaisdk.errors import UsageError
from openpaisdk.jobs import option_values as values
from openpaisdk.jobs.command import as_text
from openpaisdk.jobs.command_job import JobOptions
from openpaisdk.jobs.command_submission import check_contradictions
from openpaisdk.jobs.job_names import generate_name
from openpaisdk.jobs.pre_commands import parse_variables
from openpaisdk.jobs.task_array import array_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from openpaisdk.jobs.option_values import Items
    from openpaisdk.jobs.pre_commands import Variables
    from openpaisdk.jobs.task_array import ArrayOption


def command_options(
    name: str,
    commands: Items,
    *,
    image: str = "",
    cpu: int | None = None,
    gpu: int | None = None,
    memory_mb: int | None = None,
    mem: str = "",
    ports: Items | Mapping[str, int] = (),
    virtual_cluster: str = "",
    pip_installs: Items = (),
    pip_path: str | os.PathLike[str] = "",
    python: str | os.PathLike[str] = "",
    env: Variables = (),
    secrets: Variables = (),
    instances: int = 1,
    array: ArrayOption = (),
    retries: int = 0,
    priority: str = "",
    timeout: str | float | timedelta = 0,
    after: Items = (),
    outputs: Items = (),
    workspace: str = "",
    tags: Items = (),
    debug_hold: str | float | timedelta = 0,
    capture_logging: bool = False,
) -> JobOptions:
    """The options of a job that runs shell lines, one after the other. Without a name, one is generated."""
    lines = [as_text(line) for line in values.items_of(commands, "commands")]
    if not lines or not all(line.strip() for line in lines):
        raise UsageError("There is no command to run.")
    variables, secret_variables = parse_variables(env, secrets)
    options = JobOptions(
        name or generate_name(lines[0]),
        lines,
        image=image,
        cpu=None if cpu is None else values.whole_number(cpu, 1, "cpu"),
        gpu=None if gpu is None else values.whole_number(gpu, 0, "gpu"),
        memory_mb=None if memory_mb is None else values.whole_number(memory_mb, 1, "memoryMB"),
        mem=f"{values.memory_mb(mem)}m" if mem not in ("", None) else "",
        ports=values.port_counts(ports),
        virtual_cluster=virtual_cluster,
        pip_installs=values.items_of(pip_installs, "pip_installs"),
        pip_path=os.fspath(pip_path),
        python=os.fspath(python),
        env=variables,
        secrets=secret_variables,
        instances=values.whole_number(instances, 1, "instances"),
        array=array_of(array) if array else None,
        retries=values.whole_number(retries, 0, "retries"),
        priority=values.priority_class(priority),
        time_limit_s=values.seconds(timeout) if timeout else 0,
        after=[values.dependency(text) for text in values.items_of(after, "after")],
        outputs=values.items_of(outputs, "outputs"),
        workspace=workspace,
        tags=values.items_of(tags, "tags"),
        debug_hold_s=values.seconds(debug_hold) if debug_hold else 0,
        capture_logging=capture_logging,
    )
    check_contradictions(options)
    return options
