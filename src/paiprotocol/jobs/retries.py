"""Retry policy: whether a completed attempt is retried, whether that is counted, and the back-off."""

from __future__ import annotations

from dataclasses import dataclass

MAX_PLATFORM_STREAK = 20
"""Maximum of consecutive uncounted retries: retries must end."""
BACKOFF_MIN_S = 1.0
BACKOFF_MAX_S = 300.0
COUNTED_BACKOFF_MAX_S = 30.0
"""Maximum back-off of counted retries: a program that fails at once must not be a loop."""
CONFLICT_DELAY_RANGE_S = (60.0, 900.0)

ALWAYS = -2
"""Retry also after a success."""
ALWAYS_ON_FAILURE = -1

CONTINUES_IN_RETRY = 247
"""Exit code of a task that has saved its state to continue in the next attempt, like a function that has
written its checkpoint because its time is over."""

_NEVER = {
    -210: "the job was stopped",
    -220: "the attempt was stopped because it was complete",
    -230: "the task was deleted",
}
# The exit code table calls these transient; but a signal that the platform did not send came from the user's
# program (its own kill, its own memory limit), and uncounted retries of it would never end.
_SIGNALS = frozenset((130, 131, 137, 143))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to retry. ``fancy``: do not count retries of transient failures, do not retry permanent ones."""

    max_retries: int
    fancy: bool

    @classmethod
    def of_job(cls, job_retry_count: int) -> RetryPolicy:
        return cls(job_retry_count, job_retry_count != ALWAYS)

    @classmethod
    def of_task(cls, task_retry_count: int, *, gang: bool) -> RetryPolicy:
        """Policy of a task. Tasks of a gang are not retried alone, only the whole job is."""
        return cls(0, False) if gang else cls(task_retry_count, True)


@dataclass(frozen=True, slots=True)
class RetryCounts:
    """Retries so far. ``total`` is also the id of the current attempt."""

    total: int = 0
    accountable: int = 0
    platform_streak: int = 0

    @property
    def platform(self) -> int:
        return self.total - self.accountable

    def after_progress(self) -> RetryCounts:
        """Counts after an attempt that made progress before the platform stopped it: resets the streak."""
        return RetryCounts(self.total, self.accountable, 0)


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Decision on a retry. ``counts``: those of the next attempt if ``retry``, else unchanged."""

    retry: bool
    counted: bool
    delay_s: float
    reason: str
    counts: RetryCounts


def decide_retry(
    policy: RetryPolicy,
    counts: RetryCounts,
    exit_code: int,
    *,
    by_platform: bool | None = None,
    made_progress: bool = False,
    jitter: float = 0.5,
) -> RetryDecision:
    """Whether and when to retry after an attempt that completed with ``exit_code``.

    ``made_progress``: the attempt ran for long, so that a counted retry starts at once.
    ``by_platform``: whether the platform caused the end, if the caller knows; None: use the exit code table.
    ``jitter`` in 0..1 is the caller's random number: it selects a conflict's delay between 60 and 900 s.
    """
    if exit_code in _NEVER:
        return _no_retry(counts, _NEVER[exit_code])
    if exit_code == CONTINUES_IN_RETRY:
        counts = counts.after_progress() if made_progress else counts
        return _uncounted(counts, exit_code, conflict=False, jitter=jitter)
    if policy.fancy and exit_code != 0:
        behavior = _behavior(exit_code, by_platform)
        if behavior == "PERMANENT":
            return _no_retry(counts, f"exit code {exit_code} is permanent, a retry would fail as well")
        if behavior in ("TRANSIENT", "TRANSIENT_CONFLICT"):
            return _uncounted(counts, exit_code, conflict=behavior == "TRANSIENT_CONFLICT", jitter=jitter)
    delay = 0.0 if made_progress else _counted_backoff_s(counts.accountable)
    if policy.max_retries == ALWAYS:
        return _counted(counts, "the job is always retried", delay)
    if exit_code == 0:
        return _no_retry(counts, "it succeeded")
    if policy.max_retries == ALWAYS_ON_FAILURE:
        return _counted(counts, "failures are retried without limit", delay)
    if counts.accountable < policy.max_retries:
        return _counted(counts, f"retry {counts.accountable + 1} of {policy.max_retries}", delay)
    if policy.max_retries <= 0:
        return _no_retry(counts, "no retries were requested")
    return _no_retry(counts, f"all {policy.max_retries} retries are used")


def _behavior(exit_code: int, by_platform: bool | None) -> str:
    if by_platform:
        return "TRANSIENT"
    if exit_code in _SIGNALS:
        return "UNKNOWN"
    from paiprotocol.jobs.exit_codes import exit_spec

    behavior = exit_spec(exit_code).behavior
    return "UNKNOWN" if by_platform is False and behavior.startswith("TRANSIENT") else behavior


def _no_retry(counts: RetryCounts, reason: str) -> RetryDecision:
    return RetryDecision(False, False, 0.0, reason, counts)


def _counted(counts: RetryCounts, reason: str, delay: float) -> RetryDecision:
    after = RetryCounts(counts.total + 1, counts.accountable + 1, 0)
    return RetryDecision(True, True, delay, reason, after)


def _uncounted(counts: RetryCounts, exit_code: int, *, conflict: bool, jitter: float) -> RetryDecision:
    if counts.platform_streak >= MAX_PLATFORM_STREAK:
        return _no_retry(
            counts,
            f"the platform stopped it {counts.platform_streak + 1} times in a row (exit code {exit_code})",
        )
    if conflict:
        low, high = CONFLICT_DELAY_RANGE_S
        delay = low + (high - low) * min(max(jitter, 0.0), 1.0)
        reason = "it competed with other jobs for the same resources"
    else:
        delay = _backoff_s(counts.platform_streak)
        continues = exit_code == CONTINUES_IN_RETRY
        reason = "it saved its state to continue" if continues else "the platform stopped it; not counted"
    after = RetryCounts(counts.total + 1, counts.accountable, counts.platform_streak + 1)
    return RetryDecision(True, False, delay, reason, after)


def _counted_backoff_s(retries: int) -> float:
    """The first retry starts at once, the next ones after 1, 2, 4, ... seconds."""
    return min(COUNTED_BACKOFF_MAX_S, _backoff_s(retries - 1)) if retries else 0.0


def _backoff_s(step: int) -> float:
    # The exponent is capped first: 2.0 ** 5000 overflows.
    return min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2.0 ** min(step, 16))
