"""For all tests: hypothesis settings, and which tests run in one worker, in which order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("support")

pytest_plugins = ["support.hadoop"]

# How long an example takes, or takes to be made, says more about the machine than about us.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# As many quick tests as one slow one takes time for.
_SLOW_WEIGHT = 20


# Before xdist reads the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that share something stay together in one worker; the longest groups start first.

    What a group shares has its name in a mark (`xdist_group`); tests that share a fixture of their file
    need none. All other tests are distributed one by one.
    """
    if not hasattr(config, "workerinput"):
        return  # one process: in the order of the files
    for item in items:
        if item.get_closest_marker("xdist_group") is None and _shares_a_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    weights: Counter[str] = Counter()
    for item in items:
        weights[_group(item)] += _SLOW_WEIGHT if item.get_closest_marker("slow") else 1
    # The order inside a group and among equal ones stays that of the files.
    items.sort(key=lambda item: -weights[_group(item)])


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark is not None else item.nodeid


def _shares_a_fixture(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    return any(chosen[-1].scope in ("module", "class") for chosen in fixtures)
