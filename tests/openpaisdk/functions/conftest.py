from support.python_session import here_fixture, server_fixture, whose_fixture  # noqa: F401
