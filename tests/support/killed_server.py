"""`paicluster` that kills itself (SIGKILL) at one step of its work for jobs whose names begin with `killer`.

The variable KILLED_IN names the step: load, render, launch or unpack, which every start repeats, or admit.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from paicluster import cli
from paicluster.controller import active_jobs, launcher
from paicluster.engines.common import attempt_folder
from paicluster.services import source_checkout
from paicluster.services.admission import Admission

# For each step the function that does it, and whether its arguments belong to a killer.
STEPS: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "load": (active_jobs, "read_job", lambda text, **_: "echo killer" in text),
    "render": (launcher, "build_launch", lambda record, *_: record.row.name.startswith("killer")),
    "launch": (attempt_folder, "prepare", lambda folder, task, *_, **__: task.job.startswith("killer")),
    "unpack": (
        source_checkout,
        "_extract",
        lambda storage, archive, path, *_: path.split("/")[-2].startswith("killer"),
    ),
}
# Before a job is in the database, with its package of PaddleCloud on the storage.
ADMIT = (Admission, "admit", lambda admission, identity, job, *_, **__: job.name.startswith("killer"))


def kill_in(step: str) -> None:
    module, name, is_killer = {**STEPS, "admit": ADMIT}[step]
    original = getattr(module, name)

    def killed(*arguments: Any, **options: Any) -> Any:
        if is_killer(*arguments, **options):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(module, name, killed)


if __name__ == "__main__":
    kill_in(os.environ["KILLED_IN"])
    sys.exit(cli.main())
