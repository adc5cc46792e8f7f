"""Finds podman or docker on this machine, and how it must be called to work here, by trying it.

On machines without systemd, with old cgroups, or where not even root may raise a limit, a container program
as it comes does not run anything. Nobody is asked for settings: the few ways known to help are tried in turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import resource
import shutil
import socket
import subprocess
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from paicluster.engines.container.client import Client, own_environment
from paicluster.engines.container.client_probe import KINDS, docker_listens
from pairuntime.supervisor import claim

log = logging.getLogger(__name__)

_PROBE_STATUS = 42
_PROBE_S = 60.0
_STORAGE_CONF = """\
# Written by paicluster: copying whole images, the default here, takes seconds a container.
[storage]
driver = "overlay"
"""


@dataclass(frozen=True, slots=True)
class NoClient:
    """Why images cannot be honoured here."""

    reason: str


async def detect(scratch: Path, kinds: tuple[str, ...] = KINDS) -> Client | NoClient:
    """The first that works. What was found is kept in ``scratch`` until the machine is started anew."""
    reasons = []
    for kind in kinds:
        program = shutil.which(kind)
        if program is None:
            continue
        if kind == "docker" and not docker_listens():
            reasons.append("docker is installed, but its daemon does not answer")
            continue
        client = Client(kind, program, environment=own_environment())
        made = Path(program).stat().st_mtime_ns
        key = f"{program} {made} {os.geteuid()} {claim.boot_id()} {socket.gethostname()}"
        known = _recall(scratch / f"{kind}.json", key)
        if known is not None:
            return replace(client, **known)
        found = await (_try_podman(client, scratch) if kind == "podman" else _try_docker(client))
        if isinstance(found, Client):
            _remember(scratch / f"{kind}.json", key, found)
            log.info("tasks with an image run by %s", " ".join(found.command("run", *found.run_options)))
            return found
        reasons.append(found.reason)
    return NoClient("; ".join(reasons) or "neither podman nor docker is installed")


def _recall(file: Path, key: str) -> dict[str, Any] | None:
    try:
        kept = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(kept, dict) or kept.pop("key", None) != key:
        return None
    return {name: tuple(value) if isinstance(value, list) else value for name, value in kept.items()}


def _remember(file: Path, key: str, client: Client) -> None:
    kept = asdict(client)
    for name in ("kind", "program", "environment"):
        del kept[name]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"key": key, **kept}))
    except OSError as error:
        log.warning("what was found out about %s could not be kept: %s", client.kind, error)


async def _try_docker(client: Client) -> Client | NoClient:
    answer = await client.call("info", "--format", "{{json .}}", timeout_s=_PROBE_S)
    try:
        said = json.loads(answer.out)
        errors = said.get("ServerErrors")
    except ValueError:
        said, errors = {}, [answer.error_text]
    if answer.status or errors or not said.get("ServerVersion"):
        return NoClient(f"docker does not work here: {errors[0] if errors else answer.error_text}")
    return replace(
        client,
        limits_cpu=bool(said.get("CpuCfsQuota", said.get("CPUCfsQuota", False))),
        limits_memory=bool(said.get("MemoryLimit", False)),
        rootless=any("rootless" in str(option) for option in said.get("SecurityOptions") or ()),
    )


async def _try_podman(client: Client, scratch: Path) -> Client | NoClient:
    if os.geteuid() != 0:
        prefer_overlay()
    answer = await client.call("info", "--format", "json", timeout_s=_PROBE_S)
    try:
        host = json.loads(answer.out)["host"]
    except (ValueError, KeyError, TypeError):
        return NoClient(f"podman does not work here: {answer.error_text}")
    rootless = bool(host.get("security", {}).get("rootless"))
    controllers = set(host.get("cgroupControllers") or ())
    client = replace(client, rootless=rootless)
    if rootless:
        # On cgroup v1 it takes no limit from an ordinary user; on v2 those that were delegated.
        v2 = host.get("cgroupVersion") == "v2"
        client = replace(
            client, limits_cpu=v2 and "cpu" in controllers, limits_memory=v2 and "memory" in controllers
        )
    root = await asyncio.to_thread(_small_root, scratch / "probe")
    if root is None:
        return client  # nothing to try it with: as it comes
    said = ""
    for limits in dict.fromkeys(((client.limits_cpu, client.limits_memory), (False, False))):
        for options, run_options in _candidate_options():
            tried = replace(
                client,
                options=options,
                run_options=run_options,
                limits_cpu=limits[0],
                limits_memory=limits[1],
            )
            said = await _probe(tried, root)
            if not said:
                return tried
            log.info("podman %s: %s", " ".join((*options, *run_options)) or "as it comes", said)
    return NoClient(f"podman does not work here: {said}")


def _candidate_options() -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """From how it comes to how it can do least harm with what it was given."""
    names = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    ours = {name: resource.getrlimit(number)[1] for name, number in names.items()}
    # It lowers its own limit to the number of processes there can be, and then cannot give more.
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    ours["nproc"] = most if ours["nproc"] == resource.RLIM_INFINITY else min(ours["nproc"], most)
    ulimits = tuple(
        word
        for name, hard in ours.items()
        if hard != resource.RLIM_INFINITY
        for word in ("--ulimit", f"{name}={hard}:{hard}")
    )
    ways: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), ()), ((), ulimits)]
    cgroups = ("--cgroup-manager", "cgroupfs")
    ways += [(cgroups, ()), (cgroups, ulimits)]
    ways += [
        ((*cgroups, "--runtime", path), ulimits)
        for name in ("runc", "crun")
        if (path := shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"))
    ]
    return list(dict.fromkeys(ways))


async def _probe(client: Client, root: Path) -> str:
    """Nothing, if a container can be run that way; else why not."""
    limits = ["--cpus", "1"] if client.limits_cpu else []
    limits += ["--memory", "64m", "--memory-swap", "64m"] if client.limits_memory else []
    answer = await client.call(
        "run", "--rm", "--network=host", "--log-driver=none", *client.run_options, *limits,
        "--rootfs", str(root), "/bin/sh", "-c", f"exit {_PROBE_STATUS}",
        timeout_s=_PROBE_S,
    )  # fmt: skip
    return "" if answer.status == _PROBE_STATUS else answer.error_text


def _small_root(root: Path) -> Path | None:
    """This machine's own shell and what it needs, as the root of a container; None where that fails."""
    try:
        shell = Path(shutil.which("dash") or "/bin/sh")
        needed = subprocess.run(
            ["ldd", str(shell)], capture_output=True, text=True, timeout=10, check=False
        ).stdout
        files = {Path("/bin/sh"): shell}
        files |= {Path(path): Path(path) for path in re.findall(r"(/\S+)", needed) if Path(path).is_file()}
        for target, source in files.items():
            copy = root / target.relative_to("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists():
                shutil.copy(source, copy)
    except (OSError, subprocess.SubprocessError) as error:
        log.info("no root to try podman with: %s", error)
        return None
    return root


def prefer_overlay() -> None:
    """An ordinary user's podman may copy every image whole, seconds a container. Chosen once, at first."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "containers/storage"
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "containers/storage.conf"
    if data.exists() or config.exists() or os.environ.get("CONTAINERS_STORAGE_CONF"):
        return  # it is somebody's own already
    if not _overlay_for_users():
        return
    try:
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(_STORAGE_CONF)
    except OSError as error:
        log.info("%s could not be written: %s", config, error)


def _overlay_for_users() -> bool:
    """Linux lets them since 5.13."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return version is not None and (int(version[1]), int(version[2])) >= (5, 13)
