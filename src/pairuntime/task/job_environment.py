"""``submitit.JobEnvironment``: what a function can ask about the job it runs in."""

import contextlib
import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Iterator, Sequence

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
        return name if self._task_count() == 1 else "%s_%d" % (name, self._task_index())

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
        """The addresses of all tasks."""
        if self._is_alone():
            return [os.environ.get("PAI_CONTAINER_HOST_IP") or self.hostname]
        role = os.environ.get("PAI_CURRENT_TASK_ROLE_NAME", "main")
        listed = os.environ.get("PAI_TASK_ROLE_%s_HOST_LIST" % role, "")
        return [item.partition(":")[0] for item in listed.split(",") if item] or [self.hostname]

    @property
    def num_tasks(self) -> "int":
        """How many tasks work on the same: 1 in an array, whose calls and tasks are independent."""
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

    @property
    def local_rank(self) -> "int":
        """Every task has a machine, or its share of one, for itself."""
        return 0

    @property
    def num_nodes(self) -> "int":
        return self.num_tasks

    @property
    def node(self) -> "int":
        return self.global_rank

    def __repr__(self) -> "str":
        return "<JobEnvironment %s, rank %d of %d>" % (self.job_id, self.global_rank, self.num_tasks)


class TorchDistributedEnvironment:
    """What PyTorch needs to connect the tasks of a job. The cluster has set the variables already."""

    def __init__(self) -> "None":
        job = JobEnvironment()
        self.master_addr = os.environ.get("MASTER_ADDR") or job.hostnames[0]
        self.master_port = int(os.environ.get("MASTER_PORT") or 29500)
        self.rank = job.global_rank
        self.world_size = job.num_tasks
        self.local_rank = job.local_rank
        self.local_world_size = 1

    def export(
        self, set_cuda_visible_devices: "bool" = True, overwrite: "bool" = False
    ) -> "TorchDistributedEnvironment":
        """Set the variables that are missing. Each task sees only its own GPUs, so these stay as they are."""
        for name in ("master_addr", "master_port", "rank", "world_size", "local_rank", "local_world_size"):
            os.environ.setdefault(name.upper(), str(getattr(self, name)))
        return self


@contextlib.contextmanager
def clean_env(extra_names: "Sequence[str]" = ()) -> "Iterator[None]":
    """Hide the variables of this job from a program that is started in the block."""
    hidden = [name for name in os.environ if name.startswith(("PAI_", "FC_")) or name in extra_names]
    saved = {name: os.environ.pop(name) for name in hidden}
    try:
        yield
    finally:
        os.environ.update(saved)
