"""The job that ``pai sub`` submits, in version 2 of OpenPAI's job protocol."""

from __future__ import annotations

import os
import sys

from openpaisdk.jobs.command import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from openpaisdk.jobs.pre_commands import PreCommands

ROLE = "main"
DEPLOYMENT = "sdk_deployment"
IMAGE_NAME = "docker_image"
HOST_IMAGE = "host"
"""The protocol requires an image. This one means none: the job runs with the software of its host."""
KEPT_VARIABLES = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")


class ResourceOptions:
    """Resources of one task."""

    __slots__ = ("cpu", "gpu", "memory_mb", "ports")

    def __init__(self, cpu: int, gpu: int, memory_mb: int, ports: Mapping[str, int] | None = None):
        self.cpu = cpu
        self.gpu = gpu
        self.memory_mb = memory_mb
        self.ports = dict(ports or {})


HERE = ResourceOptions(cpu=1, gpu=0, memory_mb=512)
"""Fits every machine, several jobs at once: on a laptop a job should start, not stay pending."""
ELSEWHERE = ResourceOptions(cpu=2, gpu=0, memory_mb=4096)


class JobOptions:
    """Further options of a job. The defaults request nothing."""

    __slots__ = (
        "after",
        "array_limit",
        "instances",
        "is_array",
        "outputs",
        "priority",
        "retries",
        "tags",
        "time_limit",
        "workspace",
    )

    def __init__(
        self,
        *,
        instances: int = 1,
        is_array: bool = False,
        array_limit: int = 0,
        retries: int = 0,
        priority: str = "",
        after: Sequence[Mapping[str, object]] = (),
        time_limit: int = 0,
        outputs: Sequence[str] = (),
        workspace: str = "",
        tags: Sequence[str] = (),
    ):
        self.instances = instances
        self.is_array = is_array
        self.array_limit = array_limit
        self.retries = retries
        self.priority = priority
        self.after = [dict(item) for item in after]
        self.time_limit = time_limit
        self.outputs = list(outputs)
        self.workspace = workspace
        self.tags = list(tags)


def one_liner(
    name: str,
    line: str,
    *,
    image: str,
    resources: ResourceOptions,
    virtual_cluster: str = "",
    environment: Mapping[str, str] | None = None,
    sources: Mapping[str, object] | None = None,
    around: PreCommands | None = None,
    wishes: JobOptions | None = None,
) -> dict[str, object]:
    """A job of one role that runs one shell line, once or in many tasks."""
    wishes = wishes or JobOptions()
    asked: dict[str, object] = {"cpu": resources.cpu, "gpu": resources.gpu, "memoryMB": resources.memory_mb}
    if resources.ports:
        asked["ports"] = resources.ports
    role: dict[str, object] = {}
    if wishes.instances > 1:
        role["instances"] = wishes.instances
    if wishes.is_array:
        # The tasks of an array are independent: a failed one does not stop the others.
        role["completion"] = {"minFailedInstances": -1, "minSucceededInstances": -1}
    role.update(dockerImage=IMAGE_NAME, resourcePerInstance=asked, commands=[line])
    job: dict[str, object] = {
        "protocolVersion": 2,
        "name": name,
        "type": "job",
        "prerequisites": [{"name": IMAGE_NAME, "type": "dockerimage", "uri": image}],
    }
    if wishes.workspace:
        job["parameters"] = {"work_directory": f"{wishes.workspace.rstrip('/')}/jobs/{name}"}
    if around and around.secrets:
        job["secrets"] = around.secrets
    if wishes.retries:
        job["jobRetryCount"] = wishes.retries
    job["taskRoles"] = {ROLE: role}
    before = around.pre_commands() if around else []
    if before:
        job["deployments"] = [{"name": DEPLOYMENT, "taskRoles": {ROLE: {"preCommands": before}}}]
    defaults: dict[str, object] = {"virtualCluster": virtual_cluster} if virtual_cluster else {}
    if before:
        defaults["deployment"] = DEPLOYMENT
    if defaults:
        job["defaults"] = defaults
    job["extras"] = _extras(wishes, environment, sources)
    return job


def _extras(
    wishes: JobOptions, environment: Mapping[str, str] | None, sources: Mapping[str, object] | None
) -> dict[str, object]:
    extras: dict[str, object] = {"submitFrom": "pai"}
    if wishes.tags:
        extras["tags"] = wishes.tags
    if wishes.is_array:
        extras["gangAllocation"] = False
    if wishes.priority:
        extras["hivedScheduler"] = {"jobPriorityClass": wishes.priority}
    ours: dict[str, object] = {}
    if environment:
        ours["environment"] = dict(environment)
    if sources:
        ours["sources"] = dict(sources)
    if wishes.after:
        ours["after"] = wishes.after
    if wishes.array_limit:
        ours["arrayLimit"] = wishes.array_limit
    if wishes.time_limit:
        ours["timeLimit"] = wishes.time_limit
    if wishes.outputs:
        ours["outputs"] = wishes.outputs
    if ours:
        extras["openpaisdk"] = ours
    return extras


def callers_environment() -> dict[str, str]:
    """Variables with which the caller's shell finds its programs, for a job on the same machine."""
    kept = {name: as_text(os.environ[name]) for name in KEPT_VARIABLES if os.environ.get(name)}
    # Appended to PATH, so that it overrides nothing of the caller: the folder of pai's interpreter. In a
    # virtual environment that was never activated it is the only one with a "python".
    ours = os.path.dirname(os.path.abspath(sys.executable)) if sys.executable else ""
    path = kept.get("PATH", os.defpath)
    if ours and ours not in path.split(os.pathsep):
        kept["PATH"] = path + os.pathsep + ours
    return kept
