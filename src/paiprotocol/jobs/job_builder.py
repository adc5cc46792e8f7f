"""Builder of version 2 jobs in Python."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from paiprotocol.jobs.document import to_plain_data
from paiprotocol.jobs.extras import OPENPAISDK, RUNTIME_PLUGIN
from paiprotocol.jobs.model import JobSpec
from paiprotocol.jobs.problems import Problem, protocol_error

FailurePolicy = Literal["ignore", "fail"]
Priority = Literal["crit", "prod", "test", "oppo"]


class JobBuilder:
    """Builds a version 2 job; every method returns the builder.

    ``JobBuilder("train").image("pytorch/pytorch").role("worker", "python train.py", gpu=1).to_yaml()``

    Nothing is validated until :meth:`build`, which reports all problems at once.
    """

    def __init__(self, name: str):
        self._data: dict[str, Any] = {"protocolVersion": 2, "name": name, "type": "job"}

    @classmethod
    def of(cls, job: JobSpec | Mapping[str, Any]) -> Self:
        """A builder that starts from an existing job."""
        data = to_plain_data(job.raw if isinstance(job, JobSpec) else job)
        builder = cls(data.get("name", ""))
        builder._data = data
        return builder

    def copy(self) -> Self:
        return copy.deepcopy(self)

    # --- identity ---

    def name(self, name: str) -> Self:
        return self._set("name", name)

    def describe(
        self, description: str | None = None, *, contributor: str | None = None, version: str | None = None
    ) -> Self:
        fields = {"description": description, "contributor": contributor, "version": version}
        self._data.update(_without_none(fields))
        return self

    def retries(self, count: int) -> Self:
        """How often a failed job is retried."""
        return self._set("jobRetryCount", count)

    # --- prerequisites and parameters ---

    def image(
        self,
        uri: str,
        *,
        name: str | None = None,
        username: str | None = None,
        password: str | None = None,
        registry: str | None = None,
        **described: str,
    ) -> Self:
        """A docker image. Roles without one use the first. ``password`` should refer to a secret."""
        images = [item for item in self._list("prerequisites") if item.get("type") == "dockerimage"]
        item = {"name": name or f"docker_image_{len(images)}", "type": "dockerimage", "uri": uri, **described}
        auth = _without_none({"username": username, "password": password, "registryuri": registry})
        return self._prerequisite({**item, **({"auth": auth} if auth else {})})

    def data(self, name: str, *uris: str, **fields: Any) -> Self:
        """A data set; ``$data`` in roles that select it. ``fields``: version, plugin, require, ..."""
        return self._prerequisite(
            {"name": name, "type": "data", **({"uri": list(uris)} if uris else {}), **fields}
        )

    def script(self, name: str, uri: str | None = None, **fields: Any) -> Self:
        """A script; ``$script`` in roles that select it."""
        return self._prerequisite({"name": name, "type": "script", **_without_none({"uri": uri}), **fields})

    def output(self, name: str, uri: str | None = None, **fields: Any) -> Self:
        """An output location; ``$output`` in roles that select it."""
        return self._prerequisite({"name": name, "type": "output", **_without_none({"uri": uri}), **fields})

    def parameter(self, name: str, value: Any) -> Self:
        """A value for ``<% $parameters.name %>``."""
        self._mapping("parameters")[name] = value
        return self

    def parameters(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        self._mapping("parameters").update({**(values or {}), **more})
        return self

    def secret(self, name: str, value: Any) -> Self:
        """A value for ``<% $secrets.name %>``, stored separately from the job and never shown."""
        self._mapping("secrets")[name] = value
        return self

    # --- roles ---

    def role(
        self,
        name: str,
        commands: str | Sequence[str],
        *,
        instances: int = 1,
        cpu: int = 1,
        memory_mb: int = 1024,
        gpu: int = 0,
        ports: Mapping[str, int] | None = None,
        image: str | None = None,
        data: str | None = None,
        output: str | None = None,
        script: str | None = None,
        prerequisites: Iterable[str] | None = None,
        min_failed: int | None = None,
        min_succeeded: int | None = None,
        task_retries: int | None = None,
        shm_mb: int | None = None,
        infiniband: bool | None = None,
    ) -> Self:
        """A task role. ``image``, ``data`` ... are names of prerequisites; default image: the first."""
        resources: dict[str, Any] = {"cpu": cpu, "memoryMB": memory_mb, "gpu": gpu}
        if ports:
            resources["ports"] = dict(ports)
        completion = _without_none({"minFailedInstances": min_failed, "minSucceededInstances": min_succeeded})
        container = _without_none({"shmMB": shm_mb, "infiniband": infiniband})
        self._mapping("taskRoles")[name] = _without_none(
            {
                "instances": instances,
                "completion": completion or None,
                "taskRetryCount": task_retries,
                "prerequisites": None if prerequisites is None else _items(prerequisites),
                "dockerImage": image,
                "data": data,
                "output": output,
                "script": script,
                "extraContainerOptions": container or None,
                "resourcePerInstance": resources,
                "commands": _items(commands),
            }
        )
        return self

    def deployment(
        self,
        name: str,
        *,
        before: Mapping[str, Sequence[str]] | None = None,
        after: Mapping[str, Sequence[str]] | None = None,
        active: bool = True,
    ) -> Self:
        """Commands before and after those of the roles, by role. The last active deployment is used."""
        roles: dict[str, Any] = {}
        for key, commands in (("preCommands", before), ("postCommands", after)):
            for role, lines in (commands or {}).items():
                roles.setdefault(role, {})[key] = _items(lines)
        self._list("deployments").append({"name": name, **({"taskRoles": roles} if roles else {})})
        return self.default("deployment", name) if active else self

    # --- cluster and scheduling ---

    def virtual_cluster(self, name: str) -> Self:
        return self.default("virtualCluster", name)

    def default(self, key: str, value: Any) -> Self:
        self._mapping("defaults")[key] = value
        return self

    def gang(self, together: bool) -> Self:
        """Whether all tasks start together or not at all (the default)."""
        return self.extra("gangAllocation", together)

    def priority(self, priority: Priority) -> Self:
        self._hived()["jobPriorityClass"] = priority
        return self

    def sku(
        self,
        role: str,
        *,
        sku_type: str | None = None,
        sku_num: int | None = None,
        pinned_cell: str | None = None,
        affinity_group: str | None = None,
    ) -> Self:
        """Request of a role to the hived scheduler."""
        request = {
            "skuType": sku_type,
            "skuNum": sku_num,
            "pinnedCellId": pinned_cell,
            "affinityGroupName": affinity_group,
        }
        self._hived().setdefault("taskRoles", {})[role] = _without_none(request)
        return self

    def storage(self, name: str, mount_path: str | None = None) -> Self:
        """A storage of the cluster, mounted at ``/mnt/<name>`` by default."""
        items = self._mapping("extras").setdefault("storages", [])
        items.append(_without_none({"name": name, "mountPath": mount_path}))
        return self

    def plugin(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        failure_policy: FailurePolicy | None = None,
        roles: Iterable[str] | None = None,
    ) -> Self:
        """A runtime plugin: ssh, cmd, git, tensorboard, ..."""
        items = self._mapping("extras").setdefault(RUNTIME_PLUGIN, [])
        items.append(
            _without_none(
                {
                    "plugin": name,
                    "parameters": None if parameters is None else dict(parameters),
                    "failurePolicy": failure_policy,
                    "taskroles": None if roles is None else _items(roles),
                }
            )
        )
        return self

    def tags(self, *tags: str) -> Self:
        items = self._mapping("extras").setdefault("tags", [])
        items.extend(tag for tag in tags if tag not in items)
        return self

    def notify(self, **changes: bool) -> Self:
        """State changes that are sent by mail: running, succeeded, stopped, failed, retried."""
        self._mapping("extras").setdefault("jobStatusChangeNotification", {}).update(changes)
        return self

    def extra(self, key: str, value: Any) -> Self:
        """Any key of ``extras``."""
        self._mapping("extras")[key] = value
        return self

    def environment(self, variables: Mapping[str, str]) -> Self:
        """Variables of this shell that the tasks get on a cluster on the same machine."""
        self._ours().setdefault("environment", {}).update(variables)
        return self

    def sources(self, sha256: str, size: int) -> Self:
        """An archive in the cluster's source store, unpacked before the commands run."""
        self._ours()["sources"] = {"sha256": sha256, "size": size}
        return self

    # --- result ---

    def to_dict(self) -> dict[str, Any]:
        """The job as plain data, including secrets."""
        data: dict[str, Any] = to_plain_data(self._data)
        images = [item for item in data.get("prerequisites", ()) if item.get("type") == "dockerimage"]
        for role in data.get("taskRoles", {}).values():
            if "dockerImage" not in role and images:
                role["dockerImage"] = images[0]["name"]
        return data

    def to_yaml(self) -> str:
        """The job as YAML, including secrets."""
        from paiprotocol.jobs.yaml_dump import dump_yaml

        return dump_yaml(self.to_dict())

    def build(self, *, strict: bool = True) -> JobSpec:
        """The validated job; raises ProtocolError with all problems."""
        from paiprotocol.jobs.v2_reader import read_job

        data = self.to_dict()
        if not data.get("taskRoles"):
            hint = 'add one: .role("worker", "python train.py")'
            raise protocol_error([Problem(("taskRoles",), "the job has no task role", suggestion=hint)])
        return read_job(data, strict=strict)

    def __repr__(self) -> str:
        roles = ", ".join(self._data.get("taskRoles", ()))
        return f"JobBuilder({self._data.get('name')!r}, roles=[{roles}])"

    def _set(self, key: str, value: Any) -> Self:
        self._data[key] = value
        return self

    def _mapping(self, key: str) -> dict[str, Any]:
        value: dict[str, Any] = self._data.setdefault(key, {})
        return value

    def _list(self, key: str) -> list[dict[str, Any]]:
        value: list[dict[str, Any]] = self._data.setdefault(key, [])
        return value

    def _prerequisite(self, item: dict[str, Any]) -> Self:
        self._list("prerequisites").append(item)
        return self

    def _hived(self) -> dict[str, Any]:
        value: dict[str, Any] = self._mapping("extras").setdefault("hivedScheduler", {})
        return value

    def _ours(self) -> dict[str, Any]:
        value: dict[str, Any] = self._mapping("extras").setdefault(OPENPAISDK, {})
        return value


def _items(value: str | Iterable[str]) -> list[str]:
    """A list; text alone is one item, never its letters."""
    return [value] if isinstance(value, str) else list(value)


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
