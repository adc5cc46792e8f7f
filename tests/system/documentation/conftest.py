"""Fixtures to run the code blocks of the documentation."""

from support.cli_user import new_user_fixture, shared_user_fixture, user_fixture  # noqa: F401
from support.python_session import here_fixture, whose_fixture  # noqa: F401
from support.storage_fixture import shared_workspace_fixture, workspace_fixture  # noqa: F401
