"""Table of job options: each option of a job is defined here, once.

``pai sub``, ``pai notebook-job`` and ``pai resubmit``, short job files, cells, ``Job.one_liner`` and calls of
functions take their options from it. To add one: its definition in `JobOptions` (the order is that of the
help), its type for programs in `JobKeywords`, and the place where it takes effect.
"""

from __future__ import annotations

from openpaisdk.jobs import option_values as values
from openpaisdk.jobs.command import as_text
from openpaisdk.jobs.job_names import generate_name, names_of_jobs
from openpaisdk.jobs.option_definition import (
    CHOICE,
    COUNT,
    LIST,
    PATH,
    PRE_COMMANDS,
    ROLE,
    SWITCH,
    TEXT,
    VALUE,
    VARIABLES,
    JobOption,
)
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta
    from typing import Any, TypedDict

    from openpaisdk.jobs.job_names import NamedJob
    from openpaisdk.jobs.option_values import Items
    from openpaisdk.jobs.task_array import ArrayOption, TaskArray
    from openpaisdk.jobs.variables import Variables
else:

    class TypedDict:
        """Instead of the class of `typing`, which a command must not pay for."""

        def __init_subclass__(cls, total=True):
            pass


RESOURCES, ENVIRONMENT, FILES, SCHEDULING = "Resources", "Environment", "Files", "Scheduling"
"""Headings of the help, in its order."""


class ResourceOptions:
    """Resources of one task."""

    __slots__ = ("cpu", "gpu", "memory_mb", "ports")

    def __init__(self, cpu: int, gpu: int, memory_mb: int, ports: Mapping[str, int] | None = None):
        self.cpu = cpu
        self.gpu = gpu
        self.memory_mb = memory_mb
        self.ports = dict(ports or {})


EMBEDDED_RESOURCES = ResourceOptions(cpu=1, gpu=0, memory_mb=512)
"""Fits every machine several times: on a laptop a job should start, not stay pending."""
CLUSTER_RESOURCES = ResourceOptions(cpu=2, gpu=0, memory_mb=4096)


def _default_by_cluster(here: int, there: int) -> str:
    return f"default: {here} on the embedded cluster, else {there}"


def _memory(value: Any) -> str:
    return "" if value in ("", None) else f"{values.memory_mb(value)}m"


def _duration(value: Any) -> int:
    return values.seconds(value) if value else 0


def _array(value: Any) -> TaskArray | None:
    return _check_array(value) if value else None


def _check_array(value: Any) -> TaskArray:
    from openpaisdk.jobs.task_array import array_of

    return array_of(value)


def _sample(value: Any) -> int:
    return _check_sample(value)[0] if value else 0


def _check_sample(value: Any) -> tuple[int, int]:
    from openpaisdk.jobs.array_sample import read_sample

    return read_sample(value)


def _dependencies(value: Any) -> list[dict[str, object]]:
    return [values.dependency(text) for text in values.items_of(names_of_jobs(value), "after")]


def _check_dependencies(value: Any) -> object:
    return [values.dependency(job) for job in ([value] if isinstance(value, str) else value)]


def _sources(value: Any) -> list[str] | None:
    return None if value in (None, "") else values.items_of(value, "sources")


class JobOptions:
    """Options of a command job, as the user gave them. None or empty means: use the default."""

    name = JobOption(
        "-j",
        "--job-name",
        kind=TEXT,
        default="",
        metavar="NAME",
        help="the job's name; $ becomes a unique suffix",
        default_help="default: made from the command",
        keyword="job_name",
        key="name",
        other_keys=("job-name",),
        key_help="Name of the job; $ becomes a unique suffix (-j). By default made from the command.",
    )
    tags = JobOption[list[str]](
        "--tag",
        kind=LIST,
        default=[],
        read=values.tags_of,
        metavar="TAG",
        help="a tag of the job, for pai list-jobs --tag",
        default_help="default: none",
        key="tags",
        key_help="Tags of the job.",
    )
    cpu = JobOption[int | None](
        "--cpu",
        kind=COUNT,
        minimum=1,
        default=None,
        metavar="N",
        help="cores per task",
        default_help=_default_by_cluster(EMBEDDED_RESOURCES.cpu, CLUSTER_RESOURCES.cpu),
        group=RESOURCES,
        place=ROLE,
        key="resources:cpu",
        key_help="Cores per task (--cpu).",
    )
    gpu = JobOption[int | None](
        "--gpu",
        kind=COUNT,
        minimum=0,
        default=None,
        metavar="N",
        help="GPUs per task",
        default_help=f"default: {CLUSTER_RESOURCES.gpu}",
        group=RESOURCES,
        place=ROLE,
        key="resources:gpu",
        key_help="GPUs per task (--gpu).",
    )
    memory_mb = JobOption[int | None](
        "--memoryMB",
        kind=COUNT,
        minimum=1,
        default=None,
        metavar="N",
        help="memory per task in MB",
        default_help=_default_by_cluster(EMBEDDED_RESOURCES.memory_mb, CLUSTER_RESOURCES.memory_mb),
        group=RESOURCES,
        place=ROLE,
        keyword="memoryMB",
        key="resources:memoryMB",
        key_help="Memory per task in MB (--memoryMB).",
    )
    mem = JobOption(
        "--mem",
        kind=VALUE,
        default="",
        read=_memory,
        check=values.memory_mb,
        metavar="SIZE",
        help="memory per task with a unit, like 4g",
        default_help="default: see --memoryMB",
        group=RESOURCES,
        place=ROLE,
        key="resources:mem",
        key_help="Memory per task (--mem).",
        expected="a size like 4g",
        json_type="string",
    )
    instances = JobOption(
        "--instances",
        kind=COUNT,
        minimum=1,
        default=1,
        metavar="N",
        help="tasks, started together",
        default_help="default: 1, at most 10000",
        group=RESOURCES,
        place=ROLE,
        key="instances",
        key_help="Tasks, started together (--instances).",
    )
    array = JobOption(
        "--array",
        kind=VALUE,
        is_repeated=True,
        default=None,
        read=_array,
        check=_check_array,
        metavar="N[%M]|NAME=VALUES[%M]",
        help="N independent tasks, at most M at a time, or one for each value, like lr=0.1,0.01 or n=1-10; "
        "the value is {NAME} in the command and $NAME in the environment, and several options run all "
        "combinations",
        default_help="default: no array",
        group=RESOURCES,
        place=ROLE,
        key="array",
        key_help="Independent tasks (--array): a number, or one for each combination of values.",
        expected="a number of tasks, or lists of values by name",
        json_type=["integer", "string", "array", "object"],
        for_functions=False,
        for_copies=False,
    )
    """Independent tasks instead of a gang of ``instances``."""
    array_file = JobOption(
        "--array-file",
        kind=PATH,
        default="",
        metavar="FILE[%M]",
        help="one independent task for each row of a CSV file, or for each line of one with JSON objects; "
        "columns are variables, as those of --array, and - is the standard input",
        default_help="default: none",
        group=RESOURCES,
        place=ROLE,
        key="array-file",
        key_help="File with one task in each row, relative to this file (--array-file).",
        for_functions=False,
        for_copies=False,
    )
    sample = JobOption(
        "--sample",
        kind=VALUE,
        default=0,
        read=_sample,
        check=_check_sample,
        metavar="N[%M]",
        help="N independent tasks with values drawn from --array: NAME=log(1e-5,1e-1), by magnitude, "
        "NAME=0.1..0.5, NAME=1..8, whole numbers, NAME=adam|sgd, or any values of --array",
        default_help="default: all combinations",
        group=RESOURCES,
        place=ROLE,
        key="sample",
        key_help="Number of tasks with values drawn from array (--sample).",
        expected="a number of tasks",
        json_type=["integer", "string"],
        for_functions=False,
        for_copies=False,
    )
    sample_seed = JobOption[int | None](
        "--sample-seed",
        kind=COUNT,
        minimum=0,
        default=None,
        metavar="N",
        help="draw other values: the same seed draws the same ones everywhere",
        default_help="default: 0",
        group=RESOURCES,
        place=ROLE,
        key="sample-seed",
        key_help="Seed of the values that sample draws (--sample-seed).",
        for_functions=False,
        for_copies=False,
    )
    ports = JobOption[dict[str, int]](
        "--ports",
        kind=VALUE,
        is_repeated=True,
        default={},
        read=values.port_counts,
        check=values.port_counts,
        metavar="LABEL=N",
        help=f"N ports, assigned by the cluster, at most {values.MAX_PORTS} per label; - in a label becomes "
        "_",
        default_help="default: none",
        group=RESOURCES,
        place=ROLE,
        key="resources:ports",
        key_help="Ports per task by label (--ports).",
        expected="counts by label, like {http: 1}",
        json_type=["object", "array", "string"],
    )
    image = JobOption(
        "-i",
        "--image",
        kind=TEXT,
        default="",
        help="the container image",
        default_help="default: none where jobs run on the machine itself, as on the embedded cluster; "
        "elsewhere it is required",
        group=ENVIRONMENT,
        place=ROLE,
        key="image",
        key_help="Container image (-i).",
    )
    env = JobOption[dict[str, str]](
        "--env",
        kind=VARIABLES,
        default={},
        metavar="NAME[=VALUE]",
        help="an environment variable of the job",
        default_help="default value: the one it has here",
        group=ENVIRONMENT,
        place=PRE_COMMANDS,
        key="env",
        key_help="Environment variables (--env).",
    )
    secrets = JobOption[dict[str, str]](
        "--secret",
        kind=VARIABLES,
        default={},
        metavar="NAME[=VALUE]",
        help="the same as --env, but masked in logs and in the job's configuration",
        group=ENVIRONMENT,
        place=PRE_COMMANDS,
        key="secrets",
        key_help="Variables that are masked in logs and configurations (--secret).",
    )
    pip_installs = JobOption[list[str]](
        "--pip-installs",
        "--pip",
        kind=LIST,
        default=[],
        metavar="PACKAGE",
        help="a Python package to install before the command",
        default_help="default: none",
        group=ENVIRONMENT,
        place=PRE_COMMANDS,
        key="pip",
        other_keys=("pip-installs",),
        key_help="Python packages to install (--pip).",
    )
    pip_path = JobOption(
        "--pip-path",
        kind=PATH,
        default="",
        metavar="PIP",
        help="the pip to install with",
        default_help="default: python -m pip",
        group=ENVIRONMENT,
        place=PRE_COMMANDS,
        key="pip-path",
        key_help="The pip to install with (--pip-path).",
        for_functions=False,
    )
    python = JobOption(
        "--python",
        kind=PATH,
        default="",
        metavar="PYTHON",
        help="the Python of the image to use",
        default_help="default: python",
        group=ENVIRONMENT,
        place=PRE_COMMANDS,
        key="python",
        key_help="The Python of the image to use (--python).",
    )
    capture_logging = JobOption(
        "--capture-logging",
        kind=SWITCH,
        default=False,
        help="add level and time to the records of Python's logging, for pai logs --level",
        group=ENVIRONMENT,
        place=PRE_COMMANDS,
        key="capture-logging",
        key_help="Whether Python's logging records get level and time (--capture-logging).",
    )
    sources = JobOption(
        "--sources",
        "--src",
        kind=LIST,
        default=None,
        read=_sources,
        metavar="PATH",
        help="upload only this file or folder, as large as the cluster takes",
        default_help="default: the current folder, up to 100 MB",
        group=FILES,
        key="sources",
        other_keys=("src",),
        key_help="Files and folders to upload, relative to this file (--sources); by default the folder of "
        "this file, an empty list for nothing.",
    )
    """None: the folder. Empty: no files."""
    workspace = JobOption(
        "-w",
        "--workspace",
        kind=TEXT,
        default="",
        metavar="PATH",
        help="the folder on the storage for the job's files, relative to /<user>",
        default_help="default: the workspace of pai set, else of pai select-storage",
        group=FILES,
        key="workspace",
        key_help="Folder on the storage for the job's files (-w).",
    )
    outputs = JobOption[list[str]](
        "--outputs",
        kind=LIST,
        default=[],
        metavar="PATH",
        help="an output file or folder, stored when the job ends",
        default_help="default: $PAI_OUTPUT_DIR only",
        group=FILES,
        key="outputs",
        key_help="Output files and folders, stored when the job ends (--outputs).",
    )
    virtual_cluster = JobOption(
        "--vc",
        "--virtual-cluster",
        kind=TEXT,
        default="",
        metavar="VC",
        help="the virtual cluster",
        default_help='default: that of pai set, or "default"',
        group=SCHEDULING,
        key="vc",
        other_keys=("virtual-cluster",),
        key_help="Virtual cluster (--vc).",
    )
    priority = JobOption(
        "--priority",
        kind=CHOICE,
        default="",
        choices=values.PRIORITIES,
        read=values.priority_class,
        help="the priority class, highest first; oppo may be preempted",
        default_help="default: test",
        group=SCHEDULING,
        key="priority",
        key_help="Priority class (--priority).",
    )
    time_limit_s = JobOption(
        "--timeout",
        kind=VALUE,
        default=0,
        read=_duration,
        check=values.seconds,
        metavar="TIME",
        help="stop a task after this time, like 90s, 2h",
        default_help="default: never",
        group=SCHEDULING,
        keyword="timeout",
        key="timeout",
        key_help="Time after which a task is stopped (--timeout).",
        expected="a duration like 2h",
        json_type=["string", "number"],
    )
    retries = JobOption(
        "--retry",
        kind=COUNT,
        minimum=0,
        default=0,
        metavar="N",
        help="retries of a failed job",
        default_help="default: 0; failures of the cluster itself are retried anyway",
        group=SCHEDULING,
        key="retry",
        key_help="Retries of a failed job (--retry).",
    )
    after = JobOption[list[dict[str, object]]](
        "--after",
        kind=VALUE,
        is_repeated=True,
        default=[],
        read=_dependencies,
        check=_check_dependencies,
        metavar="JOB[:end]",
        help="start after this job has succeeded, with :end after it has finished",
        default_help="default: at once",
        group=SCHEDULING,
        key="after",
        key_help="Jobs that must succeed first; with :end, finish first (--after).",
        expected="names of jobs",
        json_type=["string", "array"],
    )
    debug_hold_s = JobOption(
        "--debug-hold",
        kind=VALUE,
        default=0,
        optional="1h",
        read=_duration,
        check=values.seconds,
        metavar="TIME",
        help="keep a failed task for inspection, for TIME or 1h",
        default_help="default: off",
        group=SCHEDULING,
        place=PRE_COMMANDS,
        keyword="debug_hold",
        key="debug-hold",
        key_help="How long a failed task is kept for inspection (--debug-hold).",
        expected="a duration like 10m",
        json_type=["string", "number"],
    )

    def __init__(self, name: str, commands: Sequence[str], **given: Any):
        """``given``: values by the names of the attributes, already read."""
        for option in JOB_OPTIONS:
            default = option.default
            self.__dict__[option.name] = (
                type(default)(default) if isinstance(default, (list, dict)) else default
            )
        self.__dict__.update(given)
        self.name = name
        self.commands = list(commands)
        self.inherited_env: dict[str, str] = {}
        """Variables of the caller's shell, for a job on the caller's machine."""
        self.source_archive: dict[str, object] | None = None
        """Hash and size of the source archive that the cluster unpacks."""
        self.needed_files: list[str] = []
        """Files that are uploaded in any case: paths relative to the folder of the sources."""
        self.transfer_commands: list[str] = []
        """Commands that download the job's files, on a cluster that does not do it itself."""

    @classmethod
    def read(cls, name: str, commands: Items, given: Mapping[str, Any]) -> JobOptions:
        """The options of a job that runs shell lines, one after the other. Without a name, one is generated.

        ``given``: values by keyword, from a command line, a job file or a program.
        """
        lines = [as_text(line) for line in values.items_of(commands, "commands")]
        if not lines or not all(line.strip() for line in lines):
            raise UsageError("There is no command to run.")
        given = _with_sweep(given)
        read = {(option := KEYWORDS[keyword]).name: option.read(value) for keyword, value in given.items()}
        options = cls(name or generate_name(lines[0]), lines, **read)
        check_contradictions(options)
        return options

    @property
    def task_count(self) -> int:
        return self.array.count if self.array else self.instances


class JobKeywords(TypedDict, total=False):
    """Types of the options in Python programs. ``image`` is missing: it may be given without its name."""

    tags: Items
    cpu: int | None
    gpu: int | None
    memoryMB: int | None  # noqa: N815 (its name in job files and on the command line)
    mem: str
    instances: int
    array: ArrayOption | None
    array_file: str | os.PathLike[str]
    sample: int | str
    sample_seed: int | None
    ports: Items | Mapping[str, int]
    env: Variables
    secrets: Variables
    pip_installs: Items
    pip_path: str | os.PathLike[str]
    python: str | os.PathLike[str]
    capture_logging: bool
    sources: Items | None
    workspace: str
    outputs: Items
    virtual_cluster: str
    priority: str
    timeout: str | float | timedelta
    retries: int
    after: str | os.PathLike[str] | NamedJob | Iterable[str | os.PathLike[str] | NamedJob]
    debug_hold: str | float | timedelta


JOB_OPTIONS: tuple[JobOption[Any], ...] = tuple(
    option for option in vars(JobOptions).values() if isinstance(option, JobOption)
)
"""All options, in the order of the help."""
KEYWORDS = {option.keyword: option for option in JOB_OPTIONS if option.name != "name"}
"""The options by their names in Python, without the name of the job."""


def _with_sweep(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The given options, with the values of a file or a sample as an array."""
    is_given = given.get("array_file") or given.get("sample") or given.get("sample_seed") is not None
    if not is_given:
        return given
    from openpaisdk.jobs.sweep import sweep_array

    return {**given, "array": sweep_array(given)}


def check_contradictions(options: JobOptions) -> None:
    """Reject options that contradict each other."""
    if both := [name for name in options.env if name in options.secrets]:
        raise UsageError(f"{both[0]} is given with --env and with --secret: use only one of them.")
    if options.array and options.instances > 1:
        raise UsageError("--array and --instances contradict each other: both set the number of tasks.")
    if options.mem and options.memory_mb is not None:
        raise UsageError("--mem and --memoryMB contradict each other: both set the memory of a task.")
    for name in options.array.variables if options.array else ():
        if name in options.env or name in options.secrets:
            raise UsageError(
                f"{name} is given with --array and with --env or --secret: use only one of them."
            )
