"""Schema of a version 2 job. References between its parts are checked in ``cross_references``."""

from __future__ import annotations

from paiprotocol.jobs.extras import EXTRAS
from paiprotocol.jobs.schema_nodes import (
    Anything,
    Bool,
    Choice,
    Fields,
    Int,
    ListOf,
    MappingOf,
    Nullable,
    Text,
    TextOrNumber,
    Variant,
)

NAME = Text(
    "Letters, digits, _ and -; at most 255 characters.",
    pattern=r"[a-zA-Z0-9_-]+",
    form="letters, digits, _ and - (at most 255)",
    max_length=255,
)
ROLE_NAME = Text(
    pattern=r"[a-zA-Z_][a-zA-Z0-9_]*",
    form="a name of letters, digits and _ that does not begin with a digit",
    max_length=255,
)

_VERSION = Choice(2, "2", doc="The version of the protocol: 2.")
_COMMON = {
    "protocolVersion": _VERSION,
    "name": NAME,
    "version": TextOrNumber("The version of this component; the latest by default."),
    "contributor": Text("Who wrote it."),
    "description": Text("What it is for."),
}
_PLUGIN = {
    "plugin": Text("The runtime plugin that prepares this prerequisite."),
    "failurePolicy": Choice("ignore", "fail", doc="Whether the task continues if the plugin fails."),
    "require": ListOf(Text(), "Names of other prerequisites that this one needs."),
}


def _kind(name: str) -> Choice:
    return Choice(name, doc="The kind of the prerequisite.")


DOCKER_IMAGE = Fields(
    {
        **_COMMON,
        "type": _kind("dockerimage"),
        "uri": Text("The image, as for docker pull."),
        "auth": Fields(
            {
                "username": Text(),
                "password": Text("Refer to a secret here: <% $secrets.name %>."),
                "registryuri": Text("The registry's host name."),
            },
            "Credentials of the image's registry.",
            open=True,
        ),
    },
    "A docker image.",
    required=("name", "type", "uri"),
)
_URI = Text("Its location.")
PREREQUISITE = Variant(
    "type",
    {
        "dockerimage": DOCKER_IMAGE,
        "script": Fields(
            {**_COMMON, "type": _kind("script"), "uri": _URI, **_PLUGIN},
            "A script.",
            required=("name", "type"),
            open=True,
        ),
        "output": Fields(
            {**_COMMON, "type": _kind("output"), "uri": _URI, **_PLUGIN},
            "An output location.",
            required=("name", "type"),
            open=True,
        ),
        "data": Fields(
            {
                **_COMMON,
                "type": _kind("data"),
                "uri": ListOf(Text(), "Its locations: a list.", min_items=1),
                **_PLUGIN,
            },
            "A data set.",
            required=("name", "type"),
            open=True,
        ),
    },
    "Something that task roles use: an image, data, a script or an output location.",
)

_COMMANDS = ListOf(Text(), "Shell commands, run one after the other.", min_items=1)

TASK_ROLE = Fields(
    {
        "instances": Int("How many tasks of this role run.", minimum=1, default=1),
        "completion": Fields(
            {
                "minFailedInstances": Nullable(
                    Int("Number of failed tasks that fails the job; -1: none does.", minimum=-1, default=1)
                ),
                "minSucceededInstances": Nullable(
                    Int("Number of succeeded tasks that completes the job; -1: all tasks.", minimum=-1)
                ),
            },
            "When tasks of this role complete the whole job.",
        ),
        "taskRetryCount": Int(
            "Retries of a single task; only if extras.gangAllocation is false.", minimum=-2, default=0
        ),
        "prerequisites": ListOf(Text(), "Names of prerequisites, prepared in this order."),
        "dockerImage": Text("Name of a prerequisite of type dockerimage."),
        "data": Text("Name of a prerequisite of type data; $data in this role."),
        "output": Text("Name of a prerequisite of type output; $output in this role."),
        "script": Text("Name of a prerequisite of type script; $script in this role."),
        "extraContainerOptions": Fields(
            {
                "shmMB": Int("Size of /dev/shm in MB.", minimum=0),
                "infiniband": Bool("Whether the container gets the InfiniBand devices."),
            },
            "Container options.",
        ),
        "resourcePerInstance": Fields(
            {
                "cpu": Int("CPU cores.", minimum=0),
                "memoryMB": Int("Memory in MB.", minimum=0),
                "gpu": Int("GPUs.", minimum=0),
                "ports": MappingOf(
                    Int("How many ports.", minimum=1, maximum=25_000),
                    "Ports by label; ssh and http have one each by default.",
                    key=ROLE_NAME,
                    min_items=1,
                ),
            },
            "Resources of each task.",
            required=("cpu", "memoryMB", "gpu"),
        ),
        "commands": _COMMANDS,
    },
    "A task role.",
    required=("dockerImage", "resourcePerInstance", "commands"),
)

DEPLOYMENT = Fields(
    {
        "name": NAME,
        "taskRoles": MappingOf(
            Fields(
                {
                    "preCommands": ListOf(Text(), "Commands before the role's own.", min_items=1),
                    "postCommands": ListOf(Text(), "Commands after the role's own.", min_items=1),
                },
                "What this deployment adds to a role.",
            ),
            "By the name of a role.",
        ),
    },
    "A deployment: commands before and after those of the roles.",
    required=("name",),
)

JOB_V2 = Fields(
    {
        "protocolVersion": _VERSION,
        "name": NAME,
        "type": Choice("job", doc="A job."),
        "version": TextOrNumber("The version of the job; the latest by default."),
        "contributor": Text("Who wrote it."),
        "description": Text("What it is for."),
        "prerequisites": ListOf(PREREQUISITE, "What the task roles use.", min_items=1),
        "parameters": MappingOf(Anything(), "Values for <% $parameters.name %> in commands."),
        "secrets": MappingOf(
            Anything(), "Values for <% $secrets.name %>, stored separately from the job and never shown."
        ),
        "jobRetryCount": Int("How often a failed job is retried.", minimum=0, default=0),
        "taskRoles": MappingOf(TASK_ROLE, "The roles by name.", key=ROLE_NAME, min_items=1),
        "deployments": ListOf(DEPLOYMENT, "Deployments of the job.", min_items=1),
        "defaults": Fields(
            {
                "virtualCluster": Text("The virtual cluster the job is submitted to."),
                "deployment": Text("Name of the active deployment."),
            },
            "Settings for the cluster.",
            open=True,
        ),
        "extras": EXTRAS,
    },
    "A job in version 2 of OpenPAI's protocol.",
    required=("protocolVersion", "name", "type", "taskRoles"),
)
