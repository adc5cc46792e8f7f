"""Groups, their members, and virtual clusters that change at run time."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    groups = op.create_table(
        "user_groups",
        sa.Column("groupname", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("external_name", sa.Text(), nullable=False),
        sa.Column("extension", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("groupname"),
    )
    op.create_table(
        "group_members",
        sa.Column("username", sa.Text(), nullable=False),
        sa.Column("groupname", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["username"], ["users.username"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["groupname"], ["user_groups.groupname"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("username", "groupname"),
    )
    op.create_index("group_members_by_group", "group_members", ["groupname", "username"], unique=False)
    op.create_table(
        "virtual_clusters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cpu", sa.Integer(), nullable=True),
        sa.Column("memory_mb", sa.Integer(), nullable=True),
        sa.Column("gpu", sa.Integer(), nullable=True),
        sa.Column("capacity", sa.Float(), nullable=True),
        sa.Column("max_capacity", sa.Float(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.bulk_insert(groups, [_group("default", "group for default vc", False), _group("admingroup", "", True)])
    # Existing users become members of `default`, administrators also of `admingroup`.
    op.execute("INSERT INTO group_members SELECT username, 'default' FROM users")
    op.execute("INSERT INTO group_members SELECT username, 'admingroup' FROM users WHERE admin")


def _group(name: str, description: str, admin: bool) -> dict[str, str]:
    acls = {"admin": admin, "virtualClusters": [] if admin else ["default"], "storageConfigs": []}
    extension = json.dumps({"acls": acls}, separators=(",", ":"))
    return {"groupname": name, "description": description, "external_name": "", "extension": extension}
