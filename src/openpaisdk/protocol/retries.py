"""Whether an ended attempt is tried again, whether that counts against the user, and how long to wait."""

from __future__ import annotations

from dataclasses import dataclass

MAX_PLATFORM_STREAK = 20
"""So many uncounted retries in a row, and the next one is refused: retries must end."""
BACKOFF_MIN_S = 1.0
BACKOFF_MAX_S = 300.0
UNLIMITED_BACKOFF_MAX_S = 30.0
"""Longest wait between counted retries that nothing else limits (max -1 and -2)."""
CONFLICT_DELAY_RANGE_S = (60.0, 900.0)

ALWAYS = -2
"""Retry also after a success."""
ALWAYS_ON_FAILURE = -1

_NEVER = {
    -210: "the job was stopped",
    -220: "the attempt was stopped because it was complete",
    -230: "the task was deleted",
}
# The table of exit codes calls these transient; but a signal that we did not send came from the user's side
# (a kill of its own, the memory limit of its own program), and a retry that costs nothing would never end.
_SIGNALS = frozenset((130, 131, 137, 143))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """``fancy``: retry what is transient without counting it, do not retry what is permanent."""

    max_retries: int
    fancy: bool

    @classmethod
    def of_job(cls, job_retry_count: int) -> RetryPolicy:
        return cls(job_retry_count, job_retry_count != ALWAYS)

    @classmethod
    def of_task(cls, task_retry_count: int, *, gang: bool) -> RetryPolicy:
        """Tasks of a gang stand and fall together: only the job is retried."""
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
        """The counts of an attempt that did real work before the platform ended it: the streak is broken."""
        return RetryCounts(self.total, self.accountable, 0)


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """``counts`` are those of the next attempt when ``retry``, else unchanged."""

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
    jitter: float = 0.5,
) -> RetryDecision:
    """What follows an attempt that ended with ``exit_code``.

    ``by_platform`` says whose doing the end was where the caller knows it; None asks the table of exit codes.
    ``jitter`` in 0..1 is the caller's random number: it places a conflict's delay between 60 and 900 s.
    """
    if exit_code in _NEVER:
        return _no(counts, _NEVER[exit_code])
    if policy.fancy and exit_code != 0:
        behavior = _behavior(exit_code, by_platform)
        if behavior == "PERMANENT":
            return _no(counts, f"exit code {exit_code} would come again")
        if behavior in ("TRANSIENT", "TRANSIENT_CONFLICT"):
            return _uncounted(counts, exit_code, conflict=behavior == "TRANSIENT_CONFLICT", jitter=jitter)
    if policy.max_retries == ALWAYS:
        return _counted(counts, "the job is retried whatever happens", unlimited=True)
    if exit_code == 0:
        return _no(counts, "it succeeded")
    if policy.max_retries == ALWAYS_ON_FAILURE:
        return _counted(counts, "failures are retried without limit", unlimited=True)
    if counts.accountable < policy.max_retries:
        return _counted(counts, f"retry {counts.accountable + 1} of {policy.max_retries}", unlimited=False)
    if policy.max_retries <= 0:
        return _no(counts, "no retries were asked for")
    return _no(counts, f"all {policy.max_retries} retries are used")


def _behavior(exit_code: int, by_platform: bool | None) -> str:
    if by_platform:
        return "TRANSIENT"
    if exit_code in _SIGNALS:
        return "UNKNOWN"
    from openpaisdk.protocol.exit_codes import exit_spec

    behavior = exit_spec(exit_code).behavior
    return "UNKNOWN" if by_platform is False and behavior.startswith("TRANSIENT") else behavior


def _no(counts: RetryCounts, reason: str) -> RetryDecision:
    return RetryDecision(False, False, 0.0, reason, counts)


def _counted(counts: RetryCounts, reason: str, *, unlimited: bool) -> RetryDecision:
    delay = min(UNLIMITED_BACKOFF_MAX_S, _doubling(counts.accountable)) if unlimited else 0.0
    after = RetryCounts(counts.total + 1, counts.accountable + 1, 0)
    return RetryDecision(True, True, delay, reason, after)


def _uncounted(counts: RetryCounts, exit_code: int, *, conflict: bool, jitter: float) -> RetryDecision:
    if counts.platform_streak >= MAX_PLATFORM_STREAK:
        return _no(
            counts,
            f"the platform ended it {counts.platform_streak + 1} times in a row (now exit code {exit_code})",
        )
    if conflict:
        low, high = CONFLICT_DELAY_RANGE_S
        delay = low + (high - low) * min(max(jitter, 0.0), 1.0)
        reason = "it competed with other jobs for the same resources"
    else:
        delay = _doubling(counts.platform_streak)
        reason = "the platform ended it; not counted"
    after = RetryCounts(counts.total + 1, counts.accountable, counts.platform_streak + 1)
    return RetryDecision(True, False, delay, reason, after)


def _doubling(step: int) -> float:
    # The exponent is capped first: 2.0 ** 5000 overflows.
    return min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2.0 ** min(step, 16))
