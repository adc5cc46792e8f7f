"""``extras``: keys we know are typed, others are kept as they are. Our own live under ``openpaisdk``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from openpaisdk.protocol.schema_nodes import (
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
RUNTIME_PLUGIN = "com.microsoft.pai.runtimeplugin"


class EngineOptions(Node):
    """Options for one kind of engine, passed to it as they are: what they mean only the cluster knows."""

    expected = "a list or a mapping"

    def accepts(self, value: Any) -> bool:
        return type(value) in (list, dict)

    def json_schema(self) -> dict[str, Any]:
        return {**super().json_schema(), "type": ["array", "object"]}


ADDITIONS = Fields(
    {
        "environment": MappingOf(
            Text(),
            "Variables of the submitting shell that the tasks keep, on a cluster of the same machine.",
            key=Text(pattern=r"[A-Za-z_][A-Za-z0-9_]*", form="the name of a variable"),
        ),
        "sources": Fields(
            {
                "sha256": Text(
                    "Identity of the tar.", pattern=r"[0-9a-f]{64}", form="a sha256 in hexadecimal"
                ),
                "size": Int("Its size in bytes.", minimum=0, maximum=2**53),
            },
            "A tar in the cluster's source store, unpacked into the working directory before the commands.",
            required=("sha256", "size"),
        ),
        "after": ListOf(
            Fields(
                {
                    "job": Text(
                        "A job of yours by its name, or anybody's as user~name.",
                        pattern=r"[\w.~-]+",
                        form="the name of a job",
                    ),
                    "on": Choice(
                        "success", "end", doc="What it must have done: succeeded, or ended in any way."
                    ),
                },
                required=("job",),
            ),
            "Jobs that must be over before this one starts.",
        ),
        "arrayLimit": Int("How many tasks may run at a time; for jobs without a gang.", minimum=1),
        "timeLimit": Int("Seconds after which a task is asked to end, then killed.", minimum=1),
        "outputs": ListOf(
            Text(), "Files and folders of the working directory, or patterns of them, kept when a task ends."
        ),
    },
    "What openpaisdk adds to a job.",
    others=EngineOptions("Options for the engine of this name, passed to it as they are."),
)

_SWITCHES = ("running", "succeeded", "stopped", "failed", "retried")

EXTRAS = Fields(
    {
        "submitFrom": Text("What made the job."),
        "gangAllocation": Bool("Whether the tasks start all together or not at all.", default=True),
        "tags": ListOf(Text(), "Tags of the job."),
        "storages": ListOf(
            Fields(
                {"name": Text("A storage of the cluster."), "mountPath": Text("Where it is mounted.")},
                required=("name",),
                open=True,
            ),
            "Storages that the tasks see; an empty list: all default ones.",
        ),
        RUNTIME_PLUGIN: ListOf(
            Fields(
                {
                    "plugin": Text(
                        "ssh, cmd, git, tensorboard, teamwise_storage, or one of the cluster's own."
                    ),
                    "parameters": Anything(),
                    "failurePolicy": Choice(
                        "ignore", "fail", doc="Whether the task goes on when the plugin fails."
                    ),
                    "taskroles": ListOf(Text(), "The roles it is for; all by default."),
                },
                required=("plugin",),
                open=True,
            ),
            "Plugins that run around the commands.",
        ),
        "hivedScheduler": Nullable(
            Fields(
                {
                    "jobPriorityClass": Nullable(Choice(*PRIORITIES, doc="Priority; oppo is the lowest.")),
                    "taskRoles": MappingOf(
                        Fields(
                            {
                                "skuType": Nullable(Text("The kind of machine share.")),
                                "skuNum": Nullable(Int("How many of them.", minimum=0)),
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
            {name: Bool(f"Whether to send mail when the job is {name}.") for name in _SWITCHES},
            "Which changes are told by mail.",
            open=True,
        ),
        "tensorBoard": Fields(
            {"randomStr": Text(), "logDirectories": MappingOf(Text(), "Folders by name.")},
            "TensorBoard, as older portals wrote it.",
            open=True,
        ),
        "sdk.plugins": ListOf(Anything(), "Plugins of the SDK that made the job."),
        OPENPAISDK: ADDITIONS,
    },
    "Anything else; keys that are not known are kept.",
    open=True,
)


@dataclass(frozen=True, slots=True)
class Sources:
    """A tar in the cluster's source store."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job that must be over first. ``success``: it must have succeeded."""

    job: str
    requires_success: bool


@dataclass(frozen=True, slots=True)
class Additions:
    """What we add to the protocol, from ``extras.openpaisdk``."""

    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    sources: Sources | None = None
    dependencies: tuple[Dependency, ...] = ()
    array_limit: int = 0
    time_limit_s: int | None = None
    # By kind of engine, as the job has them.
    engine_options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    outputs: tuple[str, ...] = ()


NO_ADDITIONS = Additions()


def additions(extras: Mapping[str, Any]) -> Additions:
    """The typed content of ``extras.openpaisdk``, which has been checked."""
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
        time_limit_s=ours.get("timeLimit"),
        engine_options=MappingProxyType(
            {name: value for name, value in ours.items() if name not in ADDITIONS.fields}
        ),
        outputs=tuple(ours.get("outputs", ())),
    )


def plugin_named(extras: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The first runtime plugin of that name; None without it."""
    plugins = extras.get(RUNTIME_PLUGIN)
    for plugin in plugins if isinstance(plugins, list) else ():
        if isinstance(plugin, Mapping) and plugin.get("plugin") == name:
            return plugin
    return None


def storages_named(extras: Mapping[str, Any]) -> tuple[tuple[str, str], ...] | None:
    """Each storage that a job names, and where it is to be mounted (empty: anywhere).

    Named by the job itself, or in the plugin that did it before. Nothing means the usual ones, as OpenPAI has
    it; None, that the job does not speak of storages.
    """
    listed = extras.get("storages")
    if listed is None:
        plugin = plugin_named(extras, "teamwise_storage")
        if plugin is None:
            return None
        parameters = plugin.get("parameters")
        names = parameters.get("storageConfigNames") if isinstance(parameters, Mapping) else None
        return tuple((name, "") for name in names or () if isinstance(name, str))
    items = [item for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []
    return tuple(
        (item["name"], where if isinstance(where := item.get("mountPath"), str) else "")
        for item in items
        if isinstance(item.get("name"), str)
    )
