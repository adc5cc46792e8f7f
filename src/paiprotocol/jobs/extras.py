"""``extras`` of a job: known keys are typed, others kept. Our additions are under ``openpaisdk``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from paiprotocol.jobs.schema_nodes import (
    Anything,
    Bool,
    Choice,
    Fields,
    Int,
    ListOf,
    MappingOf,
    Node,
    Nullable,
    Text,
)

PRIORITIES = ("crit", "prod", "test", "oppo")
OPENPAISDK = "openpaisdk"
MAX_TAG_LENGTH = 255
# Every list of jobs has them.
MAX_TAGS = 100
RUNTIME_PLUGIN = "com.microsoft.pai.runtimeplugin"


VARIABLE_NAME = Text(pattern=r"[A-Za-z_][A-Za-z0-9_]*", form="the name of a variable")


class EngineOptions(Node):
    """Options of one kind of engine, passed to it unchanged: only the cluster can validate them."""

    expected = "a list or a mapping"

    def accepts(self, value: Any) -> bool:
        return type(value) in (list, dict)

    def json_schema(self) -> dict[str, Any]:
        return {**super().json_schema(), "type": ["array", "object"]}


ADDITIONS = Fields(
    {
        "environment": MappingOf(
            Text(),
            "Variables of the submitting shell for the tasks, on a cluster on the same machine.",
            key=VARIABLE_NAME,
        ),
        "sources": Fields(
            {
                "sha256": Text(
                    "Hash of the archive.", pattern=r"[0-9a-f]{64}", form="a sha256 in hexadecimal"
                ),
                "size": Int("Its size in bytes.", minimum=0, maximum=2**53),
            },
            "An archive in the cluster's source store, unpacked into the working directory before the job.",
            required=("sha256", "size"),
        ),
        "after": ListOf(
            Fields(
                {
                    "job": Text(
                        "Name of a job of yours, or of another user as user~name.",
                        pattern=r"[\w.~-]+",
                        form="the name of a job",
                    ),
                    "on": Choice(
                        "success", "end", doc="Condition: the job succeeded, or finished with any result."
                    ),
                },
                required=("job",),
            ),
            "Jobs that must finish before this one starts.",
        ),
        "array": MappingOf(
            ListOf(Text(), min_items=1),
            "Values of the tasks by variable; each task has one combination, the last one changing fastest.",
            key=VARIABLE_NAME,
        ),
        "arrayRows": MappingOf(
            ListOf(Text(), min_items=1),
            "Values of the tasks by variable, one for each task in the order of their indexes.",
            key=VARIABLE_NAME,
        ),
        "arrayLimit": Int("How many tasks may run at a time; for jobs without a gang.", minimum=1),
        "tasksPerNode": Int(
            "How many consecutive tasks of a gang belong to one node, which an external scheduler then gives "
            "them.",
            minimum=1,
        ),
        "timeLimit": Int("Seconds after which a task is terminated, then killed.", minimum=1),
        "outputs": ListOf(
            Text(), "Files, folders or patterns in the working directory that are stored as outputs."
        ),
    },
    "Additions of openpaisdk to a job.",
    others=EngineOptions("Options of the engine of this name, passed to it unchanged."),
)

_NOTIFIED_STATES = ("running", "succeeded", "stopped", "failed", "retried")

EXTRAS = Fields(
    {
        "submitFrom": Text("Program that created the job."),
        "gangAllocation": Bool("Whether the tasks start all together or not at all.", default=True),
        "tags": ListOf(Text(), "Tags of the job."),
        "storages": ListOf(
            Fields(
                {"name": Text("A storage of the cluster."), "mountPath": Text("Where it is mounted.")},
                required=("name",),
                open=True,
            ),
            "Storages mounted in the tasks; an empty list: the default ones.",
        ),
        RUNTIME_PLUGIN: ListOf(
            Fields(
                {
                    "plugin": Text(
                        "ssh, cmd, git, tensorboard, teamwise_storage, or one of the cluster's own."
                    ),
                    "parameters": Anything(),
                    "failurePolicy": Choice(
                        "ignore", "fail", doc="Whether the task continues if the plugin fails."
                    ),
                    "taskroles": ListOf(Text(), "Roles it applies to; all by default."),
                },
                required=("plugin",),
                open=True,
            ),
            "Plugins that run before and after the commands.",
        ),
        "hivedScheduler": Nullable(
            Fields(
                {
                    "jobPriorityClass": Nullable(Choice(*PRIORITIES, doc="Priority; oppo is the lowest.")),
                    "taskRoles": MappingOf(
                        Fields(
                            {
                                "skuType": Nullable(Text("SKU type.")),
                                "skuNum": Nullable(Int("Number of SKUs.", minimum=0)),
                                "pinnedCellId": Nullable(Text("A reserved cell; not together with skuType.")),
                                "affinityGroupName": Nullable(Text("Roles of one group start together.")),
                            },
                            open=True,
                        ),
                        "By the name of a role.",
                    ),
                    "gangReleaseEnable": Bool(),
                    "lazyPreemptionEnable": Bool(),
                    "ignoreK8sSuggestedNodes": Bool(),
                },
                "Settings of the hived scheduler.",
                open=True,
            )
        ),
        "jobStatusChangeNotification": Fields(
            {name: Bool(f"Whether to send mail when the job is {name}.") for name in _NOTIFIED_STATES},
            "State changes that are sent by mail.",
            open=True,
        ),
        "tensorBoard": Fields(
            {"randomStr": Text(), "logDirectories": MappingOf(Text(), "Folders by name.")},
            "TensorBoard settings of older web portals.",
            open=True,
        ),
        "sdk.plugins": ListOf(Anything(), "Plugins of the SDK that created the job."),
        OPENPAISDK: ADDITIONS,
    },
    "Further settings; unknown keys are kept.",
    open=True,
)


@dataclass(frozen=True, slots=True)
class Sources:
    """A source archive in the cluster's source store."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job that must finish first; with ``requires_success`` it must succeed."""

    job: str
    requires_success: bool


@dataclass(frozen=True, slots=True)
class Additions:
    """Our additions to the protocol, from ``extras.openpaisdk``."""

    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    sources: Sources | None = None
    dependencies: tuple[Dependency, ...] = ()
    array_limit: int = 0
    tasks_per_node: int = 1
    time_limit_s: int | None = None
    # By kind of engine, as the job has them.
    engine_options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    outputs: tuple[str, ...] = ()


NO_ADDITIONS = Additions()


def additions(extras: Mapping[str, Any]) -> Additions:
    """The typed content of a validated ``extras.openpaisdk``."""
    ours = extras.get(OPENPAISDK)
    if not ours:
        return NO_ADDITIONS
    sources = ours.get("sources")
    return Additions(
        environment=MappingProxyType(dict(ours.get("environment", {}))),
        sources=Sources(sources["sha256"], int(sources["size"])) if sources else None,
        dependencies=tuple(
            Dependency(item["job"], item.get("on", "success") == "success") for item in ours.get("after", ())
        ),
        array_limit=int(ours.get("arrayLimit", 0)),
        tasks_per_node=int(ours.get("tasksPerNode", 1)),
        time_limit_s=ours.get("timeLimit"),
        engine_options=MappingProxyType(
            {name: value for name, value in ours.items() if name not in ADDITIONS.fields}
        ),
        outputs=tuple(ours.get("outputs", ())),
    )


def tag_problem(tag: object) -> str:
    """Why a value cannot be a tag of a job; empty if it can. A filter of lists has commas between tags."""
    if not isinstance(tag, str) or not tag.strip():
        return "a tag is text, and not empty"
    if "," in tag:
        return "a tag has no comma"
    return f"a tag has at most {MAX_TAG_LENGTH} characters" if len(tag) > MAX_TAG_LENGTH else ""


def find_plugin(extras: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The first runtime plugin of that name, or None."""
    plugins = extras.get(RUNTIME_PLUGIN)
    for plugin in plugins if isinstance(plugins, list) else ():
        if isinstance(plugin, Mapping) and plugin.get("plugin") == name:
            return plugin
    return None


def requested_storages(extras: Mapping[str, Any]) -> tuple[tuple[str, str], ...] | None:
    """Each storage that a job requests, and its mount path (empty: the default).

    From ``extras.storages``, or from the older plugin ``teamwise_storage``. Empty: the default storages, as
    in OpenPAI; None: the job requests no storages.
    """
    listed = extras.get("storages")
    if listed is None:
        plugin = find_plugin(extras, "teamwise_storage")
        if plugin is None:
            return None
        parameters = plugin.get("parameters")
        names = parameters.get("storageConfigNames") if isinstance(parameters, Mapping) else None
        return tuple((name, "") for name in names or () if isinstance(name, str))
    items = [item for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []
    return tuple(
        (item["name"], path if isinstance(path := item.get("mountPath"), str) else "")
        for item in items
        if isinstance(item.get("name"), str)
    )
