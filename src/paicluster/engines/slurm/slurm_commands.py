"""Slurm's commands (squeue, sacct, scontrol, scancel, sbatch), run with a timeout."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from paicluster.engines.interface import Node, Notice
from paicluster.engines.slurm.job_states import SlurmJob, format_of, read_jobs

log = logging.getLogger(__name__)

UNAVAILABLE = Notice(
    "SlurmUnavailable",
    "Slurm's controller does not respond. The job waits for it; nothing is lost.",
    "Warning",
    pending=True,
)
_COMMAND_TIMEOUT_S = 60.0
_MAX_CONCURRENT = 10
_TIMED_OUT = 124
_NOT_RUN = 127
# What sacct prints for a job that was never given nodes.
_NO_NODES = "None assigned"
_NO_RESPONSE = (_TIMED_OUT, _NOT_RUN)
_MAX_JOBS_PER_SCANCEL = 500
# Variables passed to Slurm's commands. No others: sbatch exports its whole environment to the job.
_PASSED_VARIABLES = ("HOME", "USER", "LOGNAME", "LANG", "SLURM_CONF", "TMPDIR")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

# Slurm is unavailable for now.
_DOWN = re.compile(
    r"unable to contact slurm controller|connection refused|socket timed out|communication connection failure"
    r"|zero bytes were transmitted|slurm backup controller in standby|munge|authentication|timed out"
    r"|process configuration file|temporarily unable|resource temporarily unavailable|unable to resolve"
    r"|communication shutdown failure|message (send|receive) failure|slurm_msg_sendto|missing socket"
    r"|insane message length|header lengths are longer|connection reset|broken pipe|transport endpoint",
    re.IGNORECASE,
)
# Rejected for now; may be accepted when the cluster or a limit changes.
_RETRYABLE = re.compile(
    r"configuration is not available|node count specification|limit|partition .*(down|inactive|drain)"
    r"|more processors requested|memory specification can not be satisfied|not available|queue is full"
    r"|required node|reservation|licenses|try again|i/o error writing script|generating job credential",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def is_unavailable(self) -> bool:
        if self.status in (0, *_NO_RESPONSE):
            return self.status != 0
        # A command that was killed, or failed without a message, may have reached Slurm or not.
        return self.status < 0 or not self.err.strip() or bool(_DOWN.search(self.err))

    @property
    def is_retryable(self) -> bool:
        return self.status != 0 and bool(_RETRYABLE.search(self.err))

    @property
    def error_text(self) -> str:
        """The error message, without the command's prefix."""
        lines = [
            re.sub(r"^\w+(: error|:| error:)\s*:?\s*", "", line)
            for line in self.err.splitlines()
            if line.strip()
        ]
        return " ".join(lines)[:500] or f"exit status {self.status}"


class SlurmCommands:
    """Runs Slurm's commands. ``calls`` counts the requests to slurmctld, by command."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self._running: set[subprocess.Popen[bytes]] = set()
        self._threads = ThreadPoolExecutor(_MAX_CONCURRENT, thread_name_prefix="slurm-commands")
        self._environment = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
        # Not the server's PATH, which jobs would inherit: only the folder of Slurm's commands.
        folder = Path(shutil.which("sbatch") or "/usr/bin/sbatch").parent
        self._environment["PATH"] = f"{folder}:{_DEFAULT_PATH}"
        self.has_accounting: bool | None = None
        # The last error of `nodes`, to log each one once.
        self._nodes_error = ""

    async def run(self, command: Sequence[str], *, timeout_s: float = _COMMAND_TIMEOUT_S) -> CommandResult:
        self.calls[command[0]] = self.calls.get(command[0], 0) + 1
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, list(command), timeout_s)

    def _run(self, command: list[str], timeout_s: float) -> CommandResult:
        """Run a command in a thread: asyncio would fork this whole process, which blocks the event loop."""
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            return CommandResult(_NOT_RUN, "", f"{command[0]} cannot be run: {error.strerror}")
        self._running.add(process)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return CommandResult(_TIMED_OUT, "", f"{command[0]} did not end within {timeout_s:.0f} s")
        finally:
            self._running.discard(process)
        return CommandResult(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def close(self) -> None:
        """Kill running commands: the next server repeats them."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in list(self._running):
            process.kill()

    async def jobs(self) -> dict[str, list[SlurmJob]] | None:
        """All jobs of this engine that Slurm still knows, by gang; None when Slurm is unavailable."""
        user_filter = [] if os.geteuid() == 0 else [f"--user={os.geteuid()}"]
        marker = os.urandom(8).hex()
        result = await self.run(
            ["squeue", "--local", "--noheader", "--states=all", *user_filter, f"--format={format_of(marker)}"]
        )
        if result.status:
            log.debug("squeue: %s", result.error_text)
            return None
        return read_jobs(result.out.split("\n"), marker)

    async def accounting(self, job_ids: Sequence[str]) -> dict[str, SlurmJob]:
        """Jobs that squeue no longer shows, from sacct; empty without accounting."""
        if not job_ids or self.has_accounting is False or shutil.which("sacct") is None:
            return {}
        columns = "JobID,State,ElapsedRaw,NodeList"
        result = await self.run(
            ["sacct", "-X", "-n", "-P", "-o", columns, "-j", ",".join(job_ids)], timeout_s=20
        )
        if result.status:
            self.has_accounting = not ("disabled" in result.err or "not running" in result.err)
            return {}
        jobs = {}
        for line in result.out.splitlines():
            number, state, used, nodes = line.split("|", 3)
            # CANCELLED is followed by the uid that did it.
            jobs[number.partition("+")[0]] = SlurmJob(
                number.partition("+")[0],
                state.split(" ")[0],
                nodes="" if nodes == _NO_NODES else nodes,
                used_s=int(used) if used.isdecimal() else 0,
            )
        return jobs

    async def nodes(self) -> tuple[list[Node], dict[str, str]] | None:
        """The nodes that are up, and the address of every node; None when Slurm is unavailable."""
        result = await self.run(["scontrol", "--oneliner", "show", "nodes"])
        if result.status:
            if result.error_text != self._nodes_error:
                self._nodes_error = result.error_text
                log.warning("The nodes of Slurm cannot be listed; retrying: %s", result.error_text)
            return None
        self._nodes_error = ""
        return read_nodes(result.out.splitlines())

    async def config(self) -> dict[str, str]:
        result = await self.run(["scontrol", "show", "config"])
        settings = {}
        for line in result.out.splitlines():
            key, equals, value = line.partition("=")
            if equals:
                settings[key.strip()] = value.strip()
        return settings

    async def cancel(self, job_ids: Sequence[str], *options: str) -> bool:
        """Call scancel. False: Slurm is unavailable and may not have received it."""
        received = True
        for start in range(0, len(job_ids), _MAX_JOBS_PER_SCANCEL):
            result = await self.run(
                ["scancel", "--quiet", *options, *job_ids[start : start + _MAX_JOBS_PER_SCANCEL]]
            )
            if result.status:
                log.info("scancel: %s", result.error_text)
                received = received and not result.is_unavailable
        return received


def read_nodes(lines: Sequence[str]) -> tuple[list[Node], dict[str, str]]:
    nodes, addresses = [], {}
    for line in lines:
        # Reversed, so that the first field of a name counts: a node's comment comes last.
        fields = dict(field.split("=", 1) for field in reversed(line.split()) if "=" in field)
        name = fields.get("NodeName", "")
        if not name:
            continue
        addresses[name] = fields.get("NodeAddr", name)
        states = set(re.split(r"[+*]", fields.get("State", "")))
        if states & {"DOWN", "DRAIN", "DRAINED", "FAIL", "NOT_RESPONDING", "FUTURE", "POWERED_DOWN"}:
            continue
        gpus = sum(int(count) for count in re.findall(r"gpu(?::[^:,(\s]+)?:(\d+)", fields.get("Gres", "")))
        nodes.append(
            Node(
                name,
                addresses[name],
                int(fields.get("CPUTot", 0)),
                int(fields.get("RealMemory", 0)),
                tuple(range(gpus)),
            )
        )
    return nodes, addresses
