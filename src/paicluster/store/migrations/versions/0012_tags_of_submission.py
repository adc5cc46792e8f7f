"""Jobs get the tags that they were submitted with, which were not stored."""

from __future__ import annotations

import json
from typing import Any

import yaml
from alembic import op

revision = "0012"
down_revision = "0011"

_MAX_LENGTH = 255


def upgrade() -> None:
    conn = op.get_bind()
    # A job in JSON is stored once, as its configuration.
    rows = conn.exec_driver_sql(
        "SELECT jobs.id, jobs.tags, jobs.summary, jobs.submission_ms,"
        " CASE job_specs.job WHEN '' THEN job_specs.config ELSE job_specs.job END"
        " FROM job_specs JOIN jobs ON jobs.id = job_specs.job_id"
        " WHERE instr(job_specs.job || job_specs.config, 'tags') > 0"
    )
    changes = []
    for job_id, stored, summary, submission_ms, spec in rows:
        known = set(json.loads(stored))
        if added := _submitted_tags(spec) - known:
            changes.append((job_id, submission_ms, sorted(known | added), sorted(added), summary))
    for job_id, submission_ms, tags, new_tags, summary in changes:
        conn.exec_driver_sql(
            "UPDATE jobs SET tags = ?, summary = ? WHERE id = ?",
            (_encode(tags), _encode({**json.loads(summary), "tags": tags}), job_id),
        )
        for tag in new_tags:
            conn.exec_driver_sql("INSERT INTO job_tags VALUES (?, ?, ?)", (job_id, tag, submission_ms))


def _submitted_tags(spec: str) -> set[str]:
    """``extras.tags`` of a job; without those that no list can be filtered by."""
    job = _parse(spec)
    extras = job.get("extras") if isinstance(job, dict) else None
    tags = extras.get("tags") if isinstance(extras, dict) else None
    return {tag for tag in tags if _is_tag(tag)} if isinstance(tags, list) else set()


def _parse(spec: str) -> object:
    """A stored job; None if it is not one. What cannot be parsed must not keep the server from its start."""
    try:
        return json.loads(spec)
    except (ValueError, RecursionError):
        pass
    try:
        # {key: value} is YAML. Every plain value as text: in jobs 2026-01-02 and yes are texts, and a number
        # was refused as a tag.
        return yaml.load(spec, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    except (yaml.YAMLError, RecursionError):
        return None


def _is_tag(value: object) -> bool:
    return (
        isinstance(value, str) and 0 < len(value) <= _MAX_LENGTH and "," not in value and bool(value.strip())
    )


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
