"""``submitit.JobEnvironment``: what a function can ask about the job it runs in."""

import os
import socket


class JobEnvironment:
    """The job that this program runs in: ranks, number of tasks, host names."""

    def __init__(self) -> "None":
        if not self.activated():
            raise RuntimeError("This program does not run in a job.")

    @staticmethod
    def activated() -> "bool":
        return bool(os.environ.get("PAI_JOB_NAME"))

    @property
    def cluster(self) -> "str":
        return "openpai"

    @property
    def job_id(self) -> "str":
        name = os.environ["PAI_JOB_NAME"].rpartition("~")[2]
        call = os.environ.get("PAI_CALL_INDEX")
        if call:
            return "%s_%s" % (name, call)
        return name if self.num_tasks == 1 else "%s_%d" % (name, self.global_rank)

    @property
    def hostname(self) -> "str":
        return socket.gethostname()

    @property
    def hostnames(self) -> "list[str]":
        """The addresses of all tasks."""
        role = os.environ.get("PAI_CURRENT_TASK_ROLE_NAME", "main")
        listed = os.environ.get("PAI_TASK_ROLE_%s_HOST_LIST" % role, "")
        return [item.partition(":")[0] for item in listed.split(",") if item] or [self.hostname]

    @property
    def num_tasks(self) -> "int":
        role = os.environ.get("PAI_CURRENT_TASK_ROLE_NAME", "main")
        return int(os.environ.get("PAI_TASK_ROLE_TASK_COUNT_" + role) or os.environ.get("WORLD_SIZE") or 1)

    @property
    def global_rank(self) -> "int":
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
