"""Column ``job_specs.need`` is named ``resource_request``."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.alter_column("job_specs", "need", new_column_name="resource_request")
