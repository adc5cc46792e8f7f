"""Mutation run of one area: ``PYTHONPATH=tests python -m support.mutation.run AREA``.

The tests are collected once. Each mutant is a fork of that process in which the changed function is replaced;
it runs the tests that execute the changed lines, the quickest first, until one fails. Files are not changed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import coverage
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from support.mutation.mutate import Mutant, mutants_of

REPOSITORY = Path(__file__).resolve().parents[3]

_UNIT = "tests/paicluster/controller"
_CONTROLLER_TESTS = (
    f"{_UNIT}/test_transitions.py",
    f"{_UNIT}/test_transitions_placement.py",
    f"{_UNIT}/test_transitions_retries.py",
    f"{_UNIT}/test_job_record.py",
    f"{_UNIT}/test_attempt_tasks.py",
    f"{_UNIT}/test_exit_classification.py",
    f"{_UNIT}/test_large_arrays.py",
    "tests/paiprotocol/jobs/test_states_completion_retries.py",
)
# Sources and tests of each area. A test of a running server does not count: the server is another process.
AREAS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "scheduler": (("paicluster/scheduler",), ("tests/paicluster/scheduler",)),
    "transitions": (("paicluster/controller/transitions.py",), _CONTROLLER_TESTS),
    "completion": (
        (
            "paiprotocol/jobs/completion.py",
            "paicluster/controller/attempt_tasks.py",
            "paicluster/controller/exit_classification.py",
        ),
        _CONTROLLER_TESTS,
    ),
    "retries": (
        ("paiprotocol/jobs/retries.py", "paicluster/controller/job_record.py"),
        _CONTROLLER_TESTS,
    ),
}
# A mutant may loop forever, or wait for what never comes: a test may take this much processor time, this much
# more than without the mutant, and all tests of a mutant this much time.
_CPU_LIMIT_S = 1.0
_CPU_LIMIT_FACTOR = 3
_WALL_LIMIT_S = 120
_MAX_EXAMPLES = 50
_KILLED, _SURVIVED, _NOT_EXECUTED = "killed", "survived", "not executed"


class MutationRun:
    """A pytest plugin that runs mutants instead of the tests."""

    def __init__(self, files: Sequence[Path], mutants: Sequence[Mutant], report: Path):
        self._files = [str(file) for file in files]
        self._mutants = mutants
        self._report = report
        # Processor time of each test, and the tests that execute a line.
        self._cost: dict[str, float] = {}
        self._tests: dict[tuple[str, int], list[str]] = {}

    def pytest_configure(self) -> None:
        # The same examples for every mutant; the smallest one is of no interest.
        settings.register_profile(
            "mutation", derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
        )
        settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """A mutant that many random examples do not reveal would cost most of the time."""
        for item in items:
            function = getattr(item, "obj", None)
            chosen = getattr(function, "_hypothesis_internal_use_settings", None)
            if function is not None and chosen is not None and chosen.max_examples > _MAX_EXAMPLES:
                fewer = settings(chosen, max_examples=_MAX_EXAMPLES)
                function._hypothesis_internal_use_settings = fewer

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self._map_lines(items)
        counts: Counter[str] = Counter()
        with self._report.open("w") as report:
            for number, mutant in enumerate(self._mutants, 1):
                status, test = self._run(mutant, items)
                counts[status] += 1
                report.write(f"{json.dumps({'mutant': mutant.name, 'status': status, 'test': test})}\n")
                report.flush()
                if status != _KILLED or number % 50 == 0:
                    print(f"{number}/{len(self._mutants)} {status}: {mutant.name}", flush=True)
        share = counts[_KILLED] / max(1, len(self._mutants))
        print(f"{dict(counts)}, {share:.1%} killed")
        return True

    def _map_lines(self, items: dict[str, pytest.Item]) -> None:
        """Run all tests once, in a fork, and note which lines each executes and what it costs."""

        def run_all() -> Any:
            measured = coverage.Coverage(data_file=None, include=self._files)
            cost, failed = {}, []
            measured.start()
            for name, item in items.items():
                measured.switch_context(name)
                before = time.process_time()
                if not _passes(item):
                    failed.append(name)
                cost[name] = time.process_time() - before
            measured.stop()
            data = measured.get_data()
            lines = [
                (file, line, tests)
                for file in self._files
                for line, tests in data.contexts_by_lineno(file).items()
            ]
            return cost, failed, lines

        with tempfile.NamedTemporaryFile("r") as answer:
            _fork(lambda: Path(answer.name).write_text(json.dumps(run_all())) > 0, 1200)
            self._cost, failed, lines = json.load(answer)
        for file, line, tests in lines:
            self._tests[file, line] = [test for test in tests if test in items and test not in failed]
        dearest = sorted(self._cost, key=lambda name: -self._cost[name])[:12]
        print([(name.rpartition("::")[2], round(self._cost[name], 1)) for name in dearest])
        print(
            f"{len(items)} tests, {sum(self._cost.values()):.0f} s; ignored, they fail: {failed}", flush=True
        )

    def _run(self, mutant: Mutant, items: dict[str, pytest.Item]) -> tuple[str, str]:
        names = {name for line in mutant.lines for name in self._tests.get((str(mutant.path), line), ())}
        if mutant.at_import:
            names = set(self._cost)  # whatever uses it
        if not names:
            return _NOT_EXECUTED, ""
        tests = [items[name] for name in sorted(names, key=lambda name: self._cost[name])]
        with tempfile.NamedTemporaryFile("r") as failed:

            def survives() -> bool:
                apply(mutant)
                for test in tests:
                    Path(failed.name).write_text(test.nodeid)
                    cpu_limit_s = _CPU_LIMIT_S + _CPU_LIMIT_FACTOR * self._cost[test.nodeid]
                    signal.setitimer(signal.ITIMER_PROF, cpu_limit_s)  # ends this process
                    if not _passes(test):
                        return False
                return True

            return (_SURVIVED, "") if _fork(survives, _WALL_LIMIT_S) else (_KILLED, failed.read())


def _passes(item: pytest.Item) -> bool:
    return all(not report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _fork(action: Callable[[], bool], wall_limit_s: int) -> bool:
    """The result of an action in a new process; False where it does not end."""
    temporary = tempfile.mkdtemp()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(null, stream)
            os.environ["PYTEST_DEBUG_TEMPROOT"] = temporary
            status = 0 if action() else 1
        finally:
            os._exit(status)
    deadline = time.monotonic() + wall_limit_s
    pause = 0.001
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
    shutil.rmtree(temporary, ignore_errors=True)
    return ended[1] == 0


# -- in the fork of one mutant ------------------------------------------------------------------------------


def apply(mutant: Mutant) -> None:
    """Replace what the mutant changes in the module that is already imported."""
    relative = mutant.path.relative_to(REPOSITORY / "src").with_suffix("")
    module = sys.modules[".".join(relative.parts)]
    changed = types.ModuleType(module.__name__)
    changed.__file__ = str(mutant.path)
    exec(compile(mutant.tree(), str(mutant.path), "exec"), changed.__dict__)
    if mutant.function:
        _replace_functions(module, changed, mutant.function)
    else:
        _replace_constants(module, changed)


def _functions(namespace: dict[str, Any], top: str) -> dict[str, types.FunctionType]:
    """Functions of a module that are inside the named one, or in the named class."""
    return {
        one.__qualname__: one
        for one in gc.get_objects()
        if isinstance(one, types.FunctionType)
        and one.__globals__ is namespace
        and (top == one.__qualname__ or top.startswith(f"{one.__qualname__}.") or _is_method(one, top))
    }


def _is_method(function: types.FunctionType, name: str) -> bool:
    return function.__qualname__.rpartition(".")[0] == name


def _replace_functions(module: types.ModuleType, changed: types.ModuleType, name: str) -> None:
    gc.unfreeze()
    old, new = (_functions(one.__dict__, name) for one in (module, changed))
    if not new:
        _replace_defaults(module, changed, name)
    for qualified, function in new.items():
        original = old[qualified]
        original.__code__ = function.__code__
        original.__defaults__ = function.__defaults__
        original.__kwdefaults__ = function.__kwdefaults__
    _replace_defaults(module, changed, name.partition(".")[0])


def _replace_defaults(module: types.ModuleType, changed: types.ModuleType, name: str) -> None:
    """Default values of a class's fields."""
    old, new = (one.__dict__.get(name) for one in (module, changed))
    if isinstance(old, type) and isinstance(new, type):
        for constructor in ("__init__", "__new__"):
            ours, theirs = (getattr(one, constructor, None) for one in (old, new))
            if isinstance(ours, types.FunctionType) and isinstance(theirs, types.FunctionType):
                ours.__defaults__ = theirs.__defaults__


def _replace_constants(module: types.ModuleType, changed: types.ModuleType) -> None:
    plain = int | float | str | tuple | frozenset | dict | range | re.Pattern
    for name, value in list(changed.__dict__.items()):
        before = module.__dict__.get(name)
        if name.startswith("__") or not isinstance(before, plain) or repr(before) == repr(value):
            continue
        for other in list(sys.modules.values()):
            namespace = getattr(other, "__dict__", {})
            if name in namespace and repr(namespace[name]) == repr(before):
                namespace[name] = value


def _main() -> int:
    parser = argparse.ArgumentParser(description="Mutation run of one area.")
    parser.add_argument("area", choices=AREAS)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", type=Path, help="only the mutants of this report that survived")
    parser.add_argument("--report", type=Path, default=Path(tempfile.gettempdir()) / "mutants.jsonl")
    options = parser.parse_args()
    os.chdir(REPOSITORY)
    sources, tests = AREAS[options.area]
    folders = [REPOSITORY / "src" / source for source in sources]
    files = [file for path in folders for file in (sorted(path.glob("*.py")) if path.is_dir() else [path])]
    mutants = [mutant for file in files for mutant in mutants_of(file)]
    print(f"{options.area}: {len(mutants)} mutants")
    if options.again:
        rows = [json.loads(line) for line in options.again.read_text().splitlines()]
        names = {row["mutant"] for row in rows if row["status"] != _KILLED}
        mutants = [mutant for mutant in mutants if mutant.name in names]
    elif options.count < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.count)
    arguments = [test for test in tests if (REPOSITORY / test).exists()]
    return int(
        pytest.main(
            ["-q", "-m", "not slow and not service", "-p", "no:cacheprovider", *arguments],
            plugins=[MutationRun(files, mutants, options.report)],
        )
    )


if __name__ == "__main__":
    raise SystemExit(_main())
