"""Asks Slurm by its own commands. Each question has a deadline; answers are text, or a failure with words."""

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

NOT_ANSWERING = Notice(
    "SlurmNotAnswering",
    "Slurm's controller does not answer. The job waits for it; nothing is lost.",
    "Warning",
)
_DEADLINE_S = 60.0
_AT_ONCE = 10
_TOO_LATE = 124
_NOT_RUN = 127
_UNANSWERED = (_TOO_LATE, _NOT_RUN)
_SCANCEL_AT_ONCE = 500
# Of the server's environment only what Slurm's commands need: sbatch passes on all it has.
_PASSED = ("HOME", "USER", "LOGNAME", "LANG", "SLURM_CONF", "TMPDIR")
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

# Slurm is not there to be asked: it may be tomorrow.
_DOWN = re.compile(
    r"unable to contact slurm controller|connection refused|socket timed out|communication connection failure"
    r"|zero bytes were transmitted|slurm backup controller in standby|munge|authentication|timed out"
    r"|process configuration file|temporarily unable|resource temporarily unavailable|unable to resolve",
    re.IGNORECASE,
)
# It cannot be as things are, but may be when the cluster or somebody's limits change.
_NOT_NOW = re.compile(
    r"configuration is not available|node count specification|limit|partition .*(down|inactive|drain)"
    r"|more processors requested|memory specification can not be satisfied|not available|queue is full"
    r"|required node|reservation|licenses",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class CommandResult:
    status: int
    out: str
    err: str

    @property
    def down(self) -> bool:
        if self.status in (0, *_UNANSWERED):
            return self.status != 0
        # One that was killed, or died without a word, may have been answered or not.
        return self.status < 0 or not self.err.strip() or bool(_DOWN.search(self.err))

    @property
    def is_retryable(self) -> bool:
        return self.status != 0 and bool(_NOT_NOW.search(self.err))

    @property
    def error_text(self) -> str:
        """What the command had to say, for people."""
        lines = [
            re.sub(r"^\w+(: error|:| error:)\s*:?\s*", "", line)
            for line in self.err.splitlines()
            if line.strip()
        ]
        return " ".join(lines)[:500] or f"it ended with {self.status}"


class SlurmCommands:
    """The commands. ``calls`` counts the questions to slurmctld, by command."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self._running: set[subprocess.Popen[bytes]] = set()
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="slurm-commands")
        self._environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
        # Of our own PATH the nodes need only where Slurm's commands are: there may be anything in it here.
        where = Path(shutil.which("sbatch") or "/usr/bin/sbatch").parent
        self._environment["PATH"] = f"{where}:{_USUAL_PATH}"
        self.has_accounting: bool | None = None
        # Why it does not tell its nodes, as it was last said.
        self._complaint = ""

    async def ask(self, words: Sequence[str], *, deadline_s: float = _DEADLINE_S) -> CommandResult:
        self.calls[words[0]] = self.calls.get(words[0], 0) + 1
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, list(words), deadline_s)

    def _run(self, words: list[str], deadline_s: float) -> CommandResult:
        """In a thread: the event loop's own way copies this whole process, and everybody waits for it."""
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            return CommandResult(_NOT_RUN, "", f"{words[0]} cannot be run: {error.strerror}")
        self._running.add(process)
        try:
            out, err = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return CommandResult(_TOO_LATE, "", f"{words[0]} did not end within {deadline_s:.0f} s")
        finally:
            self._running.discard(process)
        return CommandResult(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def close(self) -> None:
        """Wait for nobody: what was being asked is asked again by the next server."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in list(self._running):
            process.kill()

    async def jobs(self) -> dict[str, list[SlurmJob]] | None:
        """All of our jobs that Slurm still knows, by gang; None when it does not answer."""
        mine = [] if os.geteuid() == 0 else [f"--user={os.geteuid()}"]
        word = os.urandom(8).hex()
        answer = await self.ask(
            ["squeue", "--local", "--noheader", "--states=all", *mine, f"--format={format_of(word)}"]
        )
        if answer.status:
            log.debug("squeue: %s", answer.error_text)
            return None
        return read_jobs(answer.out.split("\n"), word)

    async def accounting(self, job_ids: Sequence[str]) -> dict[str, SlurmJob]:
        """What the accounting knows of jobs that the queue has forgotten; nothing without accounting."""
        if not job_ids or self.has_accounting is False or shutil.which("sacct") is None:
            return {}
        answer = await self.ask(
            ["sacct", "-X", "-n", "-P", "-o", "JobID,State,NodeList", "-j", ",".join(job_ids)], deadline_s=20
        )
        if answer.status:
            self.has_accounting = not ("disabled" in answer.err or "not running" in answer.err)
            return {}
        found = {}
        for line in answer.out.splitlines():
            number, state, nodes = line.split("|", 2)
            # CANCELLED comes with who did it.
            found[number.partition("+")[0]] = SlurmJob(
                number.partition("+")[0], state.split(" ")[0], "", nodes
            )
        return found

    async def nodes(self) -> tuple[list[Node], dict[str, str]] | None:
        """The nodes that are up, and the address of every one; None when Slurm does not answer."""
        answer = await self.ask(["scontrol", "--oneliner", "show", "nodes"])
        if answer.status:
            if answer.error_text != self._complaint:
                self._complaint = answer.error_text
                log.warning("Slurm does not say which nodes it has; it is asked again: %s", answer.error_text)
            return None
        self._complaint = ""
        return read_nodes(answer.out.splitlines())

    async def config(self) -> dict[str, str]:
        answer = await self.ask(["scontrol", "show", "config"])
        found = {}
        for line in answer.out.splitlines():
            key, equals, value = line.partition("=")
            if equals:
                found[key.strip()] = value.strip()
        return found

    async def cancel(self, job_ids: Sequence[str], *how: str) -> bool:
        """False: Slurm does not answer, and may not have been told."""
        told = True
        for start in range(0, len(job_ids), _SCANCEL_AT_ONCE):
            answer = await self.ask(["scancel", "--quiet", *how, *job_ids[start : start + _SCANCEL_AT_ONCE]])
            if answer.status:
                log.info("scancel: %s", answer.error_text)
                told = told and not answer.down
        return told


def read_nodes(lines: Sequence[str]) -> tuple[list[Node], dict[str, str]]:
    nodes, addresses = [], {}
    for line in lines:
        # Backwards, so that the first of a name counts: what people wrote about a node comes last.
        fields = dict(word.split("=", 1) for word in reversed(line.split()) if "=" in word)
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
