"""Users keep job files to start from, for themselves or for a group."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "job_templates",
        sa.Column("username", sa.Text(), sa.ForeignKey("users.username", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("groupname", sa.Text(), sa.ForeignKey("user_groups.groupname", ondelete="SET NULL")),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("modified_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("username", "name"),
    )
    op.create_index("job_templates_by_group", "job_templates", ["groupname", "name"])
