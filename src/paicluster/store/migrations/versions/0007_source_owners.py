"""Source archives have owners: the users who uploaded them, so far those whose jobs use them."""

from __future__ import annotations

import re

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_SHA256 = re.compile(r"sha256[\"']?\s*:\s*[\"']?([0-9a-f]{64})\b")


def upgrade() -> None:
    op.create_table(
        "source_owners",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("username", sa.Text(), sa.ForeignKey("users.username", ondelete="CASCADE"), nullable=False),
        sa.PrimaryKeyConstraint("sha256", "username"),
    )
    conn = op.get_bind()
    rows = conn.exec_driver_sql(
        "SELECT jobs.username, job_specs.config || ' ' || job_specs.job"
        " FROM job_specs JOIN jobs ON jobs.id = job_specs.job_id"
        " JOIN users ON users.username = jobs.username"
        " WHERE instr(job_specs.config || job_specs.job, 'sha256') > 0"
    )
    owners = {(sha256, username) for username, text in rows for sha256 in _SHA256.findall(text)}
    if owners:
        table = sa.table("source_owners", sa.column("sha256", sa.Text()), sa.column("username", sa.Text()))
        op.bulk_insert(table, [{"sha256": sha256, "username": username} for sha256, username in owners])
