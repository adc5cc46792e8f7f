"""Choice of one task of a job."""

from __future__ import annotations


class TaskChoice:
    """The task whose ports are forwarded."""

    __slots__ = ("index", "job", "role", "user")

    def __init__(self, job: str, user: str = "", role: str = "", index: int = 0):
        self.job = job
        self.user = user
        self.role = role
        self.index = index
