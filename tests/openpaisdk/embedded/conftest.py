from support.cli_user import neighbour_fixture, newcomer_fixture  # noqa: F401
