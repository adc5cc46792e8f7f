"""Summary of a job in listings: OpenPAI's JSON, rendered when the job changes rather than when it is read."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

_encode = msgspec.json.Encoder().encode


def encode_tags(tags: Iterable[str]) -> str:
    """Tags as stored with a job: a sorted JSON array."""
    return _encode(sorted(set(tags))).decode()


def decode_tags(text: str) -> list[str]:
    return msgspec.json.decode(text, type=list[str])


def render_summary(
    *,
    debug_id: str,
    name: str,
    username: str,
    state: str,
    sub_state: str,
    execution_type: str,
    tags: str,
    retries: int,
    retries_user: int,
    retries_platform: int,
    retry_delay_s: float | None,
    submission_ms: int,
    created_ms: int,
    launched_ms: int | None,
    completed_ms: int | None,
    exit_code: int | None,
    vc: str,
    total_gpus: int,
    total_tasks: int,
    total_roles: int,
    priority: str | None,
) -> str:
    """The JobSummary of ``GET /api/v2/jobs``."""
    return _encode(
        {
            "debugId": debug_id,
            "name": name,
            "username": username,
            "state": state,
            "subState": sub_state,
            "executionType": execution_type,
            "tags": msgspec.Raw(tags.encode()),
            "retries": retries,
            "retryDetails": {"user": retries_user, "platform": retries_platform, "resource": 0},
            "retryDelayTime": None if retry_delay_s is None else math.ceil(retry_delay_s),
            "submissionTime": submission_ms,
            "createdTime": created_ms,
            # A job that never ran counts as launched when it ended, as in OpenPAI.
            "launchedTime": completed_ms if launched_ms is None else launched_ms,
            "completedTime": completed_ms,
            "appExitCode": exit_code,
            "virtualCluster": vc,
            "totalGpuNumber": total_gpus,
            "totalTaskNumber": total_tasks,
            "totalTaskRoleNumber": total_roles,
            "jobPriority": priority,
        }
    ).decode()
