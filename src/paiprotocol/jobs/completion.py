"""Completion policy: when an attempt of a job is complete, and with which exit code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

STOPPED_BY_USER = -210
STOPPED_TO_COMPLETE = -220
STOP_DIAGNOSTICS = "User has requested to stop the Framework"
COMPLETE_DIAGNOSTICS = "Stop to complete current FrameworkAttempt"
"""Diagnostics of tasks that were still running when their attempt completed (exit code -220)."""
SUCCESS_DIAGNOSTICS = "Pod succeeded"


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """A completed task that will not be retried; exit code 0 is success."""

    role: str
    index: int
    exit_code: int
    completed_ms: int


@dataclass(frozen=True, slots=True)
class RolePolicy:
    """Numbers of failed and of succeeded tasks of a role that complete the attempt; -1: none does."""

    name: str
    instances: int
    min_failed: int
    min_succeeded: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of an attempt. ``inherited``: the exit code is that of the task that triggered completion."""

    exit_code: int
    trigger_message: str
    trigger_role: str | None
    trigger_index: int | None
    inherited: bool
    diagnostics: str


def role_policy(name: str, instances: int, min_failed: int | None, min_succeeded: int | None) -> RolePolicy:
    """Policy from the fields of a job: absent, null and 0 mean one failure, or success of all instances."""
    return RolePolicy(name, instances, min_failed or 1, min_succeeded or instances)


def is_decided(roles: Sequence[RolePolicy], failed: Mapping[str, int], succeeded: Mapping[str, int]) -> bool:
    """Whether these counts per role complete the attempt; cheaper than :func:`decide`."""
    completed = sum(failed.values()) + sum(succeeded.values())
    return _is_triggered(roles, failed, succeeded) or completed >= sum(policy.instances for policy in roles)


def decide(
    roles: Sequence[RolePolicy], outcomes: Iterable[TaskOutcome], *, stop_requested: bool
) -> Verdict | None:
    """The verdict on an attempt, or None while it is active.

    The order of ``outcomes`` does not matter: they are evaluated by completion time, then role order, then
    task index. A stop request takes precedence over everything not yet decided.
    """
    if stop_requested:
        return Verdict(STOPPED_BY_USER, "", None, None, False, STOP_DIAGNOSTICS)
    policies = {policy.name: policy for policy in roles}
    done: dict[tuple[str, int], TaskOutcome] = {}
    for outcome in outcomes:
        if outcome.role not in policies:
            raise ValueError(f"outcome of an unknown role: {outcome.role}")
        key = (outcome.role, outcome.index)
        known = done.get(key)
        if known is None or _sort_key(outcome) < _sort_key(known):
            done[key] = outcome
    failed = dict.fromkeys(policies, 0)
    succeeded = dict.fromkeys(policies, 0)
    for outcome in done.values():
        (failed if outcome.exit_code else succeeded)[outcome.role] += 1
    if _is_triggered(roles, failed, succeeded):
        return _first_trigger(policies, done.values())
    total = sum(policy.instances for policy in policies.values())
    if len(done) < total:
        return None
    message = (
        f"CompletedTaskCount {len(done)} has reached TotalTaskCount {total} and no user specified conditions "
        "in FrameworkAttemptCompletionPolicy have ever been triggered"
    )
    return Verdict(0, message, None, None, False, SUCCESS_DIAGNOSTICS)


def _is_triggered(
    roles: Sequence[RolePolicy], failed: Mapping[str, int], succeeded: Mapping[str, int]
) -> bool:
    return any(
        failed.get(role.name, 0) >= role.min_failed > 0
        or succeeded.get(role.name, 0) >= role.min_succeeded > 0
        for role in roles
    )


def _sort_key(outcome: TaskOutcome) -> tuple[int, int]:
    return outcome.completed_ms, outcome.exit_code


def _first_trigger(policies: dict[str, RolePolicy], outcomes: Iterable[TaskOutcome]) -> Verdict:
    order = {name: position for position, name in enumerate(policies)}
    failed = dict.fromkeys(policies, 0)
    succeeded = dict.fromkeys(policies, 0)
    for outcome in sorted(outcomes, key=lambda o: (o.completed_ms, order[o.role], o.index)):
        policy = policies[outcome.role]
        if outcome.exit_code:
            count = failed[outcome.role] = failed[outcome.role] + 1
            if count < policy.min_failed or policy.min_failed < 1:
                continue
            message = (
                f"FailedTaskCount {count} has reached MinFailedTaskCount {policy.min_failed} in the TaskRole"
            )
            diagnostics = f"Task {outcome.role}[{outcome.index}] failed with exit code {outcome.exit_code}"
        else:
            count = succeeded[outcome.role] = succeeded[outcome.role] + 1
            if count < policy.min_succeeded or policy.min_succeeded < 1:
                continue
            threshold = policy.min_succeeded
            message = (
                f"SucceededTaskCount {count} has reached MinSucceededTaskCount {threshold} in the TaskRole"
            )
            diagnostics = SUCCESS_DIAGNOSTICS
        return Verdict(outcome.exit_code, message, outcome.role, outcome.index, True, diagnostics)
    raise AssertionError("the counts trigger completion, but no single outcome does")
