"""Checks: what clients saw, compared with what the cluster promises; and leaks.

A fault may do only what the documentation says: a killed supervisor loses its own attempt (exit code -101,
retried, not counted), a killed zygote or a full disk prevents a start (-120, likewise), a full disk drops
parts of the logs written meanwhile, and a server that is killed twice in a row during the launch of one job
fails it (-1100, event ServerDied).
"""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chaos.load import Client, Expected, Followed, Load
from chaos.operations import check_file
from chaos.site import Site
from support.process_template import run_paicluster
from support.server_fixture import FINISHED_STATES, eventually

_STOPPED, _COMPLETED, _NEVER_STARTED = -210, -220, -1100
_FAILED = 255
_END_DEADLINE_S, _END_AFTER_FAILURE_S = 180.0, 20.0
_MAX_MEMORY_KB = 400 << 10
_DATABASE_BASE_BYTES, _DATABASE_BYTES_PER_JOB = 40 << 20, 64 << 10
_MORE_DESCRIPTORS = 24
# After the end of a task: its log is written a moment after its last line.
_DRAIN_S = 10.0


@dataclass(frozen=True)
class Attempt:
    """One attempt of one task, as the server reports it."""

    job_attempt: int
    task_attempt: int
    index: int
    uid: str
    code: int | None
    # Reason of an end other than the exit of its program.
    reason: str


@dataclass
class Recorded:
    """Starts and ends that a task wrote to its own file, in order, with times."""

    lines: list[tuple[str, str, int]]

    def starts(self, uid: str) -> int:
        return sum(1 for event, of, _ in self.lines if (event, of) == ("start", uid))

    def interval(self, uid: str) -> tuple[float, float]:
        times = {event: float(at) for event, of, at in self.lines if of == uid}
        return times.get("start", 0.0), times.get("end", float("inf"))

    def overlaps(self) -> bool:
        """Whether an attempt wrote after a later one had begun."""
        uids = [uid for uid, _ in itertools.groupby(uid for _, uid, _ in self.lines)]
        return len(uids) != len(set(uids))


class Checks:
    """Checks of jobs and files. ``wrong`` has a sentence for each failed one."""

    def __init__(self, site: Site, load: Load):
        self.site, self.cluster = site, site.cluster
        self.load, self.seen = load, load.seen
        self.wrong: list[str] = []
        self.never_started: set[str] = set()

    def run(self) -> list[str]:
        self._check_jobs()
        client = Client(self.load)
        for path in sorted(self.seen.files):
            check_file(client, path)
        for path in sorted(self.seen.deleted):
            if client.retry(path, partial(client.storage.exists, path)):
                self.wrong.append(f"the deleted file {path} is there")
        client.cluster.close()
        client.storage.close()
        self.wrong += self.seen.wrong + self.site.wrong
        return self.wrong

    # -- jobs ----------------------------------------------------------------------------------

    def _check_jobs(self) -> None:
        # After a failure the other jobs are only reported.
        is_wrong = bool(self.seen.wrong or self.site.wrong)
        ends = time.monotonic() + (_END_AFTER_FAILURE_S if is_wrong else _END_DEADLINE_S)
        for name, expected in self.seen.jobs.items():
            while (status := self.cluster.status(name))["state"] not in FINISHED_STATES:
                if time.monotonic() > ends:
                    events = [event["message"] for event in self.cluster.events(name)][:3]
                    self.wrong.append(f"{name} is {status['state']} at the end: {events}")
                    break
                time.sleep(0.2)
            else:
                self._check_job(expected, status)

    def _check_job(self, expected: Expected, status: dict[str, Any]) -> None:
        name = expected.name
        attempts = self._attempts(expected, int(status["attemptId"]))
        summary = (
            f"{name}: {status['state']} {status['appExitCode']}, {status['retryDetails']}, "
            + ", ".join(f"{one.job_attempt}.{one.index}.{one.task_attempt}={one.code}" for one in attempts)
        )
        self._check_starts(expected, attempts, summary)
        if self._is_never_started(expected, status) or self._was_killed(status, attempts):
            self.never_started.add(name)
            return
        if (status["state"], status["appExitCode"]) != (expected.state, expected.exit_code):
            self.wrong.append(f"{summary}: not {expected.state} {expected.exit_code}")
        lost = len({one.job_attempt for one in attempts if one.code in self.site.engine.lost_codes})
        retried = status["retryDetails"]["platform"]
        # A stop ends a job also right after its attempt was lost. Tasks of an array are retried one by one.
        is_right = lost == retried or (expected.state == "STOPPED" and lost == retried + 1)
        if expected.kind != "array" and not is_right:
            self.wrong.append(f"{summary}: {lost} attempts were lost")
        # An array ends with its last task, whether or not a fault killed the program of one.
        counts_killed = expected.kind != "array"
        failed = sum(1 for one in attempts if one.code == _FAILED or (counts_killed and self._is_killed(one)))
        if failed != expected.own_failures:
            self.wrong.append(f"{summary}: {failed} attempts failed by themselves")

    def _is_never_started(self, expected: Expected, status: dict[str, Any]) -> bool:
        if status["appExitCode"] != _NEVER_STARTED:
            return False
        if expected.kind == "second" and f"first-{expected.name.partition('-')[2]}" in self.never_started:
            return True
        reasons = {event["reason"] for event in self.cluster.events(expected.name)}
        return "ServerDied" in reasons and self.site.server_kills >= 2

    def _is_killed(self, one: Attempt) -> bool:
        return one.code == self.site.engine.killed_code is not None

    def _was_killed(self, status: dict[str, Any], attempts: list[Attempt]) -> bool:
        """Whether a fault killed the program of a task, and the job failed as that of its user would."""
        is_failed = (status["state"], status["appExitCode"]) == ("FAILED", self.site.engine.killed_code)
        return is_failed and any(self._is_killed(one) for one in attempts)

    def _attempts(self, expected: Expected, last: int) -> list[Attempt]:
        found = []
        for number, index in itertools.product(range(last + 1), range(expected.tasks)):
            rest = f"/attempts/{number}/taskRoles/main/taskIndex/{index}/attempts"
            reply = self.cluster.get(self.cluster.path(expected.name, rest))
            if reply.status == 404:
                continue  # it was stopped before this task began
            for one in reply.json()["attempts"]:
                uid, code = one["containerId"], one["containerExitCode"]
                reason = str(one.get("containerExitDiagnostics") or "")
                found.append(Attempt(number, int(one["attemptId"]), index, uid or "", code, reason))
        return found

    def _check_starts(self, expected: Expected, attempts: list[Attempt], summary: str) -> None:
        for index in range(expected.tasks):
            recorded = self._recorded(expected.name, index)
            mine = [one for one in attempts if one.index == index]
            known = {one.uid for one in mine}
            for uid in {uid for _, uid, _ in recorded.lines} - known:
                self.wrong.append(f"{summary}: the attempt {uid} of task {index} ran and is not reported")
            if recorded.overlaps():
                self.wrong.append(f"{summary}: two attempts of task {index} at one time: {recorded.lines}")
            for one in mine:
                self._check_attempt(expected, one, recorded, summary)

    def _check_attempt(self, expected: Expected, one: Attempt, recorded: Recorded, summary: str) -> None:
        starts = recorded.starts(one.uid)
        ran = one.code in (0, _FAILED)
        if starts > 1 or (ran and starts != 1):
            self.wrong.append(f"{summary}: the attempt {one.uid} of task {one.index} started {starts} times")
        if not ran and one.code not in (_STOPPED, _COMPLETED, None):
            is_explained = self._is_killed(one) and one.uid in self.site.killed_programs
            unexplained_end = (
                "" if is_explained else self.site.engine.unexplained_end(self.site, one.code, one.uid, starts)
            )
            if unexplained_end:
                self.wrong.append(f"{summary}: {one.uid} {unexplained_end}: {one.reason}")
        if one.code == 0 and expected.state == "FAILED":
            self.wrong.append(f"{summary}: {one.uid} succeeded")
        began, ended = recorded.interval(one.uid)
        may_have_gaps = self.site.was_full(began - 1, ended + _DRAIN_S)
        where = f"{summary}: the log of {one.uid}"
        position = {"from": f"{one.job_attempt}.{one.task_attempt}:0", "role": "main", "index": one.index}
        stored = Followed()
        stream = self.cluster.follow(expected.name, follow="false", **position)
        for frame in stream:
            numbers = (frame.get("attempt"), frame.get("taskAttempt"))
            if frame["kind"] == "log" and numbers == (one.job_attempt, one.task_attempt):
                stored.pieces.append((frame["offset"], frame["data"]))
        stream.close()
        text = expected.log(one.index)
        self._check_log(stored, text, where, is_whole=ran, may_have_gaps=may_have_gaps)
        logs = self.seen.followed.get((expected.name, one.index))
        if logs is not None:
            followed = logs.get((one.job_attempt, one.task_attempt), Followed())
            where += " as it was followed"
            self._check_log(followed, text, where, is_whole=ran, may_have_gaps=may_have_gaps)

    def _check_log(
        self, log: Followed, text: bytes, where: str, *, is_whole: bool, may_have_gaps: bool
    ) -> None:
        at = 0
        pieces = (
            log.pieces
            if is_whole
            else without_termination_notice(log.pieces, self.site.engine.termination_notices)
        )
        for offset, data in pieces:
            if text[offset : offset + len(data)] != data:
                self.wrong.append(
                    f"{where} has at {offset} {data[:80]!r}, not {text[offset : offset + 80]!r}"
                )
                return
            if offset < at:
                self.wrong.append(f"{where} repeats {offset} to {at}")
            if offset > at and not may_have_gaps:
                self.wrong.append(f"{where} has a gap from {at} to {offset}")
            at = offset + len(data)
        if is_whole and at != len(text) and not may_have_gaps:
            self.wrong.append(f"{where} ends at {at} of {len(text)}")

    def _recorded(self, name: str, index: int) -> Recorded:
        path = self.load.ledger / f"{name}.{index}"
        lines = path.read_text().splitlines() if path.exists() else []
        return Recorded([(event, uid, int(at)) for event, uid, at in (line.split() for line in lines)])


def without_termination_notice(
    pieces: list[tuple[int, bytes]], termination_notices: tuple[bytes, ...]
) -> list[tuple[int, bytes]]:
    """Pieces of an interrupted task's log without its shell's line about a command that a signal ended."""
    for notice in termination_notices:
        ends = pieces[-1][0] + len(pieces[-1][1]) - len(notice) if pieces else 0
        if b"".join(data for offset, data in pieces if offset + len(data) > ends).endswith(notice):
            return [(offset, data[: max(0, ends - offset)]) for offset, data in pieces if offset < ends]
    return pieces


# -- leaks -----------------------------------------------------------------------------------------


def descriptors(site: Site) -> int:
    assert site.cluster.process is not None
    return len(os.listdir(f"/proc/{site.cluster.process.pid}/fd"))


def check_running(site: Site, descriptors_before: int, jobs: int, server_temporary: Path) -> list[str]:
    """Check an idle server for leaks of processes, open files, memory and space."""
    wrong = []
    cluster = site.cluster
    assert cluster.process is not None
    pid = cluster.process.pid

    def others() -> list[str]:
        return [
            line for at, line in cluster.processes().items() if at != pid and " zygote " not in f"{line} "
        ]

    def left() -> list[str]:
        return site.engine.leftovers(cluster)

    def prelaunched() -> bytes:
        path = cluster.home / "run/prelaunch"
        return path.read_bytes().strip(b"\0\n ") if path.exists() else b""

    def temporary() -> list[str]:
        names = [path.name for path in server_temporary.iterdir()]
        # Tasks have the server's TMPDIR: a killed notebook may leave files there.
        return [name for name in names if not (name.startswith("kernel-") and site.killed_attempts)]

    def opened() -> int:
        return descriptors(site)

    bounds: tuple[tuple[Callable[[], bool], Callable[[], str]], ...] = (
        (lambda: not others(), lambda: f"processes are left: {others()}"),
        (lambda: opened() <= descriptors_before + _MORE_DESCRIPTORS, lambda: f"{opened()} open files"),
        (lambda: not prelaunched(), lambda: "run/prelaunch"),
        (lambda: not left(), lambda: f"{left()}"),
        (lambda: not temporary(), lambda: f"{temporary()}"),
    )
    for is_kept, what in bounds:
        try:
            eventually(is_kept, "", 45)
        except AssertionError:
            wrong.append(f"leak: {what()}, {descriptors_before} open files before")
    memory = _memory_kb(pid)
    if memory > _MAX_MEMORY_KB:
        wrong.append(f"the server uses {memory >> 10} MB")
    stored = sum(path.stat().st_size for path in cluster.home.glob("cluster.db*"))
    if stored > _DATABASE_BASE_BYTES + jobs * _DATABASE_BYTES_PER_JOB:
        wrong.append(f"the database has {stored >> 10} kB after {jobs} jobs")
    return wrong


def check_stopped(site: Site) -> list[str]:
    """Check a stopped server for leftover processes, mounts, cgroups, a damaged database, and tracebacks."""
    wrong = []
    cluster = site.cluster
    status = cluster.terminate()
    if status:
        wrong.append(f"the server ended with {status}")
    try:
        eventually(lambda: not cluster.processes(), "", 30)
    except AssertionError:
        wrong.append(f"leak: processes after the end {list(cluster.processes().values())}")
    mounts = [
        line.split()[4]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if line.split()[4].startswith(f"{site.disk}/")
    ]
    wrong += [f"leak: {what}" for what in (*mounts, *cgroups(cluster.home))]
    checked = run_paicluster("check-store", "--home", str(cluster.home))
    if checked.returncode:
        wrong.append(f"check-store: {checked.stdout} {checked.stderr}")
    log = cluster.log.read_text()
    if "Traceback" in log:
        wrong.append(f"the server's log has a traceback: {log[log.index('Traceback') - 300 :][:2500]}")
    return wrong


def cgroups(home: Path) -> list[str]:
    """Cgroups of a home's tasks, the innermost first."""
    name = "pai-" + hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]
    return [folder for folder, _, _ in os.walk("/sys/fs/cgroup", topdown=False) if name in folder]


def _memory_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
