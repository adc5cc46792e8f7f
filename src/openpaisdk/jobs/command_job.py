"""Job that runs one command (``pai sub``, ``Job.one_liner``), as data of OpenPAI's job protocol, version 2.

``JobOptions`` holds what the user gave; ``command_job`` fills in the defaults of the cluster's entry and of
the settings, and returns the job. Nothing is validated or sent here.
"""

from __future__ import annotations

import os
import sys

from openpaisdk.errors import UsageError
from openpaisdk.jobs.command import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from openpaisdk.config.clusters import ClusterEntry
    from openpaisdk.config.defaults import Defaults
    from openpaisdk.jobs.pre_commands import PreCommands
    from openpaisdk.jobs.task_array import TaskArray

ROLE = "main"
DEPLOYMENT = "sdk_deployment"
IMAGE_NAME = "docker_image"
HOST_IMAGE = "host"
"""The protocol requires an image. This one means none: the job runs with the programs of its machine."""
INHERITED_VARIABLES = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")


class ResourceOptions:
    """Resources of one task."""

    __slots__ = ("cpu", "gpu", "memory_mb", "ports")

    def __init__(self, cpu: int, gpu: int, memory_mb: int, ports: Mapping[str, int] | None = None):
        self.cpu = cpu
        self.gpu = gpu
        self.memory_mb = memory_mb
        self.ports = dict(ports or {})


EMBEDDED_RESOURCES = ResourceOptions(cpu=1, gpu=0, memory_mb=512)
"""Fits every machine several times: on a laptop a job should start, not stay pending."""
CLUSTER_RESOURCES = ResourceOptions(cpu=2, gpu=0, memory_mb=4096)


class JobOptions:
    """Options of a command job, as the user gave them. None or empty means: use the default."""

    __slots__ = (
        "after",
        "array",
        "capture_logging",
        "commands",
        "cpu",
        "debug_hold_s",
        "env",
        "gpu",
        "image",
        "inherited_env",
        "instances",
        "mem",
        "memory_mb",
        "name",
        "needed_files",
        "outputs",
        "pip_installs",
        "pip_path",
        "ports",
        "priority",
        "python",
        "retries",
        "secrets",
        "sources",
        "tags",
        "time_limit_s",
        "transfer_commands",
        "virtual_cluster",
        "workspace",
    )

    def __init__(
        self,
        name: str,
        commands: Sequence[str],
        *,
        image: str = "",
        cpu: int | None = None,
        gpu: int | None = None,
        memory_mb: int | None = None,
        mem: str = "",
        ports: Mapping[str, int] | None = None,
        instances: int = 1,
        array: TaskArray | None = None,
        retries: int = 0,
        priority: str = "",
        after: Sequence[Mapping[str, object]] = (),
        time_limit_s: int = 0,
        virtual_cluster: str = "",
        outputs: Sequence[str] = (),
        workspace: str = "",
        tags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        python: str = "",
        pip_installs: Sequence[str] = (),
        pip_path: str = "",
        debug_hold_s: int = 0,
        capture_logging: bool = False,
        inherited_env: Mapping[str, str] | None = None,
        sources: Mapping[str, object] | None = None,
    ):
        self.name = name
        self.commands = list(commands)
        self.image = image
        self.cpu = cpu
        self.gpu = gpu
        self.memory_mb = memory_mb
        self.mem = mem
        self.ports = dict(ports or {})
        self.instances = instances
        self.array = array
        """Independent tasks instead of a gang of ``instances``."""
        self.retries = retries
        self.priority = priority
        self.after = [dict(item) for item in after]
        self.time_limit_s = time_limit_s
        self.virtual_cluster = virtual_cluster
        self.outputs = list(outputs)
        self.workspace = workspace
        self.tags = list(tags)
        self.env = dict(env or {})
        self.secrets = dict(secrets or {})
        self.python = python
        self.pip_installs = list(pip_installs)
        self.pip_path = pip_path
        self.debug_hold_s = debug_hold_s
        self.capture_logging = capture_logging
        self.inherited_env = dict(inherited_env or {})
        """Variables of the caller's shell, for a job on the caller's machine."""
        self.sources = sources
        """Hash and size of the source archive that the cluster unpacks."""
        self.needed_files: list[str] = []
        """Files that are uploaded in any case: paths relative to the folder of the sources."""
        self.transfer_commands: list[str] = []
        """Commands that download the job's files, on a cluster that does not do it itself."""

    @property
    def task_count(self) -> int:
        return self.array.count if self.array else self.instances


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
    pre_commands = _pre_commands(options, defaults)
    before = pre_commands.pre_commands() if pre_commands else []
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
    from openpaisdk.protocol.storage_layout import workspace_folder

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


def _pre_commands(options: JobOptions, defaults: Defaults) -> PreCommands | None:
    """Imported only if there is something to run before the command."""
    packages = [*options.pip_installs, *defaults.values("pip-installs")]
    branch = defaults.text("container-sdk-branch")
    array_commands = options.array.export_commands() if options.array else []
    is_needed = options.env or options.secrets or options.python or options.debug_hold_s or array_commands
    if not (is_needed or packages or branch or options.capture_logging or options.transfer_commands):
        return None
    from openpaisdk.jobs.pre_commands import PreCommands

    pre_commands = PreCommands(
        environment=options.env,
        secrets=options.secrets,
        python=options.python,
        pip_installs=packages,
        pip_path=options.pip_path,
        sdk_requirement=_sdk_requirement(branch),
        debug_hold=options.debug_hold_s,
        capture_logging=options.capture_logging,
    )
    pre_commands.transfer_commands = options.transfer_commands
    pre_commands.array_commands = array_commands
    return pre_commands


def _sdk_requirement(branch: str) -> str:
    if not branch:
        return ""
    from openpaisdk.jobs.sdk_requirement import sdk_requirement

    return sdk_requirement(branch)


def _extras(options: JobOptions) -> dict[str, object]:
    extras: dict[str, object] = {"submitFrom": "pai"}
    if options.tags:
        extras["tags"] = options.tags
    if options.array:
        extras["gangAllocation"] = False
    if options.priority:
        extras["hivedScheduler"] = {"jobPriorityClass": options.priority}
    additions: dict[str, object] = {}
    if options.inherited_env:
        additions["environment"] = options.inherited_env
    if options.sources:
        additions["sources"] = dict(options.sources)
    if options.after:
        additions["after"] = options.after
    if options.array and options.array.limit:
        additions["arrayLimit"] = options.array.limit
    if options.array and options.array.variables:
        additions["array"] = options.array.variables
    if options.time_limit_s:
        additions["timeLimit"] = options.time_limit_s
    if options.outputs:
        additions["outputs"] = options.outputs
    if additions:
        extras["openpaisdk"] = additions
    return extras


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
