"""Folders of gangs and tasks on the server: what is downloaded by pods, and what they report."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paicluster.engines.common import folder_size, task_files, untrusted_files
from paicluster.engines.common.attempt_folder import environment_marker
from paicluster.engines.common.gang_folders import SCRIPT_HEADER, TICKET, GangFolders, copy_sources, hash_of
from paicluster.engines.common.received_reports import write_report
from paicluster.engines.interface import LaunchFailed, Loss, TaskLaunch
from paicluster.engines.kubernetes.options import KubernetesOptions
from paicluster.engines.kubernetes.pod_manifest import EXCHANGE, STATE, WORK
from paicluster.engines.kubernetes.pod_states import Verdict
from pairuntime.kubernetes import bootstrap, pod_runtime
from pairuntime.reports import bundle_download, server_connection
from pairuntime.supervisor import attempt, claim

GANG = "gang.json"
# Error output of the runtime containers.
DIAGNOSTICS = "diagnostics"
# The manifests, until the gang has ended: with them it is created again after a restart of the server.
MANIFESTS = "manifests.json"
# Nothing of the gang is left in Kubernetes.
REMOVED = "removed"
VERDICT = "verdict.json"
SCRIPT = "task.sh"
_SOURCES = pod_runtime.SOURCES


def cluster_id(home: GangFolders) -> str:
    """Label by which this cluster finds its objects, among those of others in the same namespace."""
    path = home.root / "cluster-id"
    if not path.exists():
        write_report(path, secrets.token_hex(8))
    return path.read_text()


def prepare(
    home: GangFolders,
    gang: Sequence[TaskLaunch],
    options: KubernetesOptions,
    runtime: Path,
    *,
    ticket: str,
    namespace: str,
    pool: str,
    manifests: Mapping[str, Any],
    grace_s: float,
) -> None:
    """Write all files of a gang. `gang.json` comes last and marks it complete; a failure removes all."""
    folder = home.gang(gang[0].uid)
    created: list[Path] = []
    try:
        created.append(folder)
        _create(folder)
        if (sources := gang[0].sources) is not None:
            copy_sources(sources, folder / _SOURCES)
        write_report(folder / TICKET, hash_of(ticket))
        write_report(folder / MANIFESTS, json.dumps(manifests))
        for task in gang:
            path = home.task(task.uid)
            if not os.path.lexists(path / claim.NAME):
                created.append(path)
                _prepare_task(path, task, gang, options, ticket, grace_s)
        shared = gang[0].shared_environment
        content = {
            "environment": {k: v for k, v in shared.items() if k not in task_files.HOST_VARIABLES},
            "tasks": [_placement_request(task) for task in gang],
        }
        write_report(folder / pod_runtime.GANG, json.dumps(content))
        description = {
            "tasks": [task.uid for task in gang],
            "namespace": namespace,
            "pool": pool,
            "runtime": runtime.parent.name,
            "images": [task.image or options.image for task in gang],
            "logins": ["" if task.login is None else task.login.username for task in gang],
        }
        for task in gang[1:]:
            _create(home.gang(task.uid).parent)
            write_report(home.gang(task.uid), gang[0].uid)
        write_report(folder / GANG, json.dumps(description))
    except OSError as error:
        for path in created:
            folder_size.remove_tree(path)
        raise LaunchFailed.not_written(error) from error


def _prepare_task(
    folder: Path,
    task: TaskLaunch,
    gang: Sequence[TaskLaunch],
    options: KubernetesOptions,
    ticket: str,
    grace_s: float,
) -> None:
    _create(folder)
    work = folder / pod_runtime.WORK
    work.mkdir(exist_ok=True)
    task_files.create_output_folders(work)
    key, _, value = environment_marker(task.uid).partition("=")
    foreign = task_files.HOST_VARIABLES
    environment = {name: text for name, text in task.environment.items() if name not in foreign}
    environment[key] = value
    runtime_folder = f"{EXCHANGE}/{pod_runtime.RUNTIME_FOLDER}"
    everything = {**task.shared_environment, **environment}
    own = task_files.runtime_variables(everything, WORK, runtime_folder)
    # These are put behind what the image has: only its own shell knows that.
    environment.update({name: text for name, text in own.items() if name not in ("PATH", "PYTHONPATH")})
    if "HOME" in foreign or "HOME" not in everything:
        environment["HOME"] = WORK
    spec = {
        "attempt": task.uid,
        "gang": gang[0].uid,
        "cwd": WORK,
        "exchange": EXCHANGE,
        "env": environment,
        "secrets": [*task.secrets, ticket],
        "time_limit_s": task.time_limit_s,
        "output_upload": task_files.output_upload_spec(task, WORK, runtime_folder, "python3"),
        "number": gang.index(task),
        "grace_s": grace_s,
        "kill_wait_s": grace_s + options.drain_s,
        "log_limit": options.log_limit,
        "log_segment": options.log_segment,
    }
    write_report(folder / SCRIPT, SCRIPT_HEADER + task.script + "\n")
    write_report(folder / attempt.SPEC, json.dumps(spec))


def _placement_request(task: TaskLaunch) -> dict[str, object]:
    """What a task needs to be placed, and the texts that stand for the results in all environments."""
    placeholders = None
    ports: dict[str, int] = {}
    if task.placeholders is not None:
        labels = {label: list(texts) for label, texts in task.placeholders.ports.items()}
        ports = {label: len(texts) for label, texts in labels.items()}
        placeholders = {"ip": task.placeholders.ip, "gpus": task.placeholders.gpus, "ports": labels}
    return {"ports": ports, "placeholders": placeholders, "gpu_count": task.gpu_count}


def placement_requests(folder: Path) -> list[dict[str, Any]]:
    """Those of all tasks of a gang."""
    return list(json.loads((folder / pod_runtime.GANG).read_text())["tasks"])


def bootstrap_text(url: str, ca_certificates: str, ticket: str, gang: str) -> str:
    """The program that the runtime container runs."""
    config = {
        "url": url,
        "authority": ca_certificates,
        "ticket": ticket,
        "gang": gang,
        "root": STATE,
        "archive": f"{pod_runtime.RUNTIME_FOLDER}/pairuntime.pyz",
    }
    modules = (server_connection, bundle_download, bootstrap)
    texts = (Path(str(module.__file__)).read_text() for module in modules)
    return "\n".join((*texts, f"main({config!r})\n"))


def _create(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


# -- reading --------------------------------------------------------------------------------------------


def description_of(folder: Path) -> dict[str, Any] | None:
    """The description of a gang; None when its folder is not complete."""
    try:
        content = json.loads((folder / GANG).read_text())
    except (OSError, ValueError):
        return None
    return dict(content)


def all_gangs(home: GangFolders) -> Iterator[str]:
    """Gangs that may have something in Kubernetes."""
    for path in home.gangs.glob("*/*"):
        if path.is_dir() and not (path / REMOVED).exists():
            yield path.name


def read_ticket(home: GangFolders, uid: str) -> str | None:
    leader = home.leader_of(uid)
    if leader is None:
        return None
    try:
        return untrusted_files.tail(home.gang(leader) / TICKET).decode()
    except OSError:
        return None


def diagnostics_of(folder: Path, size: int = 600) -> str:
    """The end of what the runtime of a pod has to say, beside its task; usually empty."""
    try:
        data = untrusted_files.tail(folder / DIAGNOSTICS, size)
    except OSError:
        return ""
    return " ".join(untrusted_files.sanitize(data.decode(errors="replace")).split())


def write_verdict(folder: Path, verdict: Verdict) -> None:
    """Store what Kubernetes says about an attempt; the first one counts."""
    if not (folder / VERDICT).exists():
        write_report(folder / VERDICT, json.dumps(asdict(verdict), default=lambda loss: loss.value))


def read_verdict(folder: Path) -> Verdict | None:
    content = untrusted_files.read_json(folder / VERDICT)
    if not content:
        return None
    loss = content.get("loss")
    return Verdict(**{**content, "loss": None if loss is None else Loss(loss)})


def request_stop(folder: Path, uid: str, grace_s: float) -> None:
    """Write the stop request; an attempt that has not started never will."""
    _create(folder)
    write_report(folder / attempt.STOP, json.dumps({"grace_s": grace_s}))
    claim.bury(str(folder), uid)
