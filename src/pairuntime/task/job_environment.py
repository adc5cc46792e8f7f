"""``submitit.JobEnvironment``: what a function can ask about the job it runs in."""

import contextlib
import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Iterator, Sequence

TASKS_PER_NODE = "PAI_TASKS_PER_NODE"
"""Variable with the number of consecutive tasks that belong to one node."""
LOCAL_CALL = "PAI_LOCAL_CALL"
"""Variable with the name of a call that a program makes itself, in place of a job."""


class JobEnvironment:
    """The job that this program runs in: ranks, number of tasks, host names."""

    def __init__(self) -> "None":
        if not self.activated():
            raise RuntimeError("This program does not run in a job.")

    @staticmethod
    def activated() -> "bool":
        return bool(os.environ.get("PAI_JOB_NAME") or os.environ.get(LOCAL_CALL))

    @property
    def cluster(self) -> "str":
        return "debug" if os.environ.get(LOCAL_CALL) else "openpai"

    @property
    def job_id(self) -> "str":
        if os.environ.get(LOCAL_CALL):
            return os.environ[LOCAL_CALL]
        name = os.environ["PAI_JOB_NAME"].rpartition("~")[2]
        call = os.environ.get("PAI_CALL_INDEX")
        if call:
            return "%s_%s" % (name, call)
        is_item = self._task_count() > 1 and self._is_alone()
        return "%s_%d" % (name, self._task_index()) if is_item else name

    @property
    def raw_job_id(self) -> "str":
        return self.job_id

    @property
    def array_job_id(self) -> "str | None":
        """The name of the job, in an array."""
        return None if self.array_task_id is None else os.environ["PAI_JOB_NAME"].rpartition("~")[2]

    @property
    def array_task_id(self) -> "str | None":
        """The number of the call, in an array."""
        call = os.environ.get("PAI_CALL_INDEX")
        return call or None

    @property
    def hostname(self) -> "str":
        return socket.gethostname()

    @property
    def hostnames(self) -> "list[str]":
        """The addresses of all nodes."""
        if self._is_alone():
            return [os.environ.get("PAI_CONTAINER_HOST_IP") or self.hostname]
        role = os.environ.get("PAI_CURRENT_TASK_ROLE_NAME", "main")
        listed = os.environ.get("PAI_TASK_ROLE_%s_HOST_LIST" % role, "")
        hosts = [item.partition(":")[0] for item in listed.split(",") if item]
        return hosts[:: self._tasks_per_node()] or [self.hostname]

    @property
    def num_tasks(self) -> "int":
        """Number of tasks that work together: 1 in an array, whose calls and tasks are independent."""
        return 1 if self._is_alone() else self._task_count()

    @property
    def global_rank(self) -> "int":
        return 0 if self._is_alone() else self._task_index()

    def _is_alone(self) -> "bool":
        """Whether the task belongs to an array, of calls or of commands."""
        return self.array_task_id is not None or os.environ.get("WORLD_SIZE") == "1"

    @staticmethod
    def _task_count() -> "int":
        role = os.environ.get("PAI_CURRENT_TASK_ROLE_NAME", "main")
        return int(os.environ.get("PAI_TASK_ROLE_TASK_COUNT_" + role) or os.environ.get("WORLD_SIZE") or 1)

    @staticmethod
    def _task_index() -> "int":
        return int(os.environ.get("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX") or 0)

    def _tasks_per_node(self) -> "int":
        given = os.environ.get(TASKS_PER_NODE, "")
        return max(1, min(int(given), self.num_tasks)) if given.isdigit() else 1

    @property
    def local_rank(self) -> "int":
        """The number of this task on its node."""
        return self.global_rank % self._tasks_per_node()

    @property
    def num_nodes(self) -> "int":
        return -(-self.num_tasks // self._tasks_per_node())

    @property
    def node(self) -> "int":
        """The number of the node of this task."""
        return self.global_rank // self._tasks_per_node()

    def __repr__(self) -> "str":
        counted = (self.local_rank, self._tasks_per_node(), self.node, self.num_nodes)
        ranks = counted + (self.global_rank, self.num_tasks)
        return "JobEnvironment(job_id=%s, hostname=%s, " % (self.job_id, self.hostname) + (
            "local_rank=%d(%d), node=%d(%d), global_rank=%d(%d))" % ranks
        )


class TorchDistributedEnvironment:
    """What PyTorch needs to connect the tasks of a job. The cluster has set the variables already."""

    def __init__(self) -> "None":
        job = JobEnvironment()
        self.master_addr = os.environ.get("MASTER_ADDR") or job.hostnames[0]
        self.master_port = int(os.environ.get("MASTER_PORT") or 29500)
        self.rank = job.global_rank
        self.world_size = job.num_tasks
        self.local_rank = job.local_rank
        self.local_world_size = job.num_tasks // job.num_nodes

    def export(
        self, set_cuda_visible_devices: "bool" = True, overwrite: "bool" = False
    ) -> "TorchDistributedEnvironment":
        """Set the variables. Each task sees only its own GPUs, so these stay as they are."""
        for name in ("master_addr", "master_port", "rank", "world_size"):
            os.environ.setdefault(name.upper(), str(getattr(self, name)))
        # The cluster does not know which tasks belong to a node.
        for name in ("local_rank", "local_world_size"):
            os.environ[name.upper()] = str(getattr(self, name))
        return self


_JOB_PREFIXES = ("PAI_", "FC_", "SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "SUBMITIT_")
_FOR_SUBMISSION = (
    *("PAI_REST_SERVER_URI", "PAI_USER_TOKEN", "PAI_USER_NAME", "PAI_USERNAME", "PAI_RUNTIME_DIR"),
    "PAI_EMBEDDED_CLUSTER",
)
_DISTRIBUTION = (
    *("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"),
    "TF_CONFIG",
)


@contextlib.contextmanager
def clean_env(extra_names: "Sequence[str]" = ()) -> "Iterator[None]":
    """Hide the variables of this job from what is started or submitted in the block, Slurm's included.

    The address of the cluster and the token for it stay, so that jobs can be submitted.
    """
    hidden = [
        name
        for name in os.environ
        if (name.startswith(_JOB_PREFIXES) and name not in _FOR_SUBMISSION)
        or name in _DISTRIBUTION
        or name in extra_names
    ]
    saved = {name: os.environ.pop(name) for name in hidden}
    try:
        yield
    finally:
        os.environ.update(saved)


@contextlib.contextmanager
def environment_variables(**variables: "object") -> "Iterator[None]":
    """Set variables of the environment in the block."""
    saved = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
