from support.coroutine_tests import pytest_pyfunc_call  # noqa: F401
from support.team_cluster import module_team  # noqa: F401
