"""A job in an image against `podman run` of the same image by hand."""

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
from bench.table import Row, alternate, ms, ratio_row
from paicluster.engines.container import client_detection
from paicluster.engines.container.client import CLUSTER_LABEL, Client

IMAGE = "localhost/pai-bench/base:1"
RUNS = 7


def rows() -> list[Row]:
    if not shutil.which("podman") or not shutil.which("busybox"):
        print("podman and busybox-static are needed to measure containers: see docs/containers.md")
        return []
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        client = asyncio.run(client_detection.detect(Path(folder), ("podman",)))
        if not isinstance(client, Client):
            print(client.reason)
            return []
        make_image(client, Path(folder))
        return [one_job(client)]


def make_image(client: Client, folder: Path) -> None:
    """2 MB of busybox: nothing is downloaded."""
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


def run(client: Client, *words: str) -> None:
    subprocess.run(client.command(*words), env=dict(client.environment), capture_output=True, check=True)


def one_job(client: Client) -> Row:
    described = job("", "true")
    described["prerequisites"][0]["uri"] = IMAGE
    number = iter(range(10**6))
    with Server() as server:

        def once() -> float:
            name = f"boxed-{next(number)}"
            began = time.perf_counter()
            server.call("POST", "/api/v2/jobs", {**described, "name": name})
            if follow_to_end(server, name) != "SUCCEEDED":
                raise RuntimeError("the job failed")
            return time.perf_counter() - began

        def by_hand() -> float:
            name = f"pai-bench-{next(number)}"
            words = ["run", "--name", name, "--network=host", *client.run_options, IMAGE, "true"]
            began = time.perf_counter()
            run(client, *words)
            took = time.perf_counter() - began
            run(client, "rm", name)
            return took

        once()
        ours, reference = alternate(lambda: _usual(once), lambda: _usual(by_hand), RUNS)
    run(client, "container", "prune", "--force", "--filter", f"label={CLUSTER_LABEL}")
    return ratio_row(
        "one container job, submit to SUCCEEDED / `podman run` of the same",
        ours,
        reference,
        at_most=1.3,
        show=ms,
    )


def _usual(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(3))
