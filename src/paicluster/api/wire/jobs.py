"""Jobs of version 2."""

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paicluster.api.routing.route import JSON, YAML, Body, Bound, Query
from paicluster.api.wire import body_decoder
from paicluster.api.wire.base import OpenModel, WireModel
from paiprotocol.jobs.states import ExecutionType, JobState

Milliseconds = Annotated[int, Meta(description="Since 1970, UTC.")]
Count = Annotated[int, Meta(ge=0)]


class TaskAddress(WireModel):
    role: str
    index: Count


class AppLink(WireModel):
    url: str
    role: str
    index: Count
    port: int


class RetryDetails(WireModel):
    user: Count
    platform: Count
    resource: Count


class ListedMetric(WireModel):
    """Metric of a job in a list: of its first task that logged it, or of all tasks of an array."""

    # None: of an array, whose tasks are runs of their own.
    last: float | str | None
    # None: all values are NaN.
    min: float | str | None
    max: float | str | None


class JobSummary(WireModel):
    debug_id: str
    name: str
    username: str
    state: JobState
    sub_state: str
    execution_type: ExecutionType
    tags: list[str]
    retries: Count
    retry_details: RetryDetails
    retry_delay_time: int | None
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
    # Our addition: of a finished job with several tasks, how many of them failed, if any did.
    failed_task_number: Count | UnsetType = UNSET
    reason: str | UnsetType | None = UNSET
    # Of those that were asked for. None: the jobs of the list have too many tasks.
    metrics: dict[str, ListedMetric] | UnsetType | None = UNSET
    # Texts of the values, without what is beyond 200 characters; of an array the first of its values.
    parameters: dict[str, list[str]] | UnsetType = UNSET


class JobColumns(WireModel):
    """What the jobs of a list can be asked for."""

    parameters: list[str]
    metrics: list[str]


class JobPage(WireModel):
    total_count: Count
    data: list[JobSummary]


class MetricSummary(WireModel):
    """Summary of a metric. What JSON has no number for is a text: `NaN`, `Infinity`, `-Infinity`."""

    count: Count
    last: float | str
    last_step: int
    # None: all values are NaN.
    min: float | str | None
    min_step: int | None
    max: float | str | None
    max_step: int | None


class MetricSegment(WireModel):
    """Values of a metric that one attempt of a task logged, or one of several runs within it."""

    name: str
    # From 1.
    attempt: Count
    steps: list[int]
    times: list[Milliseconds | None]
    # What JSON has no number for is a text: `NaN`, `Infinity`, `-Infinity`.
    values: list[float | str]


class SeriesCount(WireModel):
    """How many values of a metric were read, and how many of them are not finite."""

    name: str
    count: Count
    not_finite: Count


class MetricSeriesPart(WireModel):
    """Metrics of a task, thinned for plots. ``next``: the byte offset of what follows.

    ``is_whole``: it has everything, and replaces the parts before.
    """

    segments: list[MetricSegment]
    counts: list[SeriesCount]
    next: Count
    has_more: bool
    is_whole: bool = False


class TaskRun(WireModel):
    role: str
    index: Count
    state: JobState
    launched_time: Milliseconds | None
    completed_time: Milliseconds | None
    exit_code: int | None
    metrics: dict[str, MetricSummary]
    # Why it failed, if it did, in one line.
    cause: str | UnsetType = UNSET


class JobRuns(WireModel):
    """Parameters, states and metrics of all tasks of a job."""

    name: str
    username: str
    state: JobState
    tags: list[str]
    submission_time: Milliseconds
    launched_time: Milliseconds | None
    completed_time: Milliseconds | None
    # Whether its tasks are independent, like those of an array; else they are one run.
    is_array: bool
    # `parameters` of the job.
    parameters: dict[str, Any]
    # `extras.openpaisdk.array` or `arrayRows` of the job: the values of its tasks.
    array: dict[str, list[str]]
    array_rows: dict[str, list[str]]
    tasks: list[TaskRun]
    # Whether some of its metrics are not in the response: they are still being read, or are too many.
    has_unread_metrics: bool
    has_omitted_metrics: bool


class RunPage(WireModel):
    """``next``: the offset of the jobs that follow, if there may be some."""

    jobs: list[JobRuns]
    next: Count | None


class ExitSpec(WireModel, kw_only=True):
    code: int
    phrase: str
    issuer: str
    causer: str
    type: str
    stage: str
    behavior: str
    reaction: str
    reason: str | UnsetType = UNSET
    repro: list[str]
    solution: list[str]


class ErrorLogs(WireModel):
    """Last lines of a task's log."""

    user: str
    platform: str


class RuntimeExit(OpenModel, kw_only=True):
    """How the task ended that decided the attempt."""

    exit_code: int
    origin_user_exit_code: int | UnsetType = UNSET
    matched_user_log_string: str | UnsetType = UNSET
    matched_platform_log_string: str | UnsetType = UNSET
    caught_exception: str | UnsetType | None = UNSET
    # Our addition: what to do, where the cause of the failure is known.
    solution: str | UnsetType = UNSET
    error_logs: ErrorLogs | UnsetType = UNSET
    # Of the container, which OpenPAI has; the user's program always runs in the one named "app".
    name: str


class ExitMessages(WireModel):
    container: None
    runtime: RuntimeExit | None
    launcher: str | None


class JobStatus(WireModel):
    username: str
    state: JobState
    sub_state: str
    execution_type: ExecutionType
    retries: Count
    retry_details: RetryDetails
    retry_delay_time: int | None
    submission_time: Milliseconds
    created_time: Milliseconds
    launched_time: Milliseconds | None
    completed_time: Milliseconds | None
    attempt_id: Count
    attempt_state: JobState
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
    # Our addition: why the attempt failed, if it did, in one line.
    cause: str | UnsetType = UNSET
    attempt_id: Count
    attempt_state: JobState
    current_attempt_created_time: Milliseconds | None
    current_attempt_launched_time: Milliseconds | None
    current_attempt_completed_time: Milliseconds | None


# The fields of a task before those of its attempt, as in OpenPAI: a type that inherits has its own last.
class TaskDetail(WireModel, kw_only=True):
    task_index: Count
    task_uid: str | None
    task_state: JobState
    retries: Count
    accountable_retries: Count
    created_time: Milliseconds
    launched_time: Milliseconds | None
    completed_time: Milliseconds | None
    container_id: str | None
    container_ip: str | None
    container_node_name: str | None
    container_ports: dict[str, str]
    container_gpus: None
    container_log: str
    container_exit_code: int | None
    container_exit_spec: ExitSpec | None
    container_exit_diagnostics: str | None
    origin_user_exit_code: int | UnsetType | None = UNSET
    # Our addition: why the attempt failed, if it did, in one line.
    cause: str | UnsetType = UNSET
    attempt_id: Count
    attempt_state: JobState
    current_attempt_created_time: Milliseconds | None
    current_attempt_launched_time: Milliseconds | None
    current_attempt_completed_time: Milliseconds | None


class TaskRoleStatus(WireModel):
    name: str


class TaskRole(WireModel):
    task_role_status: TaskRoleStatus
    task_statuses: list[TaskDetail]


class JobDetail(WireModel, kw_only=True):
    debug_id: str
    name: str
    tags: list[str]
    job_priority: str | None
    reason: str | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    job_status: JobStatus
    task_roles: dict[str, TaskRole]


class TaskStatus(WireModel):
    username: str
    job_name: str
    job_attempt_id: Count
    task_role_name: str
    task_index: Count
    task_uid: str
    task_state: JobState
    retries: Count
    accountable_retries: Count
    created_time: Milliseconds | None
    launched_time: Milliseconds | None
    completed_time: Milliseconds | None
    attempts: list[TaskAttempt]


class LogLocation(WireModel):
    name: Literal["stdout", "stderr", "all"]
    uri: str


class LogLocations(WireModel):
    locations: list[LogLocation]


class LogTimes(WireModel):
    precision_ms: Count | None
    times: list[tuple[Count, Milliseconds]]


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
    task_state: JobState
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
    state: JobState
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
    # An unknown field is reported before an invalid tag.
    value: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            pattern=r"^[^,]+$",
            extra={"read": partial(body_decoder.text, min_length=1)},
        ),
    ]


def _execution_type(value: Any, field: body_decoder.Field) -> ExecutionType:
    if value != "START" and value != "STOP":
        raise field.invalid("must be one of [START, STOP].")
    return "START" if value == "START" else "STOP"


class ExecutionTypeBody(msgspec.Struct):
    value: Annotated[ExecutionType, Meta(extra={"read": _execution_type, "absent": None})]


EXECUTION_TYPE = Body(may_be_empty=False)

JOB_FILE = Body({YAML: dict[str, Any], JSON: dict[str, Any]}, limit=Bound.BODY_SETTING)
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
        "are those of the longest duration. Our addition, in lists of jobs: parameter.NAME, "
        "metric.NAME.last, metric.NAME.min or metric.NAME.max as FIELD, of at most 10000 jobs that match; "
        "those without a value come last.",
    ),
    Query("offset", Count),
    Query("limit", Annotated[int, Meta(ge=0, le=50000)]),
    Query("withTotalCount", bool, description="Respond with a page and the total number of jobs."),
)
STRICT = Query("strict", bool, description="Our addition: refuse a job that can never start.")


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
    # Null where the text is no job.
    name: str | None
    problems: list[JobProblem]
    # Why the job could not start as the cluster is now.
    warnings: list[str]
