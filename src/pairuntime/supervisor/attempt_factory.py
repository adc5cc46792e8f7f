"""Choice of the attempt class: plain, in a container, or the caller's own, such as that of Slurm."""

import json
import os

from pairuntime.supervisor import claim, process_tree
from pairuntime.supervisor.attempt import SPEC, Attempt
from pairuntime.supervisor.shared_environment import SharedEnvironment

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs memory
    from typing import Any


def supervise(
    folder: "str",
    cgroup: "process_tree.Cgroup",
    spec: "dict[str, Any] | None" = None,
    attempt_class: "type[Attempt]" = Attempt,
) -> "int":
    """Run the attempt in this folder unless it is claimed. Returns this process's exit status.

    ``spec``: the content of the folder's spec, for a caller that has read it already. ``attempt_class``: that
    of attempts without a container.
    """
    attempt = read_attempt(folder, cgroup, SharedEnvironment(), spec, attempt_class)
    attempt.install_signal_handlers()
    return attempt.supervise()


def read_attempt(
    folder: "str",
    cgroup: "process_tree.Cgroup",
    shared: "SharedEnvironment",
    spec: "dict[str, Any] | None" = None,
    attempt_class: "type[Attempt]" = Attempt,
) -> "Attempt":
    """The attempt of this folder. Reads only: nothing is claimed or started."""
    if spec is None:
        spec = json.loads(claim.read_file(os.path.join(folder, SPEC)).decode())
    if spec.get("limits"):
        # Without limits the supervisor is in the task's cgroup already; a task with limits has its own.
        cgroup = process_tree.Cgroup(spec["cgroup"]["mode"], spec["cgroup"]["path"])
    if spec.get("container"):
        from pairuntime.supervisor.container_attempt import ContainerAttempt

        attempt_class = ContainerAttempt
    if spec.get("env_suffixes") is not None:
        spec["env"] = shared.environment(folder, spec["env"])
    return attempt_class(folder, spec, cgroup)
