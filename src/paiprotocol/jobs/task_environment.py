"""Environment of a task: the ``PAI_*`` and ``FC_*`` variables of both generations, and what launchers expect.

The tasks of a gang share almost all variables, and that part grows with the gang. :class:`GangEnvironment`
builds it once; each task adds a small part, so that all environments together cost time linear in the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from itertools import accumulate
from types import MappingProxyType

from paiprotocol.jobs.model import JobSpec, TaskRole
from paiprotocol.jobs.states import debug_id, framework_name

MAX_VALUE_BYTES = 120_000
"""Linux cannot start a program with a variable of more than 128 KiB, so longer ones are omitted."""
MAX_PEER_VARIABLES = 1000
"""A shell needs time quadratic in its variables for every program it starts: 10 ms with this many, a second
with ten times as many. Larger gangs have only the lists (``…_HOST_LIST``, ``TF_CONFIG``)."""
MAX_COMMON_BYTES = 1_400_000
"""With the usual stack limit all variables together may have 2 MB; what does not fit is omitted."""


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """Placement of one task of an attempt. ``uid`` is that of the task; an empty ``ip`` is not known yet.

    A port or GPU may be text: a placeholder that is replaced where the task runs.
    """

    role: str
    index: int
    ip: str
    ports: Mapping[str, tuple[int | str, ...]]
    uid: str
    gpus: tuple[int | str, ...] = ()
    attempt: int = 0
    work_dir: str | None = None


class GangEnvironment:
    """The environments of all tasks of one attempt of a job.

    ``common`` applies to every task, ``for_task`` adds the variables of one. ``omitted`` lists the variables
    left out because with them no program could start.
    """

    def __init__(
        self,
        job: JobSpec,
        *,
        user: str,
        placements: Sequence[TaskPlacement],
        attempt: int = 0,
        uid: str = "",
        default_fs_uri: str = "",
        extra: Mapping[str, str] | None = None,
    ):
        self.job = job
        self.user = user
        self.placements = tuple(placements)
        self.attempt = attempt
        self.framework = framework_name(user, job.name)
        self.uid = uid or _uid(self.framework)
        self.omitted: list[str] = []
        self._roles = {role.name: (number, role) for number, role in enumerate(job.task_roles)}
        instances = (role.instances for role in job.task_roles)
        self._first_rank = dict(zip(self._roles, accumulate(instances, initial=0), strict=False))
        self._ranked = sorted(self.placements, key=lambda place: self._rank(place.role, place.index))
        self._placement = {(place.role, place.index): place for place in self._ranked}
        self._is_array = not job.gang and len(job.task_roles) == 1
        self._hosts = self._host_lists()
        self._cluster = json.dumps(
            {role: hosts.split(",") for role, hosts in self._hosts.items() if hosts}, separators=(",", ":")
        )
        variables = self._job_variables(default_fs_uri)
        if not self._is_array:
            variables.update(_rendezvous(self._ranked[:1], self.job.total_tasks))
        variables.update(extra or {})
        self._add_peers(variables)
        self.common: Mapping[str, str] = MappingProxyType(
            {name: value for name, value in variables.items() if self._fits(name, value)}
        )

    @property
    def hostfile(self) -> str:
        """Hosts for ``mpirun --hostfile``: one line each, a slot for every GPU (or task without one)."""
        slots: dict[str, int] = {}
        for place in self._ranked:
            if place.ip:
                gpus = self._roles[place.role][1].resources.gpu
                slots[place.ip] = slots.get(place.ip, 0) + max(1, gpus)
        return "".join(f"{ip} slots={count}\n" for ip, count in slots.items())

    def for_task(self, role: str, index: int) -> dict[str, str]:
        """Variables of one task only; KeyError for a task without placement."""
        place = self._placement[role, index]
        number, task_role = self._roles[role]
        own = self._identity(place, number, task_role)
        own.update(_own_ports(place))
        own.update(_devices(place, task_role))
        own.update(self._distribution(place))
        if place.work_dir is not None:
            own["PAI_WORK_DIR"] = place.work_dir
        return own

    def full(self, role: str, index: int) -> dict[str, str]:
        """``common`` and ``for_task`` in one dict. For one task only: for all tasks this is quadratic."""
        return {**self.common, **self.for_task(role, index)}

    def _job_variables(self, default_fs_uri: str) -> dict[str, str]:
        job, roles = self.job, self.job.task_roles
        count, names, total = str(len(roles)), ",".join(role.name for role in roles), str(job.total_tasks)
        code = debug_id(self.framework)
        instance = _uid(self.uid, "attempt", self.attempt)
        variables = {
            "PAI_FRAMEWORK_NAME": self.framework,
            "PAI_JOB_NAME": self.framework,
            "FRAMEWORK_NAME": self.framework,
            "PAI_USER_NAME": self.user,
            "PAI_USERNAME": self.user,
            "HADOOP_USER_NAME": self.user,
            "APP_ID": f"{code}_{self.attempt}",
            "PAI_DEFAULT_FS_URI": default_fs_uri,
            "PAI_VIRTUAL_CLUSTER": job.virtual_cluster,
            "PAI_TASK_ROLE_COUNT": count,
            "PAI_TASK_ROLES_NUM": count,
            "PAI_JOB_TASK_ROLE_COUNT": count,
            "PAI_TASK_ROLE_LIST": names,
            "PAI_JOB_TASK_ROLE_LIST": names,
            "PAI_TASKS_NUM": total,
            "PAI_JOB_TASK_COUNT": total,
            "PAI_TASK_ROLE_INSTANCES": ",".join(f"{place.role}:{place.index}" for place in self._ranked),
            "FC_FRAMEWORK_NAMESPACE": "default",
            "FC_FRAMEWORK_NAME": code,
            "FC_FRAMEWORK_UID": self.uid,
            "FC_FRAMEWORK_ATTEMPT_ID": str(self.attempt),
            "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": f"{self.attempt}_{instance}",
            "FC_CONFIGMAP_NAME": f"{code}-attempt",
            "FC_CONFIGMAP_UID": instance,
        }
        for role in roles:
            variables[f"PAI_TASK_ROLE_TASK_COUNT_{role.name}"] = str(role.instances)
            variables[f"PAI_RESOURCE_{role.name}"] = _resource(role)
            variables[f"PAI_MIN_FAILED_TASK_COUNT_{role.name}"] = str(role.min_failed)
            variables[f"PAI_MIN_SUCCEEDED_TASK_COUNT_{role.name}"] = str(role.min_succeeded)
            variables[f"PAI_TASK_ROLE_{role.name}_HOST_LIST"] = self._hosts[role.name]
        for name, alias in self._aliases():
            for prefix in (
                "TASK_ROLE_TASK_COUNT",
                "RESOURCE",
                "MIN_FAILED_TASK_COUNT",
                "MIN_SUCCEEDED_TASK_COUNT",
            ):
                variables[f"PAI_{prefix}_{alias}"] = variables[f"PAI_{prefix}_{name}"]
            variables[f"PAI_TASK_ROLE_{alias}_HOST_LIST"] = self._hosts[name]
        return variables

    def _rank(self, role: str, index: int) -> int:
        """Rank among all tasks of the job; without a gang many may be completed or not started."""
        return self._first_rank[role] + index

    def _distribution(self, place: TaskPlacement) -> dict[str, str]:
        """Rank and size of a task's distributed program: the job, or in an array each task by itself.

        Libraries that read these variables would otherwise wait for the other tasks of an array, or split the
        data with them.
        """
        hosts, rank, index = self._cluster, self._rank(place.role, place.index), place.index
        if self._is_array:
            own_host = {place.role: [_address(place)]} if place.ip else {}
            hosts, rank, index = json.dumps(own_host, separators=(",", ":")), 0, 0
        variables = {"RANK": str(rank), "NODE_RANK": str(rank), "LOCAL_RANK": "0"}
        if self._is_array:
            variables.update(_rendezvous([place], 1))
        if len(hosts) < MAX_VALUE_BYTES - 256:
            task = f'{{"type":{json.dumps(place.role)},"index":{index}}}'
            variables["TF_CONFIG"] = f'{{"cluster":{hosts},"task":{task}}}'
        return variables

    def _add_peers(self, variables: dict[str, str]) -> None:
        """Add variables per task in groups, the most useful group first, within the limits."""
        names: dict[str, list[str]] = {role: [role] for role in self._roles}
        for role, alias in self._aliases():
            names[role].append(alias)
        bytes_left = MAX_COMMON_BYTES - _size(variables)
        variables_left = MAX_PEER_VARIABLES
        for what, add_variables in (
            ("PAI_HOST_IP_<role>_<index>", _host_variables),
            ("PAI_PORT_LIST_<role>_<index>_<label>", _port_variables),
            ("PAI_<role>_<index>_<label>_PORT", _legacy_port_variables),
        ):
            group: dict[str, str] = {}
            # If one group does not fit, the following groups do not fit either.
            if bytes_left >= 0 and variables_left >= 0:
                for place in self._ranked:
                    for name in names[place.role]:
                        add_variables(group, name, place)
                bytes_left -= _size(group)
                variables_left -= len(group)
            if bytes_left >= 0 and variables_left >= 0:
                variables.update(group)
            else:
                self.omitted.append(what)

    def _identity(self, place: TaskPlacement, number: int, role: TaskRole) -> dict[str, str]:
        index, name, resources = str(place.index), role.name, role.resources
        code = self.common["FC_FRAMEWORK_NAME"]
        return {
            "PAI_CURRENT_TASK_ROLE_NAME": name,
            "PAI_TASK_ROLE_NAME": name,
            "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": index,
            "PAI_TASK_INDEX": index,
            "PAI_TASK_ROLE_INDEX": str(number),
            "PAI_TASK_ROLE_NUM": str(role.instances),
            "PAI_CURRENT_TASK_ROLE_TASK_COUNT": str(role.instances),
            "PAI_TASK_CPU_NUM": str(resources.cpu),
            "PAI_CURRENT_TASK_ROLE_CPU_COUNT": str(resources.cpu),
            "PAI_TASK_MEM_MB": str(resources.memory_mb),
            "PAI_CURRENT_TASK_ROLE_MEM_MB": str(resources.memory_mb),
            "PAI_TASK_GPU_NUM": str(resources.gpu),
            "PAI_CURRENT_TASK_ROLE_GPU_COUNT": str(resources.gpu),
            "PAI_CURRENT_TASK_ROLE_SHM_MB": str(role.shm_mb or 0),
            "PAI_CURRENT_TASK_ROLE_MIN_FAILED_TASK_COUNT": str(role.min_failed),
            "PAI_CURRENT_TASK_ROLE_MIN_SUCCEEDED_TASK_COUNT": str(role.min_succeeded),
            "PAI_RESOURCE": _resource(role),
            "PAI_CONTAINER_ID": place.uid,
            "PAI_DATA_DIR": self._uri("data", role.data),
            "PAI_OUTPUT_DIR": self._uri("output", role.output),
            "PAI_CODE_DIR": self._uri("script", role.script),
            "FC_TASKROLE_NAME": name,
            "FC_TASK_INDEX": index,
            "FC_POD_NAME": f"{code}-{_stripped(name)}-{index}",
            "FC_TASKROLE_UID": _uid(self.uid, name),
            "FC_TASK_UID": _uid(self.uid, name, index),
            "FC_TASK_ATTEMPT_ID": str(place.attempt),
            "FC_POD_UID": place.uid,
            "FC_TASK_ATTEMPT_INSTANCE_UID": f"{place.attempt}_{place.uid}",
        }

    def _uri(self, kind: str, name: str | None) -> str:
        item = self.job.prerequisite(kind, name) if name else None
        uri = item.uri if item is not None else None
        return uri if isinstance(uri, str) else ",".join(uri or ())

    def _host_lists(self) -> dict[str, str]:
        hosts: dict[str, list[str]] = {role: [] for role in self._roles}
        for place in self._ranked:
            if place.ip:
                hosts[place.role].append(_address(place))
        return {role: ",".join(listed) for role, listed in hosts.items()}

    def _aliases(self) -> Iterable[tuple[str, str]]:
        """Roles whose stripped name differs: older clusters export that name. No real name is hidden."""
        taken = set(self._roles)
        for role in self._roles:
            alias = _stripped(role)
            if alias and alias not in taken:
                taken.add(alias)
                yield role, alias

    def _fits(self, name: str, value: str) -> bool:
        if len(value) <= MAX_VALUE_BYTES:
            return True
        self.omitted.append(name)
        return False


def build_task_environment(
    job: JobSpec,
    *,
    user: str,
    placements: Sequence[TaskPlacement],
    role: str,
    index: int,
    attempt: int = 0,
    uid: str = "",
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Complete environment of one task. For several tasks of a job use :class:`GangEnvironment`."""
    gang = GangEnvironment(job, user=user, placements=placements, attempt=attempt, uid=uid, extra=extra)
    return gang.full(role, index)


def _address(place: TaskPlacement) -> str:
    http = place.ports.get("http")
    return f"{place.ip}:{http[0]}" if http else place.ip


def _rendezvous(first: Sequence[TaskPlacement], tasks: int) -> dict[str, str]:
    """Rendezvous of a distributed program with that many tasks, at the first of them."""
    variables = {"WORLD_SIZE": str(tasks)}
    for place in first:
        if not place.ip:
            continue
        variables["MASTER_ADDR"] = place.ip
        ports = place.ports.get("master") or place.ports.get("http") or next(iter(place.ports.values()), ())
        if ports:
            variables["MASTER_PORT"] = str(ports[0])
    return variables


def _host_variables(group: dict[str, str], name: str, place: TaskPlacement) -> None:
    if place.ip:
        group[f"PAI_HOST_IP_{name}_{place.index}"] = place.ip


def _port_variables(group: dict[str, str], name: str, place: TaskPlacement) -> None:
    for label, numbers in place.ports.items():
        group[f"PAI_PORT_LIST_{name}_{place.index}_{label}"] = ",".join(map(str, numbers))


def _legacy_port_variables(group: dict[str, str], name: str, place: TaskPlacement) -> None:
    for label, numbers in place.ports.items():
        group[f"PAI_{name}_{place.index}_{label}_PORT"] = ",".join(map(str, numbers))


def _own_ports(place: TaskPlacement) -> dict[str, str]:
    listed = {label: ",".join(map(str, numbers)) for label, numbers in place.ports.items()}
    variables = {f"PAI_CONTAINER_HOST_{label}_PORT_LIST": numbers for label, numbers in listed.items()}
    variables["PAI_CONTAINER_HOST_PORT_LIST"] = "".join(
        f"{label}:{numbers};" for label, numbers in listed.items()
    )
    if place.ip:
        variables["PAI_CURRENT_CONTAINER_IP"] = variables["PAI_CONTAINER_HOST_IP"] = place.ip
    if http := place.ports.get("http"):
        variables["PAI_CURRENT_CONTAINER_PORT"] = variables["PAI_CONTAINER_HOST_PORT"] = str(http[0])
    if ssh := place.ports.get("ssh"):
        variables["PAI_CONTAINER_SSH_PORT"] = str(ssh[0])
    return variables


def _devices(place: TaskPlacement, role: TaskRole) -> dict[str, str]:
    """GPUs by id. Without GPUs the value "none" hides all of them, from CUDA and from containers."""
    ids = ",".join(map(str, place.gpus)) if role.resources.gpu else ""
    return dict.fromkeys(("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), ids or "none")


def _resource(role: TaskRole) -> str:
    resources = role.resources
    return f"{resources.gpu},{resources.cpu},{resources.memory_mb},{role.shm_mb or 0}"


def _stripped(name: str) -> str:
    return "".join(c for c in name.lower() if c.isascii() and c.isalnum())


def _size(variables: Mapping[str, str]) -> int:
    # Each variable also costs a pointer and two separators.
    return sum(map(len, variables)) + sum(map(len, variables.values())) + 10 * len(variables)


def _uid(*parts: object) -> str:
    """Deterministic uid, the same after a restart."""
    h = md5("/".join(map(str, parts)).encode(), usedforsecurity=False).hexdigest()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"
