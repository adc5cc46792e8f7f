"""The job ``pai sub`` hands in, as OpenPAI's job protocol (version 2) wants it."""

from __future__ import annotations

import os
import sys

from openpaisdk.errors import UsageError
from openpaisdk.jobs.command import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ROLE = "main"
IMAGE_NAME = "docker_image"
HOST_IMAGE = "host"
"""The protocol demands an image. This one stands for none: the job runs with the tools of its machine."""
KEPT_VARIABLES = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")


class Resources:
    """What one task asks for."""

    __slots__ = ("cpu", "gpu", "memory_mb", "ports")

    def __init__(self, cpu: int, gpu: int, memory_mb: int, ports: Mapping[str, int] | None = None):
        self.cpu = cpu
        self.gpu = gpu
        self.memory_mb = memory_mb
        self.ports = dict(ports or {})


HERE = Resources(cpu=1, gpu=0, memory_mb=512)
"""Fits every machine, and several at once: on a laptop a job should start, not wait."""
ELSEWHERE = Resources(cpu=2, gpu=0, memory_mb=4096)


def one_liner(
    name: str,
    line: str,
    *,
    image: str,
    resources: Resources,
    virtual_cluster: str = "",
    environment: Mapping[str, str] | None = None,
    sources: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """A job of one task that runs one shell line."""
    asked: dict[str, object] = {"cpu": resources.cpu, "gpu": resources.gpu, "memoryMB": resources.memory_mb}
    if resources.ports:
        asked["ports"] = resources.ports
    job: dict[str, object] = {
        "protocolVersion": 2,
        "name": name,
        "type": "job",
        "prerequisites": [{"name": IMAGE_NAME, "type": "dockerimage", "uri": image}],
        "taskRoles": {ROLE: {"dockerImage": IMAGE_NAME, "resourcePerInstance": asked, "commands": [line]}},
    }
    if virtual_cluster:
        job["defaults"] = {"virtualCluster": virtual_cluster}
    ours: dict[str, object] = {}
    if environment:
        ours["environment"] = dict(environment)
    if sources:
        ours["sources"] = dict(sources)
    job["extras"] = {"submitFrom": "pai", **({"openpaisdk": ours} if ours else {})}
    return job


def callers_environment() -> dict[str, str]:
    """The variables by which the caller's shell finds its programs, for a job on the same machine."""
    kept = {name: as_text(os.environ[name]) for name in KEPT_VARIABLES if os.environ.get(name)}
    # Last on the PATH, so that it changes nothing the caller has: where pai lies there is a Python, and in an
    # environment that was never activated it is the only one called "python".
    ours = os.path.dirname(os.path.abspath(sys.executable)) if sys.executable else ""
    path = kept.get("PATH", os.defpath)
    if ours and ours not in path.split(os.pathsep):
        kept["PATH"] = path + os.pathsep + ours
    return kept


def memory_mb(text: str) -> int:
    """``512``, ``512m``, ``4g`` or ``4GB`` as megabytes."""
    amount = text.strip().lower().removesuffix("b").strip()
    unit = 1
    if amount[-1:] in ("m", "g", "t"):
        unit = {"m": 1, "g": 1024, "t": 1024 * 1024}[amount[-1]]
        amount = amount[:-1]
    try:
        size = int(float(amount) * unit)
    except ValueError:
        size = 0
    if size < 1:
        raise UsageError(f"{text!r} is not an amount of memory: write 4g, or a number of megabytes.")
    return size


def port_counts(items: list[str]) -> dict[str, int]:
    """``label=count`` of each ``--ports``. A number above 99 is a port somebody hoped to choose."""
    counts: dict[str, int] = {}
    for item in items:
        label, _, count = item.partition("=")
        if not label.isidentifier() or not label.isascii() or not count.isdecimal() or int(count) < 1:
            raise UsageError(f"{item!r} names no ports: write a label and how many, like --ports http=1.")
        if int(count) > 99:
            raise UsageError(
                f"--ports {item}: the number says how many ports, and {count} is too many.",
                hint=f"Ports are assigned; the job reads its own in $PAI_CONTAINER_HOST_{label}_PORT_LIST.",
            )
        counts[label] = int(count)
    return counts
