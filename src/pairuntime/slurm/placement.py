"""Where a task is: node, address, free ports, GPUs; and filling that into what was left blank."""

import json
import os
import sys

from pairuntime.supervisor import claim

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes time
    import types
    from typing import Any

PLACE = "place.json"
PLACES = "places.json"
# Of podman's command line: what stands there until it is known which GPUs the task has.
ALL_GPUS = "--device=nvidia.com/gpu=all"
_BASH = "/bin/bash"

_BLANK = r"%pai\.[0-9.a-z]+%"
# So many are replaced one by one sooner than `re` is loaded.
_FEW = 16
# Below what kernels give to whoever connects somewhere.
_PORTS = (10000, 32000)
# Of so many more than are needed the pilot chooses, when tasks of one node offer the same.
SPARE = 8


def _sockets() -> "types.ModuleType":
    """The C half of `socket` where there is one: the other half takes as long to load as Python to start."""
    try:
        import _socket as found
    except ImportError:
        import socket as found  # type: ignore[no-redef]
    return found


def node_name() -> "str":
    return os.environ.get("SLURMD_NODENAME") or os.uname()[1]


def address(node: "str", nodes_file: "str") -> "str":
    """How others reach this node: as Slurm does, else as the route to the world goes."""
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
            # Bytes: for a text it would load what names of all the world need.
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
    """Ports nobody listens on here, and some to choose from."""
    if not count:
        return []
    sockets = _sockets()
    found = []  # type: list[int]
    first, last = _PORTS
    for _ in range(200 + 20 * count):
        port = first + int.from_bytes(os.urandom(4), "big") % (last - first)
        if port in found:
            continue
        probe = sockets.socket()
        try:
            probe.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
            probe.bind(("", port))
        except OSError:
            continue
        finally:
            probe.close()
        found.append(port)
        if len(found) >= count + spare:
            break
    return found


def gpus() -> "str":
    """By the numbers under which this task may use them."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("SLURM_STEP_GPUS") or ""


def assign_ports(
    offers: "list[dict[str, object]]", tasks: "list[dict[str, object]]"
) -> "list[dict[str, object]]":
    """Places out of what the tasks offer: no port twice on one node."""
    taken = {}  # type: dict[object, set[int]]
    places = []
    for offer, task in zip(offers, tasks):  # noqa: B905 - Python 3.6
        used = taken.setdefault(offer["ip"], set())
        left = [port for port in offer["ports"] if port not in used]  # type: ignore[attr-defined]
        ports = {}
        for label, count in task["ports"].items():  # type: ignore[attr-defined]
            ports[label], left = left[:count], left[count:]
            if len(ports[label]) < count:
                raise RuntimeError("the node %s has not enough free ports" % offer["node"])
            used.update(ports[label])
        places.append({"node": offer["node"], "ip": offer["ip"], "ports": ports, "gpus": offer["gpus"]})
    return places


def values(tasks: "list[dict[str, object]]", places: "list[dict[str, object]]") -> "dict[str, str]":
    """What stands for each blank of the gang."""
    found = {}  # type: dict[str, str]
    for task, place in zip(tasks, places):  # noqa: B905 - Python 3.6
        blanks = task["blanks"]  # type: dict[str, object] | None # type: ignore[assignment]
        if blanks is None:
            continue
        found[str(blanks["ip"])] = str(place["ip"])
        found[str(blanks["gpus"])] = str(place["gpus"])
        for label, names in blanks["ports"].items():  # type: ignore[attr-defined]
            ports = place["ports"][label]  # type: ignore[index]
            found.update((name, str(port)) for name, port in zip(names, ports))  # noqa: B905 - Python 3.6
    return found


def substitute(text: "str", known: "dict[str, str]") -> "str":
    if "%pai." not in text:
        return text
    if len(known) <= _FEW:
        for blank, value in known.items():
            text = text.replace(blank, value)
        return text
    import re

    return re.sub(_BLANK, lambda match: known.get(match.group(0), match.group(0)), text)


def write(path: "str", text: "str") -> "None":
    """Whole or not at all."""
    aside = "%s.%d.aside" % (path, os.getpid())
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    # Bytes: what files of text bring along takes longer than the writing.
    with os.fdopen(fd, "wb") as f:
        f.write(text.encode())
    os.rename(aside, path)


def _choose_gpus(spec: "dict[str, Any]") -> "None":
    """A container gets those that Slurm gave the task, by the numbers that the whole node knows them by."""
    own = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS") or ""
    numbers = [word for word in own.split(",") if word.isdigit()]
    if not numbers:
        return
    at = spec["argv"].index(ALL_GPUS)
    spec["argv"][at : at + 1] = [ALL_GPUS.replace("all", number) for number in numbers]
    # Inside, they are all there are, and are counted from 0.
    spec["env"]["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(numbers))))


def _find(program: "str", path: "str") -> "str":
    """Where a program is on this node: as the task would find it, else as we do."""
    if "/" not in program:
        for folder in (path + ":" + os.environ.get("PATH", "")).split(":"):
            if folder and os.access(os.path.join(folder, program), os.X_OK):
                return os.path.join(folder, program)
    return program


def apply_placement(folder: "str", place: "dict[str, object]", known: "dict[str, str]") -> "dict[str, Any]":
    """Complete the task's spec, tell where it is, and give the spec."""
    path = os.path.join(folder, "spec.json")
    spec = json.loads(claim.read_file(path).decode())  # type: dict[str, Any]
    if spec.get("output_upload"):
        # By the Python that runs us: the server cannot know where it is here.
        spec["output_upload"]["argv"][0] = sys.executable
    if spec["argv"][:2] == ["/bin/sh", "-c"] and os.access(_BASH, os.X_OK):
        # The best shell there is; the server could not know.
        spec["argv"] = [_BASH, spec["argv"][-1]]
    # What Slurm tells its jobs is for the task too.
    environment = {name: value for name, value in os.environ.items() if name.startswith("SLURM")}
    environment.update((name, substitute(value, known)) for name, value in spec["env"].items())
    spec["env"] = environment
    if spec.get("carried") and not os.path.isdir(environment.get("HOME", "")):
        environment["HOME"] = spec["cwd"]
    if ALL_GPUS in spec["argv"]:
        _choose_gpus(spec)
    spec["argv"][0] = _find(spec["argv"][0], environment.get("PATH", ""))
    for same in ("cleanup", "exec_prefix", "exists"):
        if spec.get(same):
            spec[same][0] = spec["argv"][0]
    write(path, json.dumps(spec))
    numbers = [int(word) for word in str(place["gpus"]).split(",") if word.isdigit()]
    # Which part of a job with several; what runs beside the task must go there too.
    part = os.environ.get("PAI_SLURM_COMPONENT", "") if "SLURM_HET_SIZE" in os.environ else ""
    told = dict(place, gpus=numbers, job=os.environ.get("SLURM_JOB_ID", ""), part=part)
    write(os.path.join(folder, PLACE), json.dumps(told))
    return spec
