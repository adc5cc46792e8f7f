"""For all tests: hypothesis settings, names, groups and order of tests, and a list of the busy ones."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# jsonschema takes two seconds to compile the grammar of this package, which Jupyter brings; no schema here
# needs it.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# A shell makes what it starts in the background ignore Ctrl-C, which tests send to commands and themselves.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("support")

# Servers of scope `session`: a fixture that each file imports would be another server for each.
pytest_plugins = [
    "support.cloud_servers",
    "support.hadoop",
    "support.postgresql_server",
    "support.samba_server",
    "support.slurm_cluster",
]

# How long an example takes, or takes to be made, says more about the machine than about us.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# As many quick tests as one of these takes time for; a test that takes much longer has a mark `slow(NUMBER)`.
_SLOW_WEIGHT = 20
_SERVICE_WEIGHT = 5


# Processor time of a test above which it should be marked slow. The tests above it are listed at the end of a
# run; none fails, because on a busy machine any test takes longer.
_QUICK_CPU_S = 2.0

_CPU_PROPERTY = "cpu_s"

_not_quick: list[tuple[float, str]] = []

# Characters of a parameter in a test's name.
_MAX_ID_CHARS = 80


def pytest_make_parametrize_id(val: object) -> str | None:
    """Short names for long parameters: each name travels between the processes several times."""
    if isinstance(val, str | bytes) and len(val) > _MAX_ID_CHARS:
        beginning = val[: _MAX_ID_CHARS // 2]
        text = beginning if isinstance(beginning, str) else beginning.decode("ascii", "backslashreplace")
        return f"{text}... ({len(val)})"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: no garbage collection needs to look at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureNames(config))


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
        weights[_group(item)] += _weight(item)
    # The order inside a group and among equal ones stays that of the files.
    items.sort(key=lambda item: -weights[_group(item)])


def _weight(item: pytest.Item) -> int:
    if (slow := item.get_closest_marker("slow")) is not None:
        return int(slow.args[0]) if slow.args else _SLOW_WEIGHT
    return _SERVICE_WEIGHT if item.get_closest_marker("service") else 1


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark is not None else item.nodeid


def _shares_a_fixture(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    return any(chosen[-1].scope in ("module", "class") for chosen in fixtures)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    before = _cpu_s()
    try:
        return (yield)
    finally:
        item.user_properties.append((_CPU_PROPERTY, _cpu_s() - before))


def _cpu_s() -> float:
    """Processor time of this process, of the children it has waited for, and of forked commands."""
    from support.process_template import commands_cpu_s

    return sum(os.times()[:4]) + sum(commands_cpu_s)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" or "slow" in report.keywords or "service" in report.keywords:
        return
    cpu_s = dict(report.user_properties).get(_CPU_PROPERTY)
    if isinstance(cpu_s, float) and cpu_s > _QUICK_CPU_S:
        _not_quick.append((cpu_s, report.nodeid))


# Of the message of a failed test, while others run.
_MESSAGE_LENGTH = 1500


class FailureNames:
    """Says what failed and why when it fails: the report of a run follows half an hour later, if at all."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and isinstance(reporter, pytest.TerminalReporter):
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message if crash is not None else report.longreprtext[-_MESSAGE_LENGTH:]
            reporter.write_line(f"\nFAILED {report.nodeid} ({report.when}): {message[:_MESSAGE_LENGTH]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _not_quick:
        return
    terminalreporter.section(f"more than {_QUICK_CPU_S:.0f} s of processor time, and not marked slow")
    for cpu_s, test in sorted(_not_quick, reverse=True):
        terminalreporter.write_line(f"{cpu_s:.1f} s {test}")
