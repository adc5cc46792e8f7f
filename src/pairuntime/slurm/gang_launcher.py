"""Launcher of the tasks of one allocation.

A single task runs in the batch step. Several tasks are started by srun and exchange their placements first.
"""

import json
import os
import sys
import time

from pairuntime.reports import placement
from pairuntime.slurm import allocation, node
from pairuntime.supervisor import attempt_factory, claim, process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:  # not imported at run time: a single task starts sooner without them
    import socket
    import subprocess
    from typing import Any, Callable

    # Runs an attempt: its folder, its uid, and the function that supervises it.
    RunAttempt = Callable[[str, str, Callable[[], int]], int]

GANG = "gang.json"
# Subfolder that the tasks' account writes to; the rest of the gang's folder belongs to the server.
RUN = "run"
OWNER = "owner"
ENVIRONMENT_TEMPLATE = "env.template"
ENVIRONMENT = "env.sh"

# Address and secret of the rendezvous of a gang's tasks.
RENDEZVOUS = "PAI_SLURM_RENDEZVOUS"
COMPONENT = "PAI_SLURM_COMPONENT"
_RENDEZVOUS_TIMEOUT_S = 300.0


def _read(folder: "str") -> "dict[str, object]":
    gang = dict(json.loads(claim.read_file(os.path.join(folder, GANG)).decode()))
    # A relative name after a download: then the file lies beside gang.json.
    gang["nodes"] = os.path.join(folder, gang["nodes"])
    return gang


def _claim_gang(folder: "str") -> "bool":
    """Whether this allocation runs the gang. A second allocation of the same gang exits."""
    job = os.environ.get("SLURM_JOB_ID", "")
    restarted = os.environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0")
    try:
        fd = os.open(os.path.join(folder, RUN, OWNER), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    os.write(fd, job.encode())
    os.close(fd)
    return not restarted


def run(folder: "str", run_attempt: "RunAttempt | None" = None) -> "int":
    """What the batch script runs. ``run_attempt``: runs each attempt; by default it is only supervised."""
    gang = _read(folder)
    if not _claim_gang(folder):
        return 3
    tasks = gang["tasks"]  # type: list[dict[str, object]] # type: ignore[assignment]
    if len(tasks) > 1:
        return _run_rendezvous(folder, gang, tasks)
    offers = [_offer(gang, tasks[0], spare=0)]
    placements = placement.assign_ports(offers, tasks)
    task_folder = str(tasks[0]["folder"])
    spec = allocation.apply_placement(task_folder, placements[0], placement.values(tasks, placements))
    # Everything is reported and on disk: tearing down the interpreter would only take time.
    os._exit(_run_attempt(task_folder, spec, run_attempt))


def _run_attempt(folder: "str", spec: "dict[str, Any]", run_attempt: "RunAttempt | None") -> "int":
    if run_attempt is None:
        return _supervise(folder, spec)
    return run_attempt(folder, spec["attempt"], lambda: _supervise(folder, spec))


def _supervise(folder: "str", spec: "dict[str, Any]") -> "int":
    from pairuntime.slurm.slurm_attempt import SlurmAttempt  # here: a batch step only places tasks

    # The task must not inherit Slurm's files or pipes.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    status = attempt_factory.supervise(folder, process_tree.Cgroup(process_tree.PROC, ""), spec, SlurmAttempt)
    if spec.get("cleanup"):
        # A container whose client was killed is removed by no other process.
        os.spawnvpe(os.P_WAIT, spec["cleanup"][0], spec["cleanup"], spec["env"])
    return status


def _offer(gang: "dict[str, object]", task: "dict[str, object]", spare: "int") -> "dict[str, object]":
    name = allocation.node_name()
    port_count = sum(task["ports"].values())  # type: ignore[attr-defined]
    return {
        "node": name,
        "ip": allocation.address(name, str(gang["nodes"])),
        "ports": placement.free_ports(port_count, spare),
        "gpus": allocation.gpus(),
    }


# -- rendezvous server, in the batch step -------------------------------------------------------------


def _run_rendezvous(folder: "str", gang: "dict[str, object]", tasks: "list[dict[str, object]]") -> "int":
    import socket
    import subprocess

    listener = socket.socket()
    listener.bind(("", 0))
    listener.listen(len(tasks) + 8)
    secret = os.urandom(16).hex()
    host = allocation.address(allocation.node_name(), str(gang["nodes"]))
    environment = dict(os.environ)
    environment[RENDEZVOUS] = "%s:%d:%s" % (host, listener.getsockname()[1], secret)
    steps = []
    components = gang["components"]  # type: list[list[str]] # type: ignore[assignment]
    for number, options in enumerate(components):
        command = ["srun", "--input=none", "--output=none", "--kill-on-bad-exit=0", "--wait=0"]
        if len(components) > 1:
            command.append("--het-group=%d" % number)
        command += options
        command += [sys.executable, "-I", "-S"]
        # Without a shared file system each task downloads its own bundle.
        command += (
            ["-c", node.BOOTSTRAP_PROGRAM] if gang.get("remote") else [_archive(), "slurm-task", folder]
        )
        step_environment = dict(environment)
        step_environment[COMPONENT] = str(number)
        steps.append(subprocess.Popen(command, env=step_environment, stdin=subprocess.DEVNULL))
    try:
        _collect_placements(folder, gang, tasks, listener, secret, steps)
    except BaseException:
        for step in steps:
            step.terminate()
        raise
    finally:
        listener.close()
    return max(step.wait() for step in steps)


def _archive() -> "str":
    """The archive this module was loaded from."""
    return __file__[: __file__.index(".pyz") + 4]


def _collect_placements(
    folder: "str",
    gang: "dict[str, object]",
    tasks: "list[dict[str, object]]",
    listener: "socket.socket",
    secret: "str",
    steps: "list[subprocess.Popen[bytes]]",
) -> "None":
    """Collect the placement of every task, publish all placements, and release the tasks."""
    import select

    offers = [None] * len(tasks)  # type: list[dict[str, object] | None]
    connections = []  # type: list[socket.socket]
    deadline = time.monotonic() + _RENDEZVOUS_TIMEOUT_S
    while None in offers:
        if time.monotonic() > deadline:
            raise RuntimeError("%d of %d tasks did not report" % (offers.count(None), len(tasks)))
        ready, _, _ = select.select([listener], [], [], 1.0)
        if not ready:
            if any(step.poll() for step in steps):
                raise RuntimeError("srun could not start the tasks")
            continue
        connection, _ = listener.accept()
        connection.settimeout(30)
        try:
            offer = json.loads(_line(connection))
        except (OSError, ValueError):
            connection.close()
            continue
        if offer.get("secret") != secret:
            connection.close()
            continue
        offers[offer["number"]] = offer
        connections.append(connection)
    placements = placement.assign_ports([found for found in offers if found is not None], tasks)
    go = b"go\n"
    if gang.get("remote"):
        go = json.dumps(placements).encode() + b"\n"
    else:
        placement.write(os.path.join(folder, RUN, placement.PLACEMENTS), json.dumps(placements))
        _write_environment(folder, placement.values(tasks, placements))
    for connection in connections:
        try:
            connection.sendall(go)
        except OSError:
            pass  # the task died meanwhile; its end is detected elsewhere
        connection.close()


def _write_environment(folder: "str", known: "dict[str, str]") -> "None":
    with open(os.path.join(folder, ENVIRONMENT_TEMPLATE)) as f:
        placement.write(os.path.join(folder, RUN, ENVIRONMENT), placement.substitute(f.read(), known))


def _line(connection: "socket.socket") -> "str":
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(65536)
        if not part:
            break
        data += part
    return data.decode()


# -- a task, in its step ------------------------------------------------------------------------------


def run_task(folder: "str", run_attempt: "RunAttempt | None" = None) -> "int":
    """What srun runs, once for each task."""
    import socket

    gang = _read(folder)
    tasks = gang["tasks"]  # type: list[dict[str, object]] # type: ignore[assignment]
    component = int(os.environ[COMPONENT])
    members = [number for number, task in enumerate(tasks) if task["component"] == component]
    number = members[int(os.environ["SLURM_PROCID"])]
    host, port, secret = os.environ[RENDEZVOUS].split(":")
    offer = _offer(gang, tasks[number], spare=placement.SPARE)
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.settimeout(_RENDEZVOUS_TIMEOUT_S)
        connection.sendall((json.dumps(dict(offer, number=number, secret=secret)) + "\n").encode())
        go = _line(connection)
    if not go.endswith("\n"):
        return 4
    if gang.get("remote"):
        placements = json.loads(go)
        _write_environment(folder, placement.values(tasks, placements))
    else:
        with open(os.path.join(folder, RUN, placement.PLACEMENTS)) as f:
            placements = json.loads(f.read())
    task_folder = str(tasks[number]["folder"])
    spec = allocation.apply_placement(task_folder, placements[number], placement.values(tasks, placements))
    return _run_attempt(task_folder, spec, run_attempt)
