"""Quotas of users and groups."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    _create("user_quotas", "username", "users.username")
    _create("group_quotas", "groupname", "user_groups.groupname")


def _create(table: str, owner: str, reference: str) -> None:
    op.create_table(
        table,
        sa.Column(owner, sa.Text(), sa.ForeignKey(reference, ondelete="CASCADE"), nullable=False),
        sa.Column("tasks", sa.Integer(), nullable=True),
        sa.Column("cpu", sa.Integer(), nullable=True),
        sa.Column("memory_mb", sa.BigInteger(), nullable=True),
        sa.Column("gpu", sa.Integer(), nullable=True),
        sa.Column("storage_bytes", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint(owner),
    )
