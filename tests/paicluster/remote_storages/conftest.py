from support.coroutine_tests import pytest_pyfunc_call  # noqa: F401
from support.server_fixture import module_cluster  # noqa: F401
