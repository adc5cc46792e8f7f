"""A container job against a plain `podman run` of the same image."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.server import Server, follow_to_end, job
from bench.table import Row, alternate, ms, ratio_row, sized, skipped_row
from paicluster.engines.container import client_detection
from paicluster.engines.container.client import CLUSTER_LABEL, Client

IMAGE = "localhost/pai-bench/base:1"
RUNS = 7


def rows() -> list[Row]:
    for program in ("podman", "busybox"):
        if not shutil.which(program):
            return [skipped_row("containers", f"{program} is missing")]
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        client = asyncio.run(client_detection.detect(Path(folder), ("podman",)))
        if not isinstance(client, Client):
            return [skipped_row("containers", client.reason)]
        make_image(client, Path(folder))
        return [one_job(client)]


def make_image(client: Client, folder: Path) -> None:
    """Image of 2 MB from the local busybox: nothing is downloaded."""
    root = folder / "root"
    (root / "bin").mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, root / "bin/busybox")
    for name in ("sh", "true", "sleep", "env", "tar"):
        (root / "bin" / name).symlink_to("busybox")
    tar = folder / "root.tar"
    subprocess.run(["tar", "-C", str(root), "-cf", str(tar), "."], check=True)
    run(client, "import", "--change", "ENV PATH=/bin", str(tar), IMAGE)


def run(client: Client, *arguments: str) -> None:
    subprocess.run(client.command(*arguments), env=dict(client.environment), capture_output=True, check=True)


def one_job(client: Client) -> Row:
    described = job("", "true")
    described["prerequisites"][0]["uri"] = IMAGE
    number = iter(range(10**6))
    with Server() as server:

        def run_job() -> float:
            name = f"container-{next(number)}"
            began = time.perf_counter()
            server.call("POST", "/api/v2/jobs", {**described, "name": name})
            if follow_to_end(server, name) != "SUCCEEDED":
                raise RuntimeError("the job failed")
            return time.perf_counter() - began

        def run_podman() -> float:
            name = f"pai-bench-{next(number)}"
            arguments = ["run", "--name", name, "--network=host", *client.run_options, IMAGE, "true"]
            began = time.perf_counter()
            run(client, *arguments)
            took = time.perf_counter() - began
            run(client, "rm", name)
            return took

        run_job()
        ours, reference = alternate(lambda: _median(run_job), lambda: _median(run_podman), RUNS)
    run(client, "container", "prune", "--force", "--filter", f"label={CLUSTER_LABEL}")
    return ratio_row(
        "one container job, submit to SUCCEEDED / `podman run` of the same",
        ours,
        reference,
        at_most=1.3,
        show=ms,
    )


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(sized(3, 1)))
