"""Placement of a task: its address, free ports, and the substitution of placeholders in its environment."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes time
    import types

PLACEMENT = "placement.json"
PLACEMENTS = "placements.json"

_PLACEHOLDER = r"%pai\.[0-9.a-z]+%"
# Up to this many are replaced one by one: faster than importing `re`.
_MAX_WITHOUT_RE = 16
# Below the kernel's range of ephemeral ports.
_PORT_RANGE = (10000, 32000)
# Extra ports each task offers, for when tasks on one node offer the same ones.
SPARE = 8


def sockets() -> "types.ModuleType":
    """The C part of `socket` where it exists: the Python part takes as long to import as Python to start."""
    try:
        import _socket as found
    except ImportError:
        import socket as found  # type: ignore[no-redef]
    return found


def free_ports(count: "int", spare: "int" = 0) -> "list[int]":
    """Free ports on this node: ``count``, and ``spare`` more to choose from."""
    if not count:
        return []
    module = sockets()
    ports = []  # type: list[int]
    first, last = _PORT_RANGE
    for _ in range(200 + 20 * count):
        port = first + int.from_bytes(os.urandom(4), "big") % (last - first)
        if port in ports:
            continue
        probe = module.socket()
        try:
            probe.setsockopt(module.SOL_SOCKET, module.SO_REUSEADDR, 1)
            probe.bind(("", port))
        except OSError:
            continue
        finally:
            probe.close()
        ports.append(port)
        if len(ports) >= count + spare:
            break
    return ports


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
