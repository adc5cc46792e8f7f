"""Jobs of version 2."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paicluster.api.openapi.operation import (
    JSON,
    PAGE,
    TEXT,
    YAML,
    Body,
    Either,
    MessageWithStatus,
    Operation,
    Problem,
    Query,
    Text,
    WireModel,
    json_or_form,
)

State = Literal["WAITING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED", "UNKNOWN"]
ExecutionType = Literal["START", "STOP"]
Milliseconds = Annotated[int, Meta(description="Since 1970, UTC.")]
Count = Annotated[int, Meta(ge=0)]


class TaskAddress(WireModel):
    role: str
    index: Count


class AppLink(TaskAddress):
    url: str
    port: int


class RetryDetails(WireModel):
    user: Count
    platform: Count
    resource: Count


class JobSummary(WireModel):
    debug_id: str
    name: str
    username: str
    state: State
    sub_state: str
    execution_type: ExecutionType
    tags: list[str]
    retries: Count
    retry_details: RetryDetails
    retry_delay_time: float | None
    submission_time: Milliseconds
    created_time: Milliseconds
    launched_time: Milliseconds | None
    completed_time: Milliseconds | None
    app_exit_code: int | None
    virtual_cluster: str
    total_gpu_number: Count
    total_task_number: Count
    total_task_role_number: Count
    job_priority: str | None
    reason: str | UnsetType | None = UNSET


class JobPage(WireModel):
    total_count: Count
    data: list[JobSummary]


class ExitSpec(WireModel):
    code: int
    phrase: str
    issuer: str
    causer: str
    type: str
    stage: str
    behavior: str
    reaction: str
    repro: list[str]
    solution: list[str]
    reason: str | UnsetType = UNSET


class RuntimeExit(msgspec.Struct, rename="camel"):
    exit_code: int
    name: str
    origin_user_exit_code: int | UnsetType = UNSET
    matched_user_log_string: str | UnsetType = UNSET
    matched_platform_log_string: str | UnsetType = UNSET
    caught_exception: str | UnsetType | None = UNSET
    # Our addition: what to do, where the cause of the failure is known.
    solution: str | UnsetType = UNSET


class ExitMessages(WireModel):
    container: None
    runtime: RuntimeExit | None
    launcher: str | None


class JobStatus(WireModel):
    username: str
    state: State
    sub_state: str
    execution_type: ExecutionType
    retries: Count
    retry_details: RetryDetails
    retry_delay_time: float | None
    submission_time: Milliseconds
    created_time: Milliseconds
    launched_time: Milliseconds | None
    completed_time: Milliseconds | None
    attempt_id: Count
    attempt_state: str
    app_id: str
    app_progress: Literal[0, 1]
    app_tracking_url: str
    app_created_time: Milliseconds | None
    app_launched_time: Milliseconds | None
    app_completed_time: Milliseconds | None
    app_exit_code: int | None
    app_exit_spec: ExitSpec | None
    app_exit_diagnostics: str | None
    app_exit_messages: ExitMessages | None
    app_exit_trigger_message: str | None
    app_exit_trigger_task_role_name: str | None
    app_exit_trigger_task_index: int | None
    app_exit_type: str | None
    virtual_cluster: str


class TaskAttempt(WireModel, kw_only=True):
    # Null while the task has no attempt.
    container_id: str | None
    container_ip: str | None
    container_node_name: str | None
    container_ports: dict[str, str]
    container_gpus: None
    container_log: str
    container_exit_code: int | None
    container_exit_spec: ExitSpec | None
    container_exit_diagnostics: str | None
    # Our addition: exit code of the program itself, where the reported one differs.
    origin_user_exit_code: int | UnsetType | None = UNSET
    attempt_id: Count
    attempt_state: str
    current_attempt_created_time: Milliseconds | None
    current_attempt_launched_time: Milliseconds | None
    current_attempt_completed_time: Milliseconds | None


class TaskDetail(TaskAttempt):
    task_index: Count
    task_uid: str | None
    task_state: str
    retries: Count
    accountable_retries: Count
    created_time: Milliseconds
    launched_time: Milliseconds | None
    completed_time: Milliseconds | None


class TaskRoleStatus(WireModel):
    name: str


class TaskRole(WireModel):
    task_role_status: TaskRoleStatus
    task_statuses: list[TaskDetail]


class JobDetail(WireModel):
    debug_id: str
    name: str
    tags: list[str]
    job_priority: str | None
    job_status: JobStatus
    task_roles: dict[str, TaskRole]
    reason: str | UnsetType = UNSET


class TaskStatus(WireModel):
    username: str
    job_name: str
    job_attempt_id: Count
    task_role_name: str
    task_index: Count
    task_uid: str
    task_state: str
    retries: Count
    accountable_retries: Count
    created_time: Milliseconds
    launched_time: Milliseconds | None
    completed_time: Milliseconds | None
    attempts: list[TaskAttempt]


class LogLocation(WireModel):
    name: Literal["stdout", "stderr", "all"]
    uri: str


class LogLocations(WireModel):
    locations: list[LogLocation]


class JobEvent(WireModel):
    uid: str
    framework_name: str
    pod_uid: str | None
    taskrole_name: str | None
    task_name: str | None
    task_index: int | None
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    first_timestamp: str
    last_timestamp: str
    count: Count
    source_component: str
    source_host: str | None
    pending: bool


class EventPage(WireModel):
    total_count: Count
    data: list[JobEvent]


class AttemptTask(WireModel):
    task_index: Count
    task_state: str
    container_id: str
    container_ip: str
    container_gpus: None
    container_log: str
    container_exit_code: int | None


class AttemptRole(WireModel):
    task_role_status: TaskRoleStatus
    task_statuses: list[AttemptTask]


class ExitDiagnostics(WireModel):
    diagnostics_summary: str
    runtime: RuntimeExit | None
    launcher: str


class JobAttempt(WireModel):
    job_name: str
    framework_name: str
    uid: str
    user_name: str
    state: str
    origin_state: str
    attempt_index: Count
    job_started_time: Milliseconds
    attempt_started_time: Milliseconds | None
    attempt_completed_time: Milliseconds | None
    exit_code: int | None
    exit_phrase: str | None
    exit_type: str | None
    exit_diagnostics: ExitDiagnostics | None
    app_exit_trigger_message: str | None
    app_exit_trigger_task_role_name: str | None
    app_exit_trigger_task_index: int | None
    app_exit_spec: ExitSpec | None
    app_exit_diagnostics: str | None
    app_exit_messages: ExitMessages | None
    total_gpu_number: Count
    total_task_number: Count
    total_task_role_number: Count
    job_priority: str | None
    task_roles: dict[str, AttemptRole]
    is_latest: bool


class Tag(WireModel):
    value: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[^,]+$")]


class ExecutionTypeBody(msgspec.Struct):
    value: ExecutionType


# See `v2.follow`.
FOLLOW = "application/vnd.openpai.follow"
NDJSON = "application/x-ndjson"
JOB = Body({YAML: dict[str, Any], JSON: dict[str, Any]})
JOB_FILTERS = (
    Query("username", description="Users, separated by commas."),
    Query("vc", description="Virtual clusters."),
    Query("state", description="States."),
    Query("keyword", description="Part of the name of the user, the job or the virtual cluster."),
    Query("tagsContain", description="Jobs with any of these tags."),
    Query("tagsNotContain", description="Jobs with none of these tags."),
    Query("jobPriority", description="Priorities; `default` selects jobs without one."),
    Query(
        "order",
        description="FIELD,ASC or FIELD,DESC; by default submissionTime,DESC. Jobs that have not ended "
        "are those of the longest duration.",
    ),
    Query("offset", Count),
    Query("limit", Annotated[int, Meta(ge=0, le=50000)]),
    Query("withTotalCount", bool, description="Respond with a page and the total number of jobs."),
)
_REASONS = Query("reasons", bool, description="Our addition: with the pending reason of waiting jobs.")
_CAUSES = Query(
    "causes", bool, description="Our addition: with the cause of the first 1000 failed jobs, as their reason."
)
STRICT = Query("strict", bool, description="Our addition: refuse a job that can never start.")
LOG_QUERY = (
    Query("pod-uid", required=True),
    Query("token", description="Ticket from the log's location; without it an API token is required."),
    Query("username"),
    Query("framework-name"),
    Query("taskrole"),
)
_TAG = "job"


class SshContainer(WireModel):
    id: str
    ssh_ip: str
    ssh_port: str
    # User name, of a task that is reached through the cluster's endpoint; else it is root.
    user: str | UnsetType = UNSET


class SshKeyPair(WireModel):
    folder_path: str
    public_key_file_name: str
    private_key_file_name: str
    private_key_direct_download_link: str


class SshInfo(WireModel):
    containers: list[SshContainer]
    key_pair: SshKeyPair
    # Public key of the cluster's endpoint, as in known_hosts.
    host_key: str | UnsetType = UNSET


class JobProblem(WireModel):
    # From 1; 0 where the problem has no place in the text.
    line: int
    column: int
    key: str
    message: str


class JobCheck(WireModel):
    version: Literal[1, 2]
    # Null where the job has problems.
    name: str | None
    problems: list[JobProblem]


OPERATIONS: dict[str, Operation] = {
    "v2.job_checks.check": Operation(
        "Check a job file without submitting it", _TAG, {200: JobCheck}, body=JOB
    ),
    "v2.job_schemas.schema": Operation(
        "Get the JSON Schema of job files; the version is v1 or v2", _TAG, {200: dict[str, Any]}
    ),
    "v2.jobs.submit": Operation(
        "Submit a job", _TAG, {202: MessageWithStatus}, (403, 404, 409, 422, 507), body=JOB, query=(STRICT,)
    ),
    "v2.jobs.list_jobs": Operation(
        "List jobs", _TAG, {200: Either(list[JobSummary], JobPage)}, query=(*JOB_FILTERS, _REASONS, _CAUSES)
    ),
    "v2.jobs.detail": Operation("Get a job and one of its attempts", _TAG, {200: JobDetail}, (403,)),
    "v2.jobs.config": Operation("Get the job as submitted, secrets masked", _TAG, {200: Text(YAML)}, (403,)),
    "v2.jobs.execution_type": Operation(
        "Stop a job", _TAG, {202: MessageWithStatus}, (403,), body=json_or_form(ExecutionTypeBody)
    ),
    "v2.jobs.events": Operation(
        "List the events of a job",
        _TAG,
        {200: EventPage},
        (403,),
        query=(Query("type", description="Normal or Warning."), *PAGE),
    ),
    "v2.ssh.ssh": Operation("Get the SSH addresses of a job's tasks", _TAG, {200: SshInfo}, (403,)),
    "v2.task_metrics.metrics": Operation(
        "Metrics that a task logs per step, one line of JSON each",
        _TAG,
        {200: Text(NDJSON)},
        (403,),
        query=(
            Query("role"),
            Query("index", Count),
            Query("start", Count, description="Byte offset to start from."),
        ),
    ),
    "v2.jobs.add_tag": Operation("Tag a job", _TAG, {200: MessageWithStatus}, (403,), body=json_or_form(Tag)),
    "v2.jobs.delete_tag": Operation(
        "Remove a tag from a job", _TAG, {200: MessageWithStatus}, (403,), body=json_or_form(Tag)
    ),
    "v2.job_attempts.healthz": Operation("Health of the list of attempts", _TAG, {200: Text()}),
    "v2.job_attempts.list_attempts": Operation(
        "List the attempts of a job, legacy format",
        _TAG,
        {200: list[JobAttempt], 404: Either(Problem, type(None))},
        (403,),
        query=PAGE,
    ),
    "v2.job_attempts.one_attempt": Operation(
        "Get an attempt of a job, legacy format", _TAG, {200: JobAttempt}, (403,)
    ),
    "v2.jobs.task_attempts": Operation("List the attempts of a task", _TAG, {200: TaskStatus}, (403,)),
    "v2.task_logs.locations": Operation(
        "List the locations of a task's logs",
        _TAG,
        {200: LogLocations},
        (403,),
        query=(Query("tail-mode", bool), Query("tailMode", bool)),
    ),
    "v2.task_logs.list_logs": Operation(
        "List a task's logs", "log", {200: dict[str, str]}, (403, 404), query=LOG_QUERY
    ),
    "v2.task_logs.read_log": Operation(
        "Read a task's log",
        "log",
        {200: Text(TEXT, binary=True), 206: Text(TEXT, binary=True), 416: None},
        (403,),
        query=(
            Query("tail-mode", bool, description="The last 16384 bytes."),
            Query("follow", bool, description="Keep the connection open until the task has finished."),
            Query("start", Count, description="With follow: byte offset to start from."),
            *LOG_QUERY,
        ),
    ),
    "v2.follow.follow": Operation(
        "Stream a job's states, events and log; docs/contributing/architecture.md has the format",
        _TAG,
        {200: Text(FOLLOW, binary=True)},
        (403,),
        query=(
            Query("role"),
            Query("index", Count),
            Query("stream", Literal["stdout", "stderr", "all", "none"]),
            Query("from", description="ATTEMPT.TASKATTEMPT:OFFSET."),
            Query("tail", Count, description="Start with this number of last lines."),
            Query("tailBytes", Count, description="With tail: start with at most so many bytes."),
            Query("follow", bool, description="Stream until the job has finished; by default true."),
        ),
    ),
    "v2.log_search.search": Operation(
        "Search a task's log for a text, in upper or lower case; lines of JSON: `hit` with the offsets of "
        "the text and of its line, `progress`, and `end`, whose `offset` is where a next search may start",
        _TAG,
        {200: Text(NDJSON)},
        (403,),
        query=(
            Query("text", required=True, description="One line of 1 to 1024 bytes."),
            Query("role"),
            Query("index", Count),
            Query("attempt", Count, description="By default the latest attempt of the job and of the task."),
            Query("taskAttempt", Count),
            Query("stream", Literal["all", "stdout", "stderr"]),
            Query("direction", Literal["forward", "backward"]),
            Query("from", Count, description="Byte offset; by default the start, or backward the end."),
            Query("limit", Annotated[int, Meta(ge=1, le=1000)], description="Number of lines, by default 1."),
            Query("matchCase", bool),
        ),
    ),
    "v2.apps.open_app": Operation(
        "A link that opens a port of a task in a browser, once, at an address of its own",
        _TAG,
        {200: AppLink},
        (400, 403, 409, 429, 501, 503),
        query=(
            Query("role"),
            Query("index", Count),
            Query("port", Count, description="Required."),
            Query("to", description="Path of the app to which the link leads."),
        ),
    ),
    "v2.forward.forward": Operation(
        "Whether a task's ports can be forwarded; with an upgrade, docs/contributing/exec-and-forward.md, "
        "a connection with one of them",
        _TAG,
        {200: TaskAddress},
        (400, 403, 409, 426, 501),
        query=(
            Query("role"),
            Query("index", Count),
            Query("port", Count, description="Required for an upgrade."),
        ),
    ),
}
