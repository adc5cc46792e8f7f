"""Fixtures to run the code blocks of the documentation."""

from support.cli_user import newcomer_fixture, person_fixture, shared_home_fixture  # noqa: F401
from support.python_session import here_fixture, whose_fixture  # noqa: F401
from support.storage_fixture import desk_fixture, shared_desk_fixture  # noqa: F401
