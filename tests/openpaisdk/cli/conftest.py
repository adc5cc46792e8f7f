from support.cli_user import new_user_fixture, shared_user_fixture, user_fixture  # noqa: F401
from support.import_budget import settled_user_fixture  # noqa: F401
