"""Command lines of podman and docker. They must not contain secrets."""

from __future__ import annotations

import asyncio
import csv
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paicluster.engines.interface import Mount

ATTEMPT_LABEL = "org.openpai.attempt"
CLUSTER_LABEL = "org.openpai.cluster"

# Variables of the server that a client needs; proxies only for pulls.
_PASSED_VARIABLES = (
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINERS_REGISTRIES_CONF",
    "REGISTRY_AUTH_FILE",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_TLS_VERIFY",
    "DOCKER_CERT_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_COMMAND_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class ClientResult:
    status: int
    out: str
    err: str

    @property
    def error_text(self) -> str:
        """Last line of its output, as an error text for the user."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return lines[-1] if lines else f"it exited with status {self.status}"


@dataclass(frozen=True, slots=True)
class Client:
    """A container program that works here, with the options it needs."""

    kind: str  # podman or docker
    program: str
    # Options before the subcommand (--cgroup-manager), and options of every `run` (--ulimit).
    options: tuple[str, ...] = ()
    run_options: tuple[str, ...] = ()
    # Resources of a task that it can limit.
    limits_cpu: bool = True
    limits_memory: bool = True
    # Without root privileges.
    rootless: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        quiet = ("--log-level=error",) if self.kind == "podman" else ()
        return [self.program, *quiet, *self.options, *arguments]

    def kill(self, name: str) -> list[str]:
        return self.command("kill", "--signal", "KILL", name)

    def pid(self, name: str) -> list[str]:
        """Prints the number of the container's first process."""
        return self.command("container", "inspect", "--format", "{{.State.Pid}}", name)

    def remove_arguments(self, *names: str) -> list[str]:
        """Arguments that remove containers in any state."""
        tolerant = ("--ignore", "--time", "0") if self.kind == "podman" else ()
        return ["rm", "--force", *tolerant, "--volumes", *names]

    async def call(
        self, *arguments: str, timeout_s: float = _COMMAND_TIMEOUT_S, use_proxies: bool = False
    ) -> ClientResult:
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self.environment, **(proxies() if use_proxies else {})},
            cwd="/",
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout_s):
                out, err = await process.communicate()
        except TimeoutError:
            return ClientResult(124, "", f"{self.kind} did not respond within {timeout_s:.0f} s")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        status = process.returncode
        assert status is not None
        return ClientResult(status, out.decode(errors="replace"), err.decode(errors="replace"))


def own_environment() -> dict[str, str]:
    """Environment of the client."""
    environment = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    environment["PATH"] = _PATH
    runtime = Path(f"/run/user/{os.getuid()}")
    if "XDG_RUNTIME_DIR" not in environment and os.getuid() and runtime.is_dir():
        environment["XDG_RUNTIME_DIR"] = str(runtime)
    return environment


def proxies() -> dict[str, str]:
    return {name: os.environ[name] for name in _PROXIES if name in os.environ}


def mount_options(mount: Mount) -> list[str]:
    parts = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    if mount.read_only:
        parts.append("readonly=true")
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(parts)  # quotes a path with a comma
    return ["--mount", text.getvalue()]
