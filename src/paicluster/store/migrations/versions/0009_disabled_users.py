"""Column ``users.disabled_ms``: since when a user is disabled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("users", sa.Column("disabled_ms", sa.BigInteger()))
