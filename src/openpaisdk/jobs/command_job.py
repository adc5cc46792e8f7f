"""Job that runs one command (``pai sub``, ``Job.one_liner``), as data of OpenPAI's job protocol, version 2.

`JobOptions` holds what the user gave; ``command_job`` fills in the defaults of the cluster's entry and of the
settings, and returns the job. Nothing is validated or sent here.
"""

from __future__ import annotations

import os
import sys

from openpaisdk.jobs.command import as_text
from openpaisdk.jobs.job_options import (
    CLUSTER_RESOURCES,
    EMBEDDED_RESOURCES,
    JOB_OPTIONS,
    JobOptions,
    ResourceOptions,
)
from openpaisdk.jobs.option_definition import PRE_COMMANDS
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from openpaisdk.config.clusters import ClusterEntry
    from openpaisdk.config.defaults import Defaults

ROLE = "main"
DEPLOYMENT = "sdk_deployment"
IMAGE_NAME = "docker_image"
HOST_IMAGE = "host"
"""The protocol requires an image. This one means none: the job runs with the programs of its machine."""
INHERITED_VARIABLES = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")


def command_job(options: JobOptions, entry: ClusterEntry, defaults: Defaults) -> dict[str, object]:
    """A job with one task role that runs the commands, in one task or in many."""
    resources = resolve_resources(options, entry, defaults)
    requested: dict[str, object] = {
        "cpu": resources.cpu,
        "gpu": resources.gpu,
        "memoryMB": resources.memory_mb,
    }
    if resources.ports:
        requested["ports"] = resources.ports
    role: dict[str, object] = {}
    if options.task_count > 1:
        role["instances"] = options.task_count
    if options.array:
        # The tasks of an array are independent: the failure of one does not stop the others.
        role["completion"] = {"minFailedInstances": -1, "minSucceededInstances": -1}
    commands = [options.array.fill_placeholders(line) for line in options.commands] if options.array else None
    role.update(dockerImage=IMAGE_NAME, resourcePerInstance=requested, commands=commands or options.commands)
    image = resolve_image(options, defaults) or HOST_IMAGE
    job: dict[str, object] = {
        "protocolVersion": 2,
        "name": options.name,
        "type": "job",
        "prerequisites": [{"name": IMAGE_NAME, "type": "dockerimage", "uri": image}],
    }
    if workspace := resolve_workspace(options, entry, defaults):
        job["parameters"] = {"work_directory": f"{workspace.rstrip('/')}/jobs/{options.name}"}
    if options.secrets:
        job["secrets"] = options.secrets
    if options.retries:
        job["jobRetryCount"] = options.retries
    job["taskRoles"] = {ROLE: role}
    before = _pre_commands(options, entry, defaults)
    if before:
        job["deployments"] = [{"name": DEPLOYMENT, "taskRoles": {ROLE: {"preCommands": before}}}]
    virtual_cluster = options.virtual_cluster or defaults.text("virtual-cluster")
    job_defaults: dict[str, object] = {"virtualCluster": virtual_cluster} if virtual_cluster else {}
    if before:
        job_defaults["deployment"] = DEPLOYMENT
    if job_defaults:
        job["defaults"] = job_defaults
    job["extras"] = _extras(options)
    return job


def resolve_image(options: JobOptions, defaults: Defaults) -> str:
    """The image given or set as default; empty for none."""
    image = options.image or defaults.text("image")
    if image.startswith("-"):
        raise UsageError(f"{image!r} is not an image: it begins with -, like an option.")
    return image


def resolve_workspace(options: JobOptions, entry: ClusterEntry, defaults: Defaults) -> str:
    """The folder on the storage for the job's files; empty for the cluster's own choice.

    The option comes first, then ``pai set``, then ``pai select-storage``.
    """
    workspace = options.workspace or defaults.text("workspace") or entry.text("workspace")
    return absolute_workspace(workspace, entry.text("user")) if workspace else ""


def absolute_workspace(workspace: str, user: str) -> str:
    """A workspace as an absolute path; a relative one is below ``/<user>``."""
    from paiprotocol.jobs.storage_layout import workspace_folder

    try:
        return workspace_folder(workspace, user)
    except ValueError:
        raise UsageError(f"The workspace {workspace!r} must not contain '..'.") from None


def resolve_resources(options: JobOptions, entry: ClusterEntry, defaults: Defaults) -> ResourceOptions:
    """The resources of one task: options, then defaults, then values that suit the cluster."""
    base = EMBEDDED_RESOURCES if entry.shares_machine else CLUSTER_RESOURCES

    def pick(option: int | None, key: str, fallback: int) -> int:
        value = defaults.number(key) if option is None else option
        return fallback if value is None else value

    memory = options.memory_mb
    mem = options.mem or (defaults.text("mem") if memory is None else "")
    if mem:
        from openpaisdk.jobs.option_values import memory_mb

        memory = memory_mb(mem)
    return ResourceOptions(
        pick(options.cpu, "cpu", base.cpu),
        pick(options.gpu, "gpu", base.gpu),
        pick(memory, "memoryMB", base.memory_mb),
        options.ports,
    )


def _pre_commands(options: JobOptions, entry: ClusterEntry, defaults: Defaults) -> list[str]:
    """Commands before those of the job; their module is imported only if there are any."""
    packages = [*options.pip_installs, *defaults.values("pip-installs")]
    branch = defaults.text("container-sdk-branch")
    check_pip_path(options.pip_path, [*packages, branch])
    variables = options.array and options.array.variables
    is_needed = any(getattr(options, option.name) for option in JOB_OPTIONS if option.place == PRE_COMMANDS)
    if not (is_needed or packages or branch or variables or options.transfer_commands):
        return []
    from openpaisdk.jobs.pre_commands import PreCommands

    return PreCommands(options, packages, _sdk_requirement(branch, entry)).pre_commands()


def check_pip_path(pip_path: str, packages: Sequence[str]) -> None:
    """Reject a path of pip without packages to install: it would have no effect."""
    if pip_path and not any(packages):
        raise UsageError(
            "--pip-path says which pip installs packages, and there are none to install.",
            hint="Name them with --pip-installs, or leave --pip-path out.",
        )


def _sdk_requirement(branch: str, entry: ClusterEntry) -> str:
    if not branch:
        return ""
    from openpaisdk.jobs.sdk_requirement import sdk_requirement

    return sdk_requirement(branch, shares_machine=entry.shares_machine)


def _extras(options: JobOptions) -> dict[str, object]:
    additions: dict[str, object] = {}
    if options.inherited_env:
        additions["environment"] = options.inherited_env
    if options.source_archive:
        additions["sources"] = options.source_archive
    return with_extras({"submitFrom": "pai"}, options, additions)


def with_extras(
    extras: Mapping[str, object], options: JobOptions, new_additions: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The ``extras`` of a new job, or of one to copy, with what the options set in them."""
    changed = dict(extras)
    additions = {**_mapping(changed.get("openpaisdk")), **(new_additions or {})}
    if options.tags:
        present = changed.get("tags")
        known = present if isinstance(present, list) else []
        changed["tags"] = [*known, *(tag for tag in options.tags if tag not in known)]
    if options.array:
        changed["gangAllocation"] = False
    if options.priority:
        scheduler = _mapping(changed.get("hivedScheduler"))
        changed["hivedScheduler"] = {**scheduler, "jobPriorityClass": options.priority}
    for key, value in (
        ("after", options.after),
        ("arrayLimit", options.array and options.array.limit),
        (options.array.key if options.array else "", options.array and options.array.variables),
        ("timeLimit", options.time_limit_s),
        ("outputs", options.outputs),
    ):
        if value:
            additions[key] = value
    if additions:
        changed["openpaisdk"] = additions
    return changed


def caller_environment() -> dict[str, str]:
    """The variables by which the caller's shell finds its programs, for a job on the same machine."""
    variables = {name: as_text(os.environ[name]) for name in INHERITED_VARIABLES if os.environ.get(name)}
    # Last on the PATH, so that the caller's own programs take precedence: there is a Python beside pai, and
    # in an environment that was never activated it is the only one called "python".
    folder = os.path.dirname(os.path.abspath(sys.executable)) if sys.executable else ""
    path = variables.get("PATH", os.defpath)
    if folder and folder not in path.split(os.pathsep):
        variables["PATH"] = path + os.pathsep + folder
    return variables


def with_caller_environment(job: Mapping[str, object], entry: ClusterEntry) -> dict[str, object]:
    """A job given as plain data, with `caller_environment` where it runs on the same machine.

    The job's own variables take precedence. Version 1 has no place for them.
    """
    if not entry.shares_machine or not job.get("protocolVersion"):
        return dict(job)
    extras = _mapping(job.get("extras"))
    additions = _mapping(extras.get("openpaisdk"))
    own = additions.get("environment", {})
    if isinstance(own, dict):  # the cluster reports what is none
        additions["environment"] = {**caller_environment(), **own}
    return {**job, "extras": {**extras, "openpaisdk": additions}}


def _mapping(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}
