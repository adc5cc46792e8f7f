from support.cli_user import newcomer_fixture, person_fixture, shared_home_fixture  # noqa: F401
