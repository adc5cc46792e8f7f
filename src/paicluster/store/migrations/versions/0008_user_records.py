"""Records of users: registries, published files and certificates of PaddleCloud's clients."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "user_records",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("username", sa.Text(), sa.ForeignKey("users.username", ondelete="CASCADE"), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "username", "name"),
    )
    op.create_index("user_records_by_name", "user_records", ["kind", "name"])
