"""When an attempt of a job is over, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

STOPPED_BY_USER = -210
STOPPED_TO_COMPLETE = -220
STOP_DIAGNOSTICS = "User has requested to stop the Framework"
COMPLETE_DIAGNOSTICS = "Stop to complete current FrameworkAttempt"
"""What the tasks say that still ran when their attempt completed (exit code -220)."""
SUCCESS_DIAGNOSTICS = "Pod succeeded"


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """A task that is over and will not be retried; exit code 0 is success."""

    role: str
    index: int
    exit_code: int
    completed_ms: int


@dataclass(frozen=True, slots=True)
class RolePolicy:
    """How many outcomes of a role decide the attempt; -1 means that no number does."""

    name: str
    instances: int
    min_failed: int
    min_succeeded: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of an attempt. ``inherited``: it is the trigger task's own exit, passed on."""

    exit_code: int
    trigger_message: str
    trigger_role: str | None
    trigger_index: int | None
    inherited: bool
    diagnostics: str


def role_policy(name: str, instances: int, min_failed: int | None, min_succeeded: int | None) -> RolePolicy:
    """A policy from what a job says: absent, null and 0 mean 1 failure, and success of all instances."""
    return RolePolicy(name, instances, min_failed or 1, min_succeeded or instances)


def is_decided(roles: Sequence[RolePolicy], failed: Mapping[str, int], succeeded: Mapping[str, int]) -> bool:
    """Whether so many ends of each role decide an attempt: :func:`decide` looks at every one of them."""
    ended = sum(failed.values()) + sum(succeeded.values())
    return _is_triggered(roles, failed, succeeded) or ended >= sum(policy.instances for policy in roles)


def decide(
    roles: Sequence[RolePolicy], outcomes: Iterable[TaskOutcome], *, stop_requested: bool
) -> Verdict | None:
    """The verdict on an attempt, or None while it goes on.

    The order of ``outcomes`` does not matter: they are weighed by the time they happened, then in the order
    of the roles and of the task indexes. A stop request wins over everything that is not yet decided.
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
        if known is None or _when(outcome) < _when(known):
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


def _when(outcome: TaskOutcome) -> tuple[int, int]:
    return outcome.completed_ms, outcome.exit_code


def _first_trigger(policies: dict[str, RolePolicy], outcomes: Iterable[TaskOutcome]) -> Verdict:
    order = {name: place for place, name in enumerate(policies)}
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
            wanted = policy.min_succeeded
            message = f"SucceededTaskCount {count} has reached MinSucceededTaskCount {wanted} in the TaskRole"
            diagnostics = SUCCESS_DIAGNOSTICS
        return Verdict(outcome.exit_code, message, outcome.role, outcome.index, True, diagnostics)
    raise AssertionError("counted a trigger that the walk did not find")
