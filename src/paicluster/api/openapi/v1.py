"""Version 1, for legacy clients."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from paicluster.api.openapi.clusters import VirtualClusterBody, VirtualClusterStatusBody
from paicluster.api.openapi.jobs import (
    JOB_FILTERS,
    STRICT,
    Count,
    ExecutionType,
    ExecutionTypeBody,
    ExitMessages,
    ExitSpec,
    Milliseconds,
    RetryDetails,
    SshInfo,
    State,
    TaskRoleStatus,
)
from paicluster.api.openapi.operation import (
    YAML,
    Message,
    Operation,
    Query,
    Text,
    WireModel,
    json_or_form,
)
from paicluster.api.openapi.users import Name, Password

_TAG = "version 1"


class JobSummaryV1(WireModel):
    name: str
    username: str
    state: State
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
    state: State
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
    task_state: str
    container_id: str
    container_ip: str | None
    container_ports: dict[str, str]
    container_gpus: int | None
    container_log: str
    container_exit_code: int | None


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
    status: Literal["RUNNING", "STOPPED", "DRAINING"]


class UserNameBodyV1(WireModel):
    username: Name


class UserBodyV1(WireModel):
    username: Name
    password: Password | UnsetType = UNSET
    admin: bool | UnsetType = UNSET
    modify: bool | UnsetType = UNSET
    # Our addition: needed for a new password, except by administrators.
    old_password: str | UnsetType = UNSET


class VirtualClustersBodyV1(WireModel):
    virtual_clusters: str


_JOB = json_or_form(dict[str, Any])
_PAGE = Text("text/html")

OPERATIONS: dict[str, Operation] = {
    "v1.jobs.list_jobs": Operation("List jobs", _TAG, {200: list[JobSummaryV1]}, query=JOB_FILTERS),
    "v1.jobs.submit": Operation(
        "Submit a job", _TAG, {202: Message}, (403, 404, 409, 422, 507), body=_JOB, query=(STRICT,)
    ),
    "v1.jobs.detail": Operation("Get a job", _TAG, {200: JobDetailV1}, (403,)),
    "v1.jobs.remove": Operation(
        "Delete a job; a running one is stopped first",
        _TAG,
        {202: Message},
        (403, 409),
        query=(
            Query("finished", Literal["only"], description="`only`: refuse to delete an unfinished job."),
        ),
    ),
    "v1.jobs.config": Operation(
        "Get the job as submitted", _TAG, {200: (dict[str, Any], Text(YAML))}, (403,)
    ),
    "v1.ssh.ssh": Operation("Get the SSH addresses of a job's tasks", _TAG, {200: SshInfo}, (403,)),
    "v1.jobs.execution_type": Operation(
        "Stop a job", _TAG, {202: Message}, (403,), body=json_or_form(ExecutionTypeBody)
    ),
    "v1.virtual_clusters.list_clusters": Operation(
        "List virtual clusters", _TAG, {200: dict[str, VirtualClusterV1]}
    ),
    "v1.virtual_clusters.one_cluster": Operation(
        "Get a virtual cluster", _TAG, {200: VirtualClusterV1}, (400,)
    ),
    "v1.task_logs.list_files": Operation(
        "Index page of a task's logs", "log", {200: _PAGE}, (401,), token=False
    ),
    "v1.task_logs.read_file": Operation(
        "Read a task's log",
        "log",
        {200: (_PAGE, Text())},
        (401,),
        query=(Query("start", int, description="Byte offset; a negative one counts from the end."),),
        token=False,
    ),
    "v1.ssh.private_key": Operation(
        "Get the private SSH key of a job's user",
        _TAG,
        {200: Text("application/x-pem-file")},
        (401,),
        token=False,
    ),
    "v1.virtual_clusters.put_cluster": Operation(
        "Create a virtual cluster, or change its capacity",
        _TAG,
        {201: Message},
        (403, 409),
        body=json_or_form(VirtualClusterBody),
    ),
    "v1.virtual_clusters.put_status": Operation(
        "Start or stop a virtual cluster",
        _TAG,
        {201: Message},
        (403,),
        body=json_or_form(VirtualClusterStatusBody),
    ),
    "v1.virtual_clusters.delete_cluster": Operation(
        "Delete a virtual cluster", _TAG, {201: Message}, (400, 403)
    ),
    "v1.users.put_user": Operation(
        "Create or change a user", _TAG, {201: Message}, (403, 404, 409), body=json_or_form(UserBodyV1)
    ),
    "v1.users.delete_user": Operation(
        "Delete a user", _TAG, {200: Message}, (403, 404), body=json_or_form(UserNameBodyV1)
    ),
    "v1.users.put_virtual_clusters": Operation(
        "Change a user's virtual clusters",
        _TAG,
        {201: Message},
        (403,),
        body=json_or_form(VirtualClustersBodyV1),
    ),
}
