"""Version 1, for legacy clients."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from paicluster.api.wire.base import GroupName, Name, WireModel
from paicluster.api.wire.jobs import (
    Count,
    ExitMessages,
    ExitSpec,
    Milliseconds,
    RetryDetails,
    TaskRoleStatus,
)
from paicluster.api.wire.users import Password
from paiprotocol.jobs.states import ExecutionType, JobState


class JobSummaryV1(WireModel):
    name: str
    username: str
    state: JobState
    sub_state: str
    execution_type: ExecutionType
    retries: Count
    retry_details: RetryDetails
    created_time: Milliseconds
    completed_time: Milliseconds | None
    app_exit_code: int | None
    virtual_cluster: str
    total_gpu_number: Count
    total_task_number: Count
    total_task_role_number: Count


class JobStatusV1(WireModel):
    username: str
    virtual_cluster: str
    state: JobState
    sub_state: str
    created_time: Milliseconds
    completed_time: Milliseconds | None
    execution_type: ExecutionType
    retries: Count
    retry_details: RetryDetails
    app_id: str
    app_progress: Literal[0, 1]
    app_tracking_url: str
    app_launched_time: Milliseconds | None
    app_completed_time: Milliseconds | None
    app_exit_code: int | None
    app_exit_spec: ExitSpec | None
    app_exit_trigger_message: str | None
    app_exit_trigger_task_role_name: str | None
    app_exit_trigger_task_index: int | None
    app_exit_diagnostics: str | None
    app_exit_messages: ExitMessages | None
    app_exit_type: str | None


class TaskV1(WireModel):
    task_index: Count
    task_state: JobState
    container_id: str
    container_ip: str | None
    container_ports: dict[str, str]
    container_exit_code: int | None
    container_gpus: int | None
    container_log: str


class TaskRoleV1(WireModel):
    task_role_status: TaskRoleStatus
    task_statuses: list[TaskV1]


class JobDetailV1(WireModel):
    name: str
    job_status: JobStatusV1
    task_roles: dict[str, TaskRoleV1]


class ResourcesV1(WireModel):
    memory: float
    v_cores: float
    gpus: Count = msgspec.field(name="GPUs")


VirtualClusterStatusV1 = Literal["RUNNING", "STOPPED", "DRAINING"]


class VirtualClusterV1(WireModel):
    capacity: float
    max_capacity: float
    used_capacity: float
    num_active_jobs: Count
    num_jobs: Count
    num_pending_jobs: Count
    resources_used: ResourcesV1
    resources_total: ResourcesV1
    dedicated: bool
    node_list: list[str]
    status: VirtualClusterStatusV1


class UserNameBodyV1(WireModel):
    username: Name


class UserBodyV1(WireModel):
    username: Name
    modify: bool | UnsetType = UNSET
    admin: bool | UnsetType = UNSET
    password: Password | UnsetType = UNSET
    # Our addition: needed for a new password, except by administrators.
    old_password: str | UnsetType = UNSET

    @staticmethod
    def is_required(path: str, read: Mapping[str, Any]) -> bool:
        return path == "password" and not read.get("modify")


class VirtualClustersBodyV1(WireModel):
    # Names, separated by commas.
    virtual_clusters: str


class VirtualClusterNamesV1(WireModel):
    """The names in a `VirtualClustersBodyV1`."""

    virtual_clusters: list[GroupName]
