from support.coroutine_tests import pytest_pyfunc_call  # noqa: F401
