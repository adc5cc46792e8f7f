"""Placement of a task: node, address, free ports, GPUs; and substitution of its placeholders."""

import json
import os
import sys

from pairuntime.supervisor import claim

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes time
    import types
    from typing import Any

PLACEMENT = "placement.json"
PLACEMENTS = "placements.json"
# Option of podman that is replaced once the task's GPUs are known.
ALL_GPUS = "--device=nvidia.com/gpu=all"
_BASH = "/bin/bash"

_PLACEHOLDER = r"%pai\.[0-9.a-z]+%"
# Up to this many are replaced one by one: faster than importing `re`.
_MAX_WITHOUT_RE = 16
# Below the kernel's range of ephemeral ports.
_PORT_RANGE = (10000, 32000)
# Extra ports each task offers, for when tasks on one node offer the same ones.
SPARE = 8


def _sockets() -> "types.ModuleType":
    """The C part of `socket` where it exists: the Python part takes as long to import as Python to start."""
    try:
        import _socket as found
    except ImportError:
        import socket as found  # type: ignore[no-redef]
    return found


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
    sockets = _sockets()
    for name in (known, sockets.gethostname()):
        try:
            # Bytes: text would import the IDNA codec.
            return str(sockets.gethostbyname(name.encode()))
        except OSError:
            continue
    probe = sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM)
    try:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
    finally:
        probe.close()


def free_ports(count: "int", spare: "int" = 0) -> "list[int]":
    """Free ports on this node: ``count``, and ``spare`` more to choose from."""
    if not count:
        return []
    sockets = _sockets()
    ports = []  # type: list[int]
    first, last = _PORT_RANGE
    for _ in range(200 + 20 * count):
        port = first + int.from_bytes(os.urandom(4), "big") % (last - first)
        if port in ports:
            continue
        probe = sockets.socket()
        try:
            probe.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
            probe.bind(("", port))
        except OSError:
            continue
        finally:
            probe.close()
        ports.append(port)
        if len(ports) >= count + spare:
            break
    return ports


def gpus() -> "str":
    """This task's GPUs, as the driver numbers them in its cgroup; empty if Slurm has not set them."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")


def node_gpus() -> "list[str]":
    """This task's GPUs by their numbers on the node; in a cgroup that hides others the driver renumbers."""
    own = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS") or ""
    return [part for part in own.split(",") if part.isdigit()]


def assign_ports(
    offers: "list[dict[str, object]]", tasks: "list[dict[str, object]]"
) -> "list[dict[str, object]]":
    """Placements from the tasks' offers: no port is used twice on one node."""
    taken = {}  # type: dict[object, set[int]]
    placements = []
    for offer, task in zip(offers, tasks):  # noqa: B905 - Python 3.6
        used = taken.setdefault(offer["ip"], set())
        unassigned = [port for port in offer["ports"] if port not in used]  # type: ignore[attr-defined]
        ports = {}
        for label, count in task["ports"].items():  # type: ignore[attr-defined]
            ports[label], unassigned = unassigned[:count], unassigned[count:]
            if len(ports[label]) < count:
                raise RuntimeError("the node %s has not enough free ports" % offer["node"])
            used.update(ports[label])
        placements.append({"node": offer["node"], "ip": offer["ip"], "ports": ports, "gpus": offer["gpus"]})
    return placements


def values(tasks: "list[dict[str, object]]", placements: "list[dict[str, object]]") -> "dict[str, str]":
    """The value of each placeholder of the gang."""
    values_by_placeholder = {}  # type: dict[str, str]
    for task, placement in zip(tasks, placements):  # noqa: B905 - Python 3.6
        placeholders = task["placeholders"]  # type: dict[str, object] | None # type: ignore[assignment]
        if placeholders is None:
            continue
        values_by_placeholder[str(placeholders["ip"])] = str(placement["ip"])
        values_by_placeholder[str(placeholders["gpus"])] = str(placement["gpus"])
        for label, names in placeholders["ports"].items():  # type: ignore[attr-defined]
            ports = placement["ports"][label]  # type: ignore[index]
            values_by_placeholder.update((name, str(port)) for name, port in zip(names, ports))  # noqa: B905 - Python 3.6
    return values_by_placeholder


def substitute(text: "str", known: "dict[str, str]") -> "str":
    if "%pai." not in text:
        return text
    if len(known) <= _MAX_WITHOUT_RE:
        for placeholder, value in known.items():
            text = text.replace(placeholder, value)
        return text
    import re

    return re.sub(_PLACEHOLDER, lambda match: known.get(match.group(0), match.group(0)), text)


def write(path: "str", text: "str") -> "None":
    """Write a file atomically."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    # Bytes: importing what text files need takes longer than writing.
    with os.fdopen(fd, "wb") as f:
        f.write(text.encode())
    os.rename(temporary, path)


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
