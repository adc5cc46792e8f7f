"""States, completion policy and retry policy, over random orders of events."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paiprotocol.jobs import (
    RetryCounts,
    RetryPolicy,
    RolePolicy,
    SubState,
    TaskOutcome,
    attempt_state,
    debug_id,
    decide,
    decide_retry,
    framework_name,
    job_state,
    split_framework,
)
from paiprotocol.jobs.completion import Verdict, is_decided, role_policy
from paiprotocol.jobs.exit_codes import exit_specs
from paiprotocol.jobs.retries import CONTINUES_IN_RETRY, MAX_PLATFORM_STREAK

codes = st.one_of(st.none(), st.sampled_from([0, 1, 255, 137, -210, -220, -230, -1100]))


@pytest.mark.parametrize(
    ("sub_state", "code", "job", "attempt"),
    [
        ("AttemptCreationPending", None, "WAITING", "WAITING"),
        ("AttemptCreationRequested", None, "WAITING", "WAITING"),
        ("AttemptPreparing", None, "WAITING", "WAITING"),
        ("AttemptRunning", None, "RUNNING", "RUNNING"),
        ("AttemptDeletionPending", 255, "RUNNING", "RUNNING"),
        ("AttemptDeletionRequested", -210, "STOPPING", "STOPPING"),
        ("AttemptDeleting", -220, "STOPPING", "STOPPING"),
        ("AttemptCompleted", 0, "RUNNING", "SUCCEEDED"),
        ("AttemptCompleted", 255, "RUNNING", "FAILED"),
        ("AttemptCompleted", -210, "STOPPING", "STOPPED"),
        ("Completed", 0, "SUCCEEDED", "SUCCEEDED"),
        ("Completed", -220, "STOPPED", "STOPPED"),
        ("Completed", 255, "FAILED", "FAILED"),
        ("Completed", None, "FAILED", "FAILED"),
        ("something else", 0, "UNKNOWN", "UNKNOWN"),
    ],
)
def test_state_from_sub_state_and_exit_code(sub_state, code, job, attempt):
    assert job_state(sub_state, code) == job
    assert attempt_state(sub_state, code) == attempt


@given(st.sampled_from(SubState), codes)
def test_finished_job_has_a_finished_attempt(sub_state, code):
    ended = {"SUCCEEDED", "FAILED", "STOPPED"}
    assert sub_state == sub_state.value
    if job_state(sub_state, code) in ended:
        assert attempt_state(sub_state, code) == job_state(sub_state, code)
    else:
        assert sub_state != "Completed"


# ASCII: for others hypothesis reads all of Unicode first, for seconds.
@given(st.from_regex(re.compile(r"\A[\w.-]+\Z", re.ASCII)), st.from_regex(r"\A[a-zA-Z0-9_~-]+\Z"))
def test_framework_name_splits_at_the_first_tilde(user, job):
    name = framework_name(user, job)
    assert split_framework(name) == (user, job)
    assert len(debug_id(name)) == 32


def test_bare_name_has_a_stripped_id():
    assert split_framework("My-Job_1") == ("", "My-Job_1")
    assert debug_id("My-Job_1") == "myjob1"


# --- completion ---


@st.composite
def attempts(draw):
    """Roles with policies, and the outcomes of some of their tasks at random times."""
    roles = []
    for number in range(draw(st.integers(1, 3))):
        instances = draw(st.integers(1, 4))
        roles.append(
            RolePolicy(
                f"r{number}",
                instances,
                draw(st.sampled_from([-1, 1, 2, instances])),
                draw(st.sampled_from([-1, 1, instances])),
            )
        )
    tasks = [(role.name, index) for role in roles for index in range(role.instances)]
    done = draw(st.lists(st.sampled_from(tasks), unique=True))
    outcomes = [
        TaskOutcome(name, index, draw(st.sampled_from([0, 0, 1, 255, 137])), draw(st.integers(0, 5)))
        for name, index in done
    ]
    return roles, outcomes


@given(attempts(), st.randoms())
def test_verdict_does_not_depend_on_outcome_order(attempt, random):
    roles, outcomes = attempt
    shuffled = list(outcomes)
    random.shuffle(shuffled)
    assert decide(roles, outcomes, stop_requested=False) == decide(roles, shuffled, stop_requested=False)


@given(attempts())
def test_verdict_does_not_change_with_later_outcomes(attempt):
    roles, outcomes = attempt
    order = {role.name: place for place, role in enumerate(roles)}
    outcomes.sort(key=lambda o: (o.completed_ms, order[o.role], o.index))
    earlier = None
    for count in range(len(outcomes) + 1):
        verdict = decide(roles, outcomes[:count], stop_requested=False)
        if earlier is not None and earlier.trigger_role is not None:
            assert verdict == earlier
        earlier = verdict


@given(attempts())
def test_attempt_is_active_until_a_count_is_reached_or_all_complete(attempt):
    roles, outcomes = attempt
    verdict = decide(roles, outcomes, stop_requested=False)
    reached = False
    for role in roles:
        mine = [o for o in outcomes if o.role == role.name]
        failed = sum(o.exit_code != 0 for o in mine)
        reached |= 0 < role.min_failed <= failed or 0 < role.min_succeeded <= len(mine) - failed
    everything = len(outcomes) == sum(role.instances for role in roles)
    assert (verdict is None) == (not reached and not everything)
    if verdict and verdict.inherited:
        trigger = next(
            o for o in outcomes if (o.role, o.index) == (verdict.trigger_role, verdict.trigger_index)
        )
        assert trigger.exit_code == verdict.exit_code


@given(attempts())
def test_is_decided_agrees_with_decide(attempt):
    roles, outcomes = attempt
    failed = Counter(o.role for o in outcomes if o.exit_code)
    succeeded = Counter(o.role for o in outcomes if not o.exit_code)
    decided = decide(roles, outcomes, stop_requested=False) is not None
    assert is_decided(roles, failed, succeeded) == decided


@given(attempts())
def test_stop_request_takes_precedence(attempt):
    verdict = decide(*attempt, stop_requested=True)
    assert verdict is not None
    assert (verdict.exit_code, verdict.inherited) == (-210, False)
    assert verdict.diagnostics == "User has requested to stop the Framework"


def test_trigger_messages_are_openpais():
    one = [role_policy("worker", 2, None, None)]
    failed = decide(one, [TaskOutcome("worker", 1, 255, 5)], stop_requested=False)
    assert failed is not None
    assert failed.trigger_message == "FailedTaskCount 1 has reached MinFailedTaskCount 1 in the TaskRole"
    assert (failed.exit_code, failed.trigger_role, failed.trigger_index) == (255, "worker", 1)
    both = [TaskOutcome("worker", 0, 0, 1), TaskOutcome("worker", 1, 0, 2)]
    succeeded = decide(one, both, stop_requested=False)
    assert succeeded is not None
    assert (
        succeeded.trigger_message
        == "SucceededTaskCount 2 has reached MinSucceededTaskCount 2 in the TaskRole"
    )
    assert (succeeded.exit_code, succeeded.diagnostics) == (0, "Pod succeeded")
    waits = [RolePolicy("worker", 2, -1, -1)]
    all_done = decide(
        waits, [TaskOutcome("worker", 0, 1, 1), TaskOutcome("worker", 1, 0, 2)], stop_requested=False
    )
    assert all_done is not None
    assert all_done.exit_code == 0
    assert all_done.trigger_message == (
        "CompletedTaskCount 2 has reached TotalTaskCount 2 and no user specified conditions in "
        "FrameworkAttemptCompletionPolicy have ever been triggered"
    )


def test_one_succeeded_role_completes_the_attempt():
    roles = [role_policy("master", 1, None, None), role_policy("worker", 4, None, None)]
    verdict = decide(roles, [TaskOutcome("master", 0, 0, 1)], stop_requested=False)
    assert verdict is not None
    assert (verdict.exit_code, verdict.trigger_role) == (0, "master")


@pytest.mark.parametrize("absent", [None, 0])
def test_default_counts_are_one_failure_and_all_instances(absent):
    assert role_policy("r", 3, absent, absent) == RolePolicy("r", 3, 1, 3)
    assert role_policy("r", 3, -1, -1) == RolePolicy("r", 3, -1, -1)


# --- retries ---

exit_codes = st.one_of(st.sampled_from([spec.code for spec in exit_specs()]), st.integers(-9000, 300))
policies = st.builds(RetryPolicy.of_job, st.integers(-2, 5))
counts = st.builds(
    RetryCounts, st.integers(50, 60), st.integers(0, 8), st.integers(0, MAX_PLATFORM_STREAK + 2)
)


@given(policies, counts, exit_codes, st.sampled_from([None, True, False]), st.floats(0, 1))
def test_counts_and_delays_of_every_decision(policy, before, code, by_platform, jitter):
    decision = decide_retry(policy, before, code, by_platform=by_platform, jitter=jitter)
    assert decision.reason
    after = decision.counts
    if not decision.retry:
        assert after == before
        return
    assert after.total == before.total + 1
    assert after.accountable == before.accountable + decision.counted
    assert after.platform_streak == (0 if decision.counted else before.platform_streak + 1)
    assert 0 <= decision.delay_s <= 900
    assert decision.counted or decision.delay_s >= 1


@given(policies, counts, st.sampled_from([-210, -220, -230]), st.sampled_from([None, True, False]))
def test_stopped_attempt_is_never_retried(policy, before, code, by_platform):
    assert not decide_retry(policy, before, code, by_platform=by_platform).retry


@pytest.mark.slow
@given(st.integers(0, 6), st.lists(st.tuples(exit_codes, st.booleans()), min_size=200, max_size=200))
def test_retries_end(max_retries, ends):
    policy, now, streaks = RetryPolicy.of_job(max_retries), RetryCounts(), 0
    for code, platform in ends:
        decision = decide_retry(policy, now, code or 1, by_platform=True if platform else None)
        if not decision.retry:
            break
        streaks += decision.counted
        now = decision.counts
    else:
        assert streaks <= max_retries and now.total <= (max_retries + 1) * (MAX_PLATFORM_STREAK + 1)
        raise AssertionError("never ended")
    assert now.accountable <= max_retries


def test_failure_is_retried_up_to_the_maximum():
    policy, now = RetryPolicy.of_job(2), RetryCounts()
    for _ in range(2):
        decision = decide_retry(policy, now, 255)
        assert (decision.retry, decision.counted) == (True, True)
        now = decision.counts
    last = decide_retry(policy, now, 255)
    assert not last.retry
    assert last.reason == "all 2 retries are used"


@pytest.mark.parametrize("max_retries", [10, -1, -2])
def test_counted_retries_back_off(max_retries):
    policy, now, delays = RetryPolicy.of_job(max_retries), RetryCounts(), []
    for _ in range(10):
        decision = decide_retry(policy, now, 255)
        delays.append(decision.delay_s)
        now = decision.counts
    assert delays == [0, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    assert decide_retry(policy, RetryCounts(9, 9), 255, made_progress=True).delay_s == 0


def test_uncounted_retries_back_off_and_end():
    policy, now, delays = RetryPolicy.of_job(0), RetryCounts(), []
    while (decision := decide_retry(policy, now, -1001)).retry:
        assert not decision.counted
        delays.append(decision.delay_s)
        now = decision.counts
    assert delays[:4] == [1, 2, 4, 8]
    assert delays[-1] == 300
    assert len(delays) == MAX_PLATFORM_STREAK
    assert "in a row" in decision.reason
    assert decide_retry(policy, now.after_progress(), -1001).retry


@pytest.mark.parametrize("code", [130, 131, 137, 143])
def test_signal_not_sent_by_the_platform_is_counted(code):
    assert not decide_retry(RetryPolicy.of_job(0), RetryCounts(), code).retry
    counted = decide_retry(RetryPolicy.of_job(1), RetryCounts(), code)
    assert (counted.retry, counted.counted) == (True, True)
    ours = decide_retry(RetryPolicy.of_job(0), RetryCounts(), code, by_platform=True)
    assert (ours.retry, ours.counted) == (True, False)


@pytest.mark.parametrize("policy", [RetryPolicy(0, True), RetryPolicy(0, False), RetryPolicy(3, True)])
def test_task_that_saved_its_state_is_retried(policy) -> None:
    decision = decide_retry(policy, RetryCounts(), CONTINUES_IN_RETRY, by_platform=False)
    assert decision.retry and not decision.counted and "saved its state" in decision.reason
    often = RetryCounts(MAX_PLATFORM_STREAK, 0, MAX_PLATFORM_STREAK)
    assert not decide_retry(policy, often, CONTINUES_IN_RETRY).retry
    assert decide_retry(policy, often, CONTINUES_IN_RETRY, made_progress=True).retry


def test_conflict_delay_is_one_to_fifteen_minutes():
    delays = [decide_retry(RetryPolicy.of_job(0), RetryCounts(), 251, jitter=j).delay_s for j in (0, 0.5, 1)]
    assert delays == [60, 480, 900]


def test_permanent_failure_is_not_retried():
    assert not decide_retry(RetryPolicy.of_job(5), RetryCounts(), 232).retry
    assert not decide_retry(RetryPolicy.of_job(-1), RetryCounts(), 232).retry
    assert decide_retry(RetryPolicy.of_job(-2), RetryCounts(), 232).retry
    assert decide_retry(RetryPolicy.of_job(-2), RetryCounts(), 0).retry
    assert not decide_retry(RetryPolicy.of_job(-1), RetryCounts(), 0).retry
    assert decide_retry(RetryPolicy.of_job(-1), RetryCounts(9, 9), 255).delay_s == 30


def test_tasks_of_a_gang_are_not_retried_alone():
    assert not decide_retry(RetryPolicy.of_task(3, gang=True), RetryCounts(), -1001).retry
    assert decide_retry(RetryPolicy.of_task(3, gang=False), RetryCounts(), 255).counted


NO_RETRY, COUNTED, UNCOUNTED = (False, False), (True, True), (True, False)


@pytest.mark.parametrize(
    ("max_retries", "code", "expected", "reason"),
    [
        (5, -210, NO_RETRY, "the job was stopped"),
        (5, -220, NO_RETRY, "the attempt was stopped because it was complete"),
        (5, -230, NO_RETRY, "the task was deleted"),
        (0, 247, UNCOUNTED, "it saved its state to continue"),
        (5, 232, NO_RETRY, "exit code 232 is permanent, a retry would fail as well"),
        (0, -1001, UNCOUNTED, "the platform stopped it; not counted"),
        (0, 251, UNCOUNTED, "it competed with other jobs for the same resources"),
        (-2, 0, COUNTED, "the job is always retried"),
        (-2, -1001, COUNTED, "the job is always retried"),
        (5, 0, NO_RETRY, "it succeeded"),
        (-1, 255, COUNTED, "failures are retried without limit"),
        (5, 255, COUNTED, "retry 3 of 5"),
        (2, 255, NO_RETRY, "all 2 retries are used"),
        (1, 255, NO_RETRY, "all 1 retries are used"),
        (0, 255, NO_RETRY, "no retries were requested"),
    ],
)
def test_reason_of_every_decision(max_retries, code, expected, reason):
    decision = decide_retry(RetryPolicy.of_job(max_retries), RetryCounts(7, 2, 3), code)
    assert ((decision.retry, decision.counted), decision.reason) == (expected, reason)
    if not decision.retry:
        assert decision.delay_s == 0.0


def test_platform_failures_in_a_row_are_counted_in_the_reason():
    often = RetryCounts(30, 1, MAX_PLATFORM_STREAK)
    last = decide_retry(RetryPolicy.of_job(5), often, -1001)
    assert last.reason == "the platform stopped it 21 times in a row (exit code -1001)"
    assert decide_retry(RetryPolicy.of_job(5), RetryCounts(30, 1, MAX_PLATFORM_STREAK - 1), -1001).retry
    assert often.platform == 29
    assert often.after_progress() == RetryCounts(30, 1, 0)
    assert RetryCounts() == RetryCounts(0, 0, 0)


def test_delay_of_a_saved_state_grows_with_the_streak():
    delays = [
        decide_retry(
            RetryPolicy.of_job(0), RetryCounts(9, 0, 3), CONTINUES_IN_RETRY, made_progress=made
        ).delay_s
        for made in (False, True)
    ]
    assert delays == [8, 1]


def test_jitter_outside_its_range_is_the_next_in_it():
    policy = RetryPolicy.of_job(0)
    delays = [decide_retry(policy, RetryCounts(), 251, jitter=jitter).delay_s for jitter in (-1, 0.1, 2)]
    assert delays == [60, 144, 900]
    assert decide_retry(policy, RetryCounts(), 251).delay_s == 480


def test_delay_of_many_retries_does_not_overflow():
    policy = RetryPolicy.of_job(-1)
    assert decide_retry(policy, RetryCounts(5000, 5000), 255).delay_s == 30
    assert decide_retry(policy, RetryCounts(19, 0, 19), -1001).delay_s == 300


@pytest.mark.parametrize(
    ("by_platform", "code", "expected"),
    [
        (True, 255, UNCOUNTED),
        (True, 232, UNCOUNTED),
        (False, -1001, COUNTED),
        (False, 251, COUNTED),
        (False, 232, NO_RETRY),
        (False, 255, COUNTED),
        (None, 137, COUNTED),
    ],
)
def test_cause_that_the_caller_knows_replaces_that_of_the_table(by_platform, code, expected):
    for policy in (RetryPolicy.of_job(3), RetryPolicy.of_task(3, gang=False)):
        decision = decide_retry(policy, RetryCounts(), code, by_platform=by_platform)
        assert (decision.retry, decision.counted) == expected


def test_outcome_of_an_unknown_role_is_an_error():
    with pytest.raises(ValueError, match=r"^outcome of an unknown role: other$"):
        decide([RolePolicy("main", 1, 1, 1)], [TaskOutcome("other", 0, 0, 0)], stop_requested=False)


def test_of_two_outcomes_of_a_task_the_first_counts():
    waits = [RolePolicy("main", 2, 1, 2)]
    failed, succeeded = TaskOutcome("main", 0, 9, 5), TaskOutcome("main", 0, 0, 4)
    for outcomes in ([failed, succeeded], [succeeded, failed]):
        assert decide(waits, outcomes, stop_requested=False) is None
    at_once = TaskOutcome("main", 0, 0, 5)
    for outcomes in ([failed, at_once], [at_once, failed]):
        assert decide(waits, outcomes, stop_requested=False) is None
    # The same outcome twice is one task.
    assert decide([RolePolicy("main", 2, -1, -1)], [failed, failed], stop_requested=False) is None


def test_trigger_is_the_first_by_time_then_role_then_index():
    roles = [RolePolicy("b", 2, 1, 2), RolePolicy("a", 2, 1, 2)]

    def trigger(*outcomes):
        verdict = decide(roles, outcomes, stop_requested=False)
        assert verdict is not None
        return verdict.trigger_role, verdict.trigger_index, verdict.exit_code

    assert trigger(TaskOutcome("b", 0, 1, 9), TaskOutcome("a", 1, 2, 3)) == ("a", 1, 2)
    assert trigger(TaskOutcome("a", 0, 1, 5), TaskOutcome("b", 1, 2, 5)) == ("b", 1, 2)
    assert trigger(TaskOutcome("a", 1, 1, 5), TaskOutcome("a", 0, 2, 5)) == ("a", 0, 2)
    # A role without such a number triggers nothing.
    roles = [RolePolicy("b", 2, -1, 1), RolePolicy("a", 2, 1, -1)]
    assert trigger(TaskOutcome("b", 0, 9, 1), TaskOutcome("b", 1, 0, 2)) == ("b", 1, 0)
    assert trigger(TaskOutcome("a", 0, 0, 1), TaskOutcome("a", 1, 9, 2)) == ("a", 1, 9)


def test_verdicts_in_full():
    roles = [RolePolicy("main", 3, 2, -1)]
    failures = [TaskOutcome("main", index, 7, index) for index in range(2)]
    message = "FailedTaskCount 2 has reached MinFailedTaskCount 2 in the TaskRole"
    diagnostics = "Task main[1] failed with exit code 7"
    verdict = decide(roles, failures, stop_requested=False)
    assert verdict == Verdict(7, message, "main", 1, True, diagnostics)
    assert decide(roles, failures[:1], stop_requested=False) is None
    stopped = decide(roles, failures, stop_requested=True)
    assert stopped == Verdict(-210, "", None, None, False, "User has requested to stop the Framework")
    successes = [TaskOutcome("main", index, 0, index) for index in range(3)]
    complete = decide(roles, successes, stop_requested=False)
    assert complete is not None
    assert (complete.inherited, complete.trigger_role, complete.trigger_index) == (False, None, None)
    assert (complete.exit_code, complete.diagnostics) == (0, "Pod succeeded")
    assert not is_decided(roles, {"main": 1}, {"main": 1})
    assert is_decided(roles, {"main": 1}, {"main": 2}), "all have completed"
    assert is_decided([RolePolicy("main", 3, -1, 2)], {}, {"main": 2})
    assert not is_decided([RolePolicy("main", 3, -1, -1)], {"other": 0}, {"main": 2})
