"""The tasks of one allocation: one alone runs in the batch step, more are started by srun and meet first."""

import json
import os
import sys
import time

from pairuntime.slurm import placement
from pairuntime.supervisor import attempt_factory, claim, process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:  # a task alone does without them, and starts sooner
    import socket
    import subprocess
    from typing import Any

GANG = "gang.json"
# In the gang's folder, what the tasks' account writes; the rest of it is the server's.
RUN = "run"
OWNER = "owner"
COMMON_BLANK = "env.blank"
COMMON = "env.sh"

# Where and by which word the tasks of a gang meet.
MEET = "PAI_SLURM_MEET"
COMPONENT = "PAI_SLURM_COMPONENT"
_MEET_S = 300.0


def _read(folder: "str") -> "dict[str, object]":
    gang = dict(json.loads(claim.read_file(os.path.join(folder, GANG)).decode()))
    # Where it travelled here, it lies beside.
    gang["nodes"] = os.path.join(folder, gang["nodes"])
    return gang


def _own(folder: "str") -> "bool":
    """Whether this allocation is the one that runs the gang. A second one, should there be one, leaves."""
    job = os.environ.get("SLURM_JOB_ID", "")
    again = os.environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0")
    try:
        fd = os.open(os.path.join(folder, RUN, OWNER), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    os.write(fd, job.encode())
    os.close(fd)
    return not again


def run(folder: "str") -> "int":
    """The batch script."""
    gang = _read(folder)
    if not _own(folder):
        return 3
    tasks = gang["tasks"]  # type: list[dict[str, object]] # type: ignore[assignment]
    if len(tasks) > 1:
        return _run_rendezvous(folder, gang, tasks)
    offers = [_offer(gang, tasks[0], spare=0)]
    places = placement.assign_ports(offers, tasks)
    own = str(tasks[0]["folder"])
    spec = placement.apply_placement(own, places[0], placement.values(tasks, places))
    # Everything is told and on disk: to take the interpreter apart would only take time.
    os._exit(_supervise(own, spec))


def _supervise(folder: "str", spec: "dict[str, Any]") -> "int":
    if spec.get("carried"):
        from pairuntime.slurm import report_uploader

        return report_uploader.run_and_report(folder, spec["attempt"], lambda: _supervise_here(folder, spec))
    return _supervise_here(folder, spec)


def _supervise_here(folder: "str", spec: "dict[str, Any]") -> "int":
    # Neither Slurm's files nor its pipes are for the task.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    status = attempt_factory.supervise(folder, process_tree.Cgroup(process_tree.PROC, ""), spec)
    if spec.get("cleanup"):
        # A container whose program was killed has nobody left to remove it.
        os.spawnvpe(os.P_WAIT, spec["cleanup"][0], spec["cleanup"], spec["env"])
    return status


def _offer(gang: "dict[str, object]", task: "dict[str, object]", spare: "int") -> "dict[str, object]":
    node = placement.node_name()
    wanted = sum(task["ports"].values())  # type: ignore[attr-defined]
    return {
        "node": node,
        "ip": placement.address(node, str(gang["nodes"])),
        "ports": placement.free_ports(wanted, spare),
        "gpus": placement.gpus(),
    }


# -- the pilot, in the batch step ---------------------------------------------------------------------


def _run_rendezvous(folder: "str", gang: "dict[str, object]", tasks: "list[dict[str, object]]") -> "int":
    import socket
    import subprocess

    listener = socket.socket()
    listener.bind(("", 0))
    listener.listen(len(tasks) + 8)
    word = os.urandom(16).hex()
    host = placement.address(placement.node_name(), str(gang["nodes"]))
    environment = dict(os.environ)
    environment[MEET] = "%s:%d:%s" % (host, listener.getsockname()[1], word)
    steps = []
    components = gang["components"]  # type: list[list[str]] # type: ignore[assignment]
    for number, options in enumerate(components):
        command = ["srun", "--input=none", "--output=none", "--kill-on-bad-exit=0", "--wait=0"]
        if len(components) > 1:
            command.append("--het-group=%d" % number)
        command += options
        command += [sys.executable, "-I", "-S"]
        command += _boot() if gang.get("carried") else [_archive(), "slurm-task", folder]
        own = dict(environment)
        own[COMPONENT] = str(number)
        steps.append(subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL))
    try:
        _collect_placements(folder, gang, tasks, listener, word, steps)
    except BaseException:
        for step in steps:
            step.terminate()
        raise
    finally:
        listener.close()
    return max(step.wait() for step in steps)


def _archive() -> "str":
    """The file we were loaded from."""
    return __file__[: __file__.index(".pyz") + 4]


def _boot() -> "list[str]":
    """Where nothing is shared, each task fetches what it needs as we did."""
    from pairuntime.slurm import bootstrap

    return ["-c", bootstrap.START]


def _collect_placements(
    folder: "str",
    gang: "dict[str, object]",
    tasks: "list[dict[str, object]]",
    listener: "socket.socket",
    word: "str",
    steps: "list[subprocess.Popen[bytes]]",
) -> "None":
    """Hear from every task where it is, write it down for all, and let them go."""
    import select

    offers = [None] * len(tasks)  # type: list[dict[str, object] | None]
    heard = []  # type: list[socket.socket]
    deadline = time.monotonic() + _MEET_S
    while None in offers:
        if time.monotonic() > deadline:
            raise RuntimeError("%d of %d tasks did not come" % (offers.count(None), len(tasks)))
        ready, _, _ = select.select([listener], [], [], 1.0)
        if not ready:
            if any(step.poll() for step in steps):
                raise RuntimeError("srun could not start the tasks")
            continue
        connection, _ = listener.accept()
        connection.settimeout(30)
        try:
            said = json.loads(_line(connection))
        except (OSError, ValueError):
            connection.close()
            continue
        if said.get("word") != word:
            connection.close()
            continue
        offers[said["number"]] = said
        heard.append(connection)
    places = placement.assign_ports([offer for offer in offers if offer is not None], tasks)
    go = b"go\n"
    if gang.get("carried"):
        go = json.dumps(places).encode() + b"\n"
    else:
        placement.write(os.path.join(folder, RUN, placement.PLACES), json.dumps(places))
        _write_common(folder, placement.values(tasks, places))
    for connection in heard:
        try:
            connection.sendall(go)
        except OSError:
            pass  # it died meanwhile; its end is seen by others
        connection.close()


def _write_common(folder: "str", known: "dict[str, str]") -> "None":
    with open(os.path.join(folder, COMMON_BLANK)) as f:
        placement.write(os.path.join(folder, RUN, COMMON), placement.substitute(f.read(), known))


def _line(connection: "socket.socket") -> "str":
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(65536)
        if not part:
            break
        data += part
    return data.decode()


# -- a task, in its step ------------------------------------------------------------------------------


def run_task(folder: "str") -> "int":
    """What srun starts, once for each task."""
    import socket

    gang = _read(folder)
    tasks = gang["tasks"]  # type: list[dict[str, object]] # type: ignore[assignment]
    component = int(os.environ[COMPONENT])
    members = [number for number, task in enumerate(tasks) if task["component"] == component]
    number = members[int(os.environ["SLURM_PROCID"])]
    host, port, word = os.environ[MEET].split(":")
    offer = _offer(gang, tasks[number], spare=placement.SPARE)
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.settimeout(_MEET_S)
        connection.sendall((json.dumps(dict(offer, number=number, word=word)) + "\n").encode())
        go = _line(connection)
    if not go.endswith("\n"):
        return 4
    if gang.get("carried"):
        places = json.loads(go)
        _write_common(folder, placement.values(tasks, places))
    else:
        with open(os.path.join(folder, RUN, placement.PLACES)) as f:
            places = json.loads(f.read())
    own = str(tasks[number]["folder"])
    return _supervise(own, placement.apply_placement(own, places[number], placement.values(tasks, places)))
