"""Fixtures of the tests of the documentation."""

from support.cli_user import new_user_fixture, shared_user_fixture, user_fixture  # noqa: F401
