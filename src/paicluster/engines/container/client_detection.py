"""Detection of podman or docker on this machine, and, by trial, of the options it needs.

On machines without systemd, with cgroup v1, or where not even root may raise a limit, a container program
fails with its defaults. Instead of asking for settings, the few options known to help are tried in turn.
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

_PROBE_TIMED_OUT_STATUS = 42
_PROBE_TIMEOUT_S = 60.0
_STORAGE_CONF = """\
# Written by paicluster: the default here, vfs, copies whole images and takes seconds for each container.
[storage]
driver = "overlay"
"""


@dataclass(frozen=True, slots=True)
class NoClient:
    """Why no container program can be used here."""

    reason: str


async def detect(scratch: Path, kinds: tuple[str, ...] = KINDS) -> Client | NoClient:
    """The first client that works. The result is cached in ``scratch`` until the next boot."""
    reasons = []
    for kind in kinds:
        program = shutil.which(kind)
        if program is None:
            continue
        if kind == "docker" and not docker_listens():
            reasons.append("docker is installed, but its daemon does not respond")
            continue
        client = Client(kind, program, environment=own_environment())
        modified = Path(program).stat().st_mtime_ns
        key = f"{program} {modified} {os.geteuid()} {claim.boot_id()} {socket.gethostname()}"
        cached = _read_cache(scratch / f"{kind}.json", key)
        if cached is not None:
            return replace(client, **cached)
        options = await (_try_podman(client, scratch) if kind == "podman" else _try_docker(client))
        if isinstance(options, Client):
            _write_cache(scratch / f"{kind}.json", key, options)
            log.info(
                "Tasks with an image run with: %s", " ".join(options.command("run", *options.run_options))
            )
            return options
        reasons.append(options.reason)
    return NoClient("; ".join(reasons) or "neither podman nor docker is installed")


def _read_cache(file: Path, key: str) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.pop("key", None) != key:
        return None
    return {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}


def _write_cache(file: Path, key: str, client: Client) -> None:
    content = asdict(client)
    for name in ("kind", "program", "environment"):
        del content[name]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"key": key, **content}))
    except OSError as error:
        log.warning("The detected options of %s could not be cached: %s", client.kind, error)


async def _try_docker(client: Client) -> Client | NoClient:
    result = await client.call("info", "--format", "{{json .}}", timeout_s=_PROBE_TIMEOUT_S)
    try:
        info = json.loads(result.out)
        errors = info.get("ServerErrors")
    except ValueError:
        info, errors = {}, [result.error_text]
    if result.status or errors or not info.get("ServerVersion"):
        return NoClient(f"docker does not work here: {errors[0] if errors else result.error_text}")
    return replace(
        client,
        limits_cpu=bool(info.get("CpuCfsQuota", info.get("CPUCfsQuota", False))),
        limits_memory=bool(info.get("MemoryLimit", False)),
        rootless=any("rootless" in str(option) for option in info.get("SecurityOptions") or ()),
    )


async def _try_podman(client: Client, scratch: Path) -> Client | NoClient:
    if os.geteuid() != 0:
        prefer_overlay()
    result = await client.call("info", "--format", "json", timeout_s=_PROBE_TIMEOUT_S)
    try:
        host = json.loads(result.out)["host"]
    except (ValueError, KeyError, TypeError):
        return NoClient(f"podman does not work here: {result.error_text}")
    rootless = bool(host.get("security", {}).get("rootless"))
    controllers = set(host.get("cgroupControllers") or ())
    client = replace(client, rootless=rootless)
    if rootless:
        # On cgroup v1 an ordinary user cannot set limits; on v2 those of delegated controllers.
        v2 = host.get("cgroupVersion") == "v2"
        client = replace(
            client, limits_cpu=v2 and "cpu" in controllers, limits_memory=v2 and "memory" in controllers
        )
    root = await asyncio.to_thread(_small_root, scratch / "probe")
    if root is None:
        return client  # no root file system for a trial: use its defaults
    error = ""
    for limits in dict.fromkeys(((client.limits_cpu, client.limits_memory), (False, False))):
        for options, run_options in _candidate_options():
            tried = replace(
                client,
                options=options,
                run_options=run_options,
                limits_cpu=limits[0],
                limits_memory=limits[1],
            )
            error = await _probe(tried, root)
            if not error:
                return tried
            log.info("podman %s: %s", " ".join((*options, *run_options)) or "with defaults", error)
    return NoClient(f"podman does not work here: {error}")


def _candidate_options() -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Options to try, from the defaults to the least demanding."""
    names = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    hard_limits = {name: resource.getrlimit(number)[1] for name, number in names.items()}
    # podman lowers its own limit to pid_max, and then cannot set a higher one.
    pid_max = int(Path("/proc/sys/kernel/pid_max").read_text())
    hard_limits["nproc"] = (
        pid_max if hard_limits["nproc"] == resource.RLIM_INFINITY else min(hard_limits["nproc"], pid_max)
    )
    ulimits = tuple(
        option
        for name, hard in hard_limits.items()
        if hard != resource.RLIM_INFINITY
        for option in ("--ulimit", f"{name}={hard}:{hard}")
    )
    candidates: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), ()), ((), ulimits)]
    cgroups = ("--cgroup-manager", "cgroupfs")
    candidates += [(cgroups, ()), (cgroups, ulimits)]
    candidates += [
        ((*cgroups, "--runtime", path), ulimits)
        for name in ("runc", "crun")
        if (path := shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"))
    ]
    return list(dict.fromkeys(candidates))


async def _probe(client: Client, root: Path) -> str:
    """Run a container with these options; returns the error, empty on success."""
    limits = ["--cpus", "1"] if client.limits_cpu else []
    limits += ["--memory", "64m", "--memory-swap", "64m"] if client.limits_memory else []
    result = await client.call(
        "run", "--rm", "--network=host", "--log-driver=none", *client.run_options, *limits,
        "--rootfs", str(root), "/bin/sh", "-c", f"exit {_PROBE_TIMED_OUT_STATUS}",
        timeout_s=_PROBE_TIMEOUT_S,
    )  # fmt: skip
    return "" if result.status == _PROBE_TIMED_OUT_STATUS else result.error_text


def _small_root(root: Path) -> Path | None:
    """Root file system with this machine's shell and its libraries; None on failure."""
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
        log.info("No root file system to try podman with: %s", error)
        return None
    return root


def prefer_overlay() -> None:
    """Configure overlay storage for an ordinary user's podman before its first use.

    Its default may be to copy every image, which takes seconds for each container.
    """
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "containers/storage"
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "containers/storage.conf"
    if data.exists() or config.exists() or os.environ.get("CONTAINERS_STORAGE_CONF"):
        return  # podman is in use or configured already
    if not _overlay_for_users():
        return
    try:
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(_STORAGE_CONF)
    except OSError as error:
        log.info("%s could not be written: %s", config, error)


def _overlay_for_users() -> bool:
    """Whether users may mount overlay file systems: since Linux 5.13."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return version is not None and (int(version[1]), int(version[2])) >= (5, 13)
