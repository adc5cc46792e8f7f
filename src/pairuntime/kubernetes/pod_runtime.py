"""Runtime of a pod, in its own container: prepares the exchange, waits for the shim, runs the attempt."""

import http.client
import json
import os
import shlex
import shutil
import signal
import sys
import tarfile
import time
import zlib

from pairuntime.kubernetes import pod_attempt, shim
from pairuntime.reports import placement
from pairuntime.reports.report_client import BACKOFF_MAX_S, BACKOFF_MIN_S, ReportClient, ReportRejected
from pairuntime.reports.report_uploader import print_exception, run_and_report
from pairuntime.supervisor import attempt, attempt_factory, claim, process_tree
from pairuntime.transport.bounded_tar import BoundedTarFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# In the folder of a bundle.
TASK_FOLDER = "task"
# What the tasks of a gang share: variables, and what each of them has to be placed with.
GANG = "placements-wanted.json"
RUNTIME_FOLDER = "runtime"
SOURCES = "sources.tar"
# Variables of the container, from the pod's own fields.
NODE_VARIABLE = "PAI_POD_NODE"
ADDRESS_VARIABLE = "PAI_POD_IP"
UID_VARIABLE = "PAI_POD_ATTEMPT"
WORK = "work"
# The server answers when all tasks of the gang have asked, or after some seconds.
_PLACEMENT_TIMEOUT_S = 20.0


def run(config: "dict[str, Any]", root: "str") -> "int":
    """What the bootstrap runs after the download. ``root``: a volume that only this container sees."""
    client = ReportClient(config)
    diagnostics = os.open(os.path.join(root, "diagnostics"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(diagnostics, 2)
    try:
        return _run(client, root)
    except Exception:  # noqa: BLE001 - uploaded as diagnostics
        print_exception()
        return 70
    finally:
        client.send_diagnostics(claim.read_file(os.path.join(root, "diagnostics")))


def _run(client: "ReportClient", root: "str") -> "int":
    # Found by `sigpending` until the uploader waits for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    folder = os.path.join(root, TASK_FOLDER)
    spec = json.loads(claim.read_file(os.path.join(folder, attempt.SPEC)).decode())  # type: dict[str, Any]
    exchange = str(spec["exchange"])
    _prepare_exchange(root, exchange)
    status_fd = os.open(os.path.join(exchange, shim.STATUS), os.O_RDONLY | os.O_NONBLOCK)
    # For both: the shim must not wait for the opening, and sees its end when this process has gone.
    control_fd = os.open(os.path.join(exchange, shim.CONTROL), os.O_RDWR | os.O_NONBLOCK)
    gang = json.loads(claim.read_file(os.path.join(folder, GANG)).decode())  # type: dict[str, Any]
    if not pod_attempt.wait_for_shim(status_fd, _is_ending):
        return 3
    placements = _placements(client, str(spec["attempt"]), gang["tasks"], int(spec["number"]))
    if placements is None:
        return 3
    own = placements[int(spec["number"])]
    spec["env"] = dict(gang["environment"], **spec["env"])
    _write_scripts(spec, exchange, root, placement.values(gang["tasks"], placements))
    placement.write(os.path.join(folder, placement.PLACEMENT), json.dumps(own))
    if spec.get("output_upload"):
        # The Python that runs this: the server cannot know its path in the image.
        spec["output_upload"]["argv"][0] = sys.executable
    spec.update(status_fd=status_fd, control_fd=control_fd, env={}, argv=[])
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)

    def supervise() -> "int":
        cgroup = process_tree.Cgroup(process_tree.PROC, "")
        return attempt_factory.supervise(folder, cgroup, spec, pod_attempt.PodAttempt)

    def close_pipes() -> "None":
        for fd in (status_fd, control_fd):
            os.close(fd)

    return run_and_report(
        client, folder, str(spec["attempt"]), supervise, after_fork=close_pipes, ends_when_rejected=True
    )


def _is_ending() -> "bool":
    """Whether the pod is being deleted."""
    return signal.SIGTERM in signal.sigpending()


def _placements(
    client: "ReportClient", attempt_uid: "str", tasks: "list[dict[str, Any]]", number: "int"
) -> "list[dict[str, object]] | None":
    """Placements of the whole gang, in its order; None if the task is not to start any more."""
    alone = len(tasks) == 1
    offer = {
        "node": os.environ.get(NODE_VARIABLE, ""),
        "ip": os.environ.get(ADDRESS_VARIABLE, ""),
        "ports": placement.free_ports(sum(tasks[number]["ports"].values()), 0 if alone else placement.SPARE),
        # In a container only its own exist, numbered from 0.
        "gpus": ",".join(map(str, range(int(tasks[number]["gpu_count"])))),
    }  # type: dict[str, object]
    if alone:
        return placement.assign_ports([offer], tasks)
    pause = BACKOFF_MIN_S
    while not _is_ending():
        try:
            answer = client.put(attempt_uid + "/placement", json.dumps(offer).encode(), _PLACEMENT_TIMEOUT_S)
            if answer["placements"] is not None:
                return list(answer["placements"])
            pause = BACKOFF_MIN_S
        except ReportRejected:
            return None
        except (OSError, http.client.HTTPException):
            time.sleep(pause)
            pause = min(pause * 2, BACKOFF_MAX_S)
    return None


def _prepare_exchange(root: "str", exchange: "str") -> "None":
    """Everything that the user's container needs, then the pipes; that of the status marks it complete."""
    os.umask(0)  # the image may have a user of its own
    work = os.path.join(exchange, WORK)
    # The working folder is a volume of its own.
    for path in (work, os.path.join(work, ".pai"), os.path.join(work, ".pai", "output")):
        if not os.path.isdir(path):
            os.mkdir(path, 0o777)
    # Where the uploader looks for metrics.
    os.symlink(work, os.path.join(root, TASK_FOLDER, WORK))
    # A copy: what this process imports must not be writable for the task.
    shutil.copytree(os.path.join(root, RUNTIME_FOLDER), os.path.join(exchange, RUNTIME_FOLDER))
    for folder, _, names in os.walk(os.path.join(exchange, RUNTIME_FOLDER)):
        for name in (folder, *(os.path.join(folder, each) for each in names)):
            os.chmod(name, 0o755)
    sources = os.path.join(root, SOURCES)
    if os.path.exists(sources):
        _unpack(sources, work)
    for name in shim.OUTPUTS + (shim.CONTROL, shim.STATUS):
        os.mkfifo(os.path.join(exchange, name), 0o666)


def _unpack(archive: "str", folder: "str") -> "None":
    inside = os.path.realpath(folder) + os.sep
    try:
        with open(archive, "rb") as content, BoundedTarFile.open(fileobj=content, mode="r|*") as members:
            for member in members:
                target = os.path.realpath(os.path.join(folder, member.name))
                if not (target + os.sep).startswith(inside) or member.isdev():
                    raise tarfile.ExtractError("%s is outside the working folder" % member.name)
                members.extract(member, folder)
    except (OSError, ValueError, EOFError, zlib.error, tarfile.TarError) as e:
        raise RuntimeError("The sources could not be unpacked: %s" % e)
    os.unlink(archive)


def _write_scripts(spec: "dict[str, Any]", exchange: "str", root: "str", known: "dict[str, str]") -> "None":
    exports = "".join(
        "export %s=%s\n" % (name, shlex.quote(placement.substitute(value, known)))
        for name, value in spec["env"].items()
    )
    # What the job and the image have comes first.
    for name, folder in (("PATH", "bin"), ("PYTHONPATH", "lib")):
        own = os.path.join(exchange, RUNTIME_FOLDER, folder)
        exports += 'export %s="${%s:+$%s:}"%s\n' % (name, name, name, shlex.quote(own))
    _write(os.path.join(exchange, shim.RUN), shim.run_script(exports, os.path.join(exchange, WORK)))
    script = claim.read_file(os.path.join(root, TASK_FOLDER, "task.sh")).decode()
    _write(os.path.join(exchange, shim.TASK), shim.PROLOGUE + script)


def _write(path: "str", text: "str") -> "None":
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o644)
