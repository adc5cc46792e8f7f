"""Allocation of a task in Slurm: its node, address and GPUs, and how its spec follows from the placement."""

import json
import os
import sys

from pairuntime.reports.placement import PLACEMENT, sockets, substitute, write
from pairuntime.supervisor import claim

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes time
    from typing import Any

# Option of podman that is replaced once the task's GPUs are known.
ALL_GPUS = "--device=nvidia.com/gpu=all"
_BASH = "/bin/bash"


def node_name() -> "str":
    return os.environ.get("SLURMD_NODENAME") or os.uname()[1]


def address(node: "str", nodes_file: "str") -> "str":
    """Address of this node for others: Slurm's, else that of the default route."""
    known = node
    try:
        known = json.loads(claim.read_file(nodes_file).decode()).get(node) or node
    except (OSError, ValueError):
        pass
    if known.count(".") == 3 and known.replace(".", "").isdigit():
        return str(known)
    module = sockets()
    for name in (known, module.gethostname()):
        try:
            # Bytes: text would import the IDNA codec.
            return str(module.gethostbyname(name.encode()))
        except OSError:
            continue
    probe = module.socket(module.AF_INET, module.SOCK_DGRAM)
    try:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
    finally:
        probe.close()


def gpus() -> "str":
    """This task's GPUs, as the driver numbers them in its cgroup; empty if Slurm has not set them."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")


def node_gpus() -> "list[str]":
    """This task's GPUs by their numbers on the node; in a cgroup that hides others the driver renumbers."""
    own = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS") or ""
    return [part for part in own.split(",") if part.isdigit()]


def _choose_gpus(spec: "dict[str, Any]") -> "None":
    """Give a container the GPUs that Slurm allocated, by their numbers on the node."""
    numbers = node_gpus()
    if not numbers:
        return
    at = spec["argv"].index(ALL_GPUS)
    spec["argv"][at : at + 1] = [ALL_GPUS.replace("all", number) for number in numbers]
    # Inside the container only these exist, numbered from 0.
    spec["env"]["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(numbers))))


def _find(program: "str", path: "str") -> "str":
    """Path of a program on this node: from the task's PATH, else from this process's."""
    if "/" not in program:
        for folder in (path + ":" + os.environ.get("PATH", "")).split(":"):
            if folder and os.access(os.path.join(folder, program), os.X_OK):
                return os.path.join(folder, program)
    return program


def apply_placement(
    folder: "str", placement: "dict[str, object]", known: "dict[str, str]"
) -> "dict[str, Any]":
    """Complete the task's spec, record the placement, and return the spec."""
    path = os.path.join(folder, "spec.json")
    spec = json.loads(claim.read_file(path).decode())  # type: dict[str, Any]
    if spec.get("output_upload"):
        # The Python that runs this: the server cannot know its path on the node.
        spec["output_upload"]["argv"][0] = sys.executable
    if spec.get("storage_mounts"):
        mounts = spec["storage_mounts"]
        mounts["argv"][0] = _find(mounts["argv"][0], "")
        own = {name: os.environ[name] for name in mounts["node_variables"] if name in os.environ}
        mounts["env"].update({"PATH": os.defpath}, **own)
    if spec["argv"][:2] == ["/bin/sh", "-c"] and os.access(_BASH, os.X_OK):
        # Prefer bash; the server could not know whether the node has it.
        spec["argv"] = [_BASH, spec["argv"][-1]]
    # The task also gets Slurm's variables.
    environment = {name: value for name, value in os.environ.items() if name.startswith("SLURM")}
    environment.update((name, substitute(value, known)) for name, value in spec["env"].items())
    spec["env"] = environment
    if spec.get("remote") and not os.path.isdir(environment.get("HOME", "")):
        environment["HOME"] = spec["cwd"]
    if ALL_GPUS in spec["argv"]:
        _choose_gpus(spec)
    spec["argv"][0] = _find(spec["argv"][0], environment.get("PATH", ""))
    for key in ("cleanup", "exec_prefix", "exists"):
        if spec.get(key):
            spec[key][0] = spec["argv"][0]
    write(path, json.dumps(spec))
    numbers = [int(part) for part in str(placement["gpus"]).split(",") if part.isdigit()]
    # Component of a heterogeneous job; exec must use the same one.
    component = os.environ.get("PAI_SLURM_COMPONENT", "") if "SLURM_HET_SIZE" in os.environ else ""
    content = dict(placement, gpus=numbers, job=os.environ.get("SLURM_JOB_ID", ""), component=component)
    write(os.path.join(folder, PLACEMENT), json.dumps(content))
    return spec
