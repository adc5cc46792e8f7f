from support.cli_user import new_user_fixture, other_user_fixture  # noqa: F401
