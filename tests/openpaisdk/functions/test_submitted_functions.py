"""A Python function as a job: results, exceptions, logs, dependencies, futures of other processes."""

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import openpaisdk
from openpaisdk import Job
from openpaisdk.client.models import CORES
from openpaisdk.functions import task_errors
from openpaisdk.functions.function_cluster import function_cluster
from openpaisdk.functions.task_errors import JobNeverStarts
from paiprotocol.errors import NotFound, PaiError, UsageError
from support.faulty_proxy import FaultyProxy
from support.http_peer import Peer
from support.python_session import BIN
from support.server_fixture import eventually

TIMEOUT_S = 180


def test_result_of_a_call(here) -> None:
    def add(a: int, *, b: int) -> int:
        return a + b

    future = openpaisdk.submit(add, 5, b=7)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(TIMEOUT_S) == 12
    assert future.done() and not future.running() and future.exception() is None
    assert Job(future.job).select_cluster().state == "SUCCEEDED"


def test_call_runs_in_another_process(here) -> None:
    assert openpaisdk.submit(os.getpid).result(TIMEOUT_S) != os.getpid()


def test_calls_after_a_change_of_home_run_on_its_cluster(here_on_host, tmp_path_factory, monkeypatch) -> None:
    first = openpaisdk.submit(abs, -1)
    assert first.result(TIMEOUT_S) == 1
    before, other = function_cluster(None), tmp_path_factory.mktemp("other")
    monkeypatch.setenv("HOME", str(other))
    try:
        assert openpaisdk.submit(abs, -2).result(TIMEOUT_S) == 2
        assert function_cluster(None) is function_cluster("local") is not before
    finally:
        subprocess.run([BIN / "pai", "stop-cluster", "--now"], check=True, capture_output=True)


def test_futures_outlast_a_cluster_that_cannot_be_reached(here_on_host, server) -> None:
    """Its server may be restarting: the job goes on, and so does the waiting."""

    def wait_for(path: Path) -> str:
        while not path.exists():
            time.sleep(0.01)
        return path.name

    proxy, silent = FaultyProxy(server["url"]), Peer(lambda request: None)
    try:
        address = proxy.to
        cluster = openpaisdk.Cluster("far", proxy.url, server["user"], token=server["token"])
        go = here_on_host / "go"
        futures = openpaisdk.map(wait_for, [go, go], cluster=cluster, image="host")
        proxy.to = ("127.0.0.1", silent.port)
        proxy.cut()
        # Each of our requests is sent three times before it fails.
        eventually(lambda: len(silent.requests) >= 8, "requests that were not answered")
        proxy.to = address
        go.touch()
        assert [future.result(TIMEOUT_S) for future in futures] == ["go", "go"]
    finally:
        proxy.close()
        silent.close()


def test_exception_arrives_as_itself_with_the_remote_traceback(here) -> None:
    class NoConvergence(Exception):
        pass

    def train() -> None:
        raise NoConvergence("loss is nan", 3)

    future = openpaisdk.submit(train)
    with pytest.raises(Exception, match="loss is nan") as caught:
        future.result(TIMEOUT_S)
    assert type(caught.value).__name__ == "NoConvergence" and caught.value.args == ("loss is nan", 3)
    assert "in train" in str(caught.value.__cause__) and "NoConvergence" in str(caught.value.__cause__)
    assert "function_call.py" not in str(caught.value.__cause__)
    assert Job(future.job).select_cluster().state == "FAILED"


def test_coroutine_function_runs_in_the_task(here_on_host) -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    assert openpaisdk.submit(double, 21).result(TIMEOUT_S) == 42


def test_remote_traceback_has_the_causes(here_on_host) -> None:
    def load() -> None:
        try:
            {}["weights"]
        except KeyError as error:
            raise RuntimeError("no checkpoint") from error

    with pytest.raises(RuntimeError, match="no checkpoint") as caught:
        openpaisdk.submit(load).result(TIMEOUT_S)
    text = str(caught.value.__cause__)
    assert "KeyError: 'weights'" in text and "direct cause of the following exception" in text
    assert text.count("in load") == 2 and "function_call.py" not in text


def test_exception_without_a_text_still_arrives(here_on_host) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise TypeError("no text")

    def fail() -> None:
        raise Mute

    assert type(openpaisdk.submit(fail).exception(TIMEOUT_S)).__name__ == "Mute"


def test_exception_that_cannot_be_pickled_arrives_as_text(here) -> None:
    def fail() -> None:
        error = ValueError("the lock is stuck")
        error.lock = __import__("threading").Lock()  # type: ignore[attr-defined]
        raise error

    with pytest.raises(task_errors.RemoteError, match=r"builtins.ValueError: the lock is stuck") as caught:
        openpaisdk.submit(fail).result(TIMEOUT_S)
    assert "in fail" in str(caught.value.__cause__)


def test_result_that_cannot_be_pickled_is_an_error(here) -> None:
    def generate() -> object:
        return (i for i in range(3))

    with pytest.raises(TypeError, match="generator") as caught:
        openpaisdk.submit(generate).result(TIMEOUT_S)
    assert "The result of the function cannot be pickled." in caught.value.__notes__


@pytest.mark.parametrize("how", ["sys.exit(3)", "raise KeyboardInterrupt"])
def test_function_that_would_end_this_program(here, how) -> None:
    with pytest.raises(task_errors.RemoteError, match=r"SystemExit: 3|KeyboardInterrupt"):
        openpaisdk.submit(exec, f"import sys\n{how}").result(TIMEOUT_S)


def test_killed_task_is_a_typed_error_with_the_end_of_its_log(here) -> None:
    def die() -> None:
        print("before the end", flush=True)
        os.kill(os.getpid(), 9)

    future = openpaisdk.submit(die)
    with pytest.raises(task_errors.TaskKilled) as caught:
        future.result(TIMEOUT_S)
    assert caught.value.exit_code == 137 and "before the end" in caught.value.log_end
    assert caught.value.job == future.job


def test_time_limit_is_a_typed_error(here) -> None:
    import time

    with pytest.raises(task_errors.TaskTimeout, match="time limit of 1 s"):
        openpaisdk.submit(time.sleep, 60, timeout=1).result(TIMEOUT_S)


def test_other_version_of_python_is_named_before_anything_runs(here, monkeypatch) -> None:
    monkeypatch.setattr("openpaisdk.functions.function_job.python_version", lambda: (3, 6))
    future = openpaisdk.submit(print, "never printed")
    here_version = "{}.{}".format(*sys.version_info)
    with pytest.raises(
        task_errors.OtherPython, match=f"pickled by Python 3.6, .* has Python {here_version}"
    ) as caught:
        future.result(TIMEOUT_S)
    assert caught.value.hint == 'Choose an image with Python 3.6, for example image="python:3.6".'
    assert "never printed" not in future.stdout()


def test_argument_that_cannot_be_pickled_is_rejected_before_anything_is_sent(here) -> None:
    import threading

    with pytest.raises(UsageError, match="An argument of the function cannot be sent to a job"):
        openpaisdk.submit(print, threading.Lock())


def test_option_that_is_also_a_parameter_is_rejected(here) -> None:
    def greet(name: str) -> str:
        return name

    with pytest.raises(UsageError, match="name is an option of the job and a parameter of the function"):
        openpaisdk.submit(greet, name="x")
    assert openpaisdk.remote(name="greet_$")(greet)(name="x").result(TIMEOUT_S) == "x"


def test_wrong_arguments_are_rejected_before_anything_is_sent() -> None:
    def train(rate: float) -> float:
        return rate

    with pytest.raises(UsageError, match=r"train cannot be called like this: .*'gpus'") as caught:
        openpaisdk.submit(train, 0.1, gpus=1)
    assert caught.value.hint == "Did you mean the option gpu of the job?"
    with pytest.raises(UsageError, match="missing a required argument: 'rate'"):
        openpaisdk.submit(train)
    with pytest.raises(UsageError, match="limit is -1"):
        openpaisdk.map(train, [0.1], limit=-1)


def test_call_that_can_never_start_fails_with_the_numbers(here_on_host) -> None:
    future = openpaisdk.submit(abs, -1, gpu=999, name="never-starts")
    with pytest.raises(JobNeverStarts, match=r"never-starts can never start.* 999 GPUs") as caught:
        future.result(0)
    assert "Ask for less" in caught.value.hint
    assert (future.state, future.stdout(), future.cancel()) == ("FAILED", "", False)
    cluster = function_cluster(None)
    with pytest.raises(NotFound):
        cluster.client.job("never-starts")
    assert "never-starts" not in cluster.names(f"/user/{cluster.user}/functions")
    assert all(isinstance(one.exception(0), JobNeverStarts) for one in openpaisdk.map(abs, [1, 2], gpu=999))


@pytest.fixture(name="busy")
def job_that_has_all_cores(here_on_host: Path) -> Iterator[int]:
    """How many cores a job has while the test runs: all of the cluster."""
    cores = int(function_cluster(None).client.virtual_clusters()[0].total(*CORES) or 0)
    gate = here_on_host / "gate"

    def wait_for_gate(path: str) -> None:
        while not Path(path).exists():
            time.sleep(0.05)

    future = openpaisdk.submit(wait_for_gate, str(gate), cpu=cores, mem="64m")
    eventually(future.running)
    yield cores
    future.cancel()


def test_time_out_says_why_a_call_has_not_started(busy: int) -> None:
    future = openpaisdk.submit(abs, -1, cpu=busy)
    try:
        eventually(lambda: future.pending_reason)
        with pytest.raises(TimeoutError, match=rf"{future.job} has not ended after 0.1 s.*It waits.*cpu"):
            future.result(0.1)
        assert "Insufficient cpu" in future._repr_html_()
    finally:
        future.cancel()


@pytest.mark.parametrize("calls", [3, 40], ids=["a task for each call", "calls share tasks"])
def test_time_out_says_why_the_calls_of_a_map_have_not_started(busy: int, calls: int) -> None:
    futures = openpaisdk.map(abs, range(calls), cpu=busy)
    try:
        eventually(lambda: futures[-1].pending_reason)
        with pytest.raises(TimeoutError, match=r"has not ended after 0.1 s.*It waits to start\..*cpu"):
            futures[-1].result(0.1)
        with pytest.raises(TimeoutError, match=rf"{calls} of {calls} calls .*{calls} wait to.*cpu"):
            futures.results(0.1)
    finally:
        futures.cancel()


def test_time_out_that_the_function_raised(here_on_host) -> None:
    def fail() -> None:
        raise TimeoutError("no answer from the other side")

    with pytest.raises(TimeoutError, match="no answer from the other side") as caught:
        openpaisdk.submit(fail).result(TIMEOUT_S)
    assert "in fail" in str(caught.value.__cause__)


def test_refused_call_leaves_nothing_on_the_storage(here_on_host) -> None:
    with pytest.raises(PaiError, match="no-such-vc"):
        openpaisdk.submit(abs, -1, name="refused-call", virtual_cluster="no-such-vc")
    cluster = function_cluster(None)
    assert "refused-call" not in cluster.names(f"/user/{cluster.user}/functions")


def test_exit_of_the_process_is_an_error_with_its_code(here_on_host) -> None:
    error = openpaisdk.submit(os._exit, 7).exception(TIMEOUT_S)
    assert type(error) is task_errors.TaskError and error.exit_code == 7


def test_modules_beside_the_program_are_found(here) -> None:
    (here / "project").mkdir()
    (here / "project" / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    (here / "project" / "main.py").write_text(
        "import openpaisdk\nfrom helper import double\n\nprint(openpaisdk.submit(double, 21).result(60))\n"
    )
    for folder, program in (("project", "main.py"), (".", "project/main.py")):
        ran = subprocess.run([sys.executable, program], cwd=here / folder, capture_output=True, text=True)
        assert ran.stdout == "42\n", ran.stderr


def test_packages_outside_the_current_folder_travel(here, tmp_path_factory) -> None:
    """An editable install: a folder outside of the project, which Python finds by its path."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "own_package").mkdir()
    (elsewhere / "own_package" / "__init__.py").write_text("from own_package.model import predict\n")
    (elsewhere / "own_package" / "model.py").write_text(
        "import pathlib\nimport own_sibling\n\n\ndef predict(x):\n"
        "    factor = pathlib.Path(__file__).with_name('factor').read_text()\n"
        "    return own_sibling.add_one(x * int(factor))\n"
    )
    (elsewhere / "own_package" / "factor").write_text("20")
    (elsewhere / "own_sibling.py").write_text("def add_one(x):\n    return x + 1\n")
    program = "import openpaisdk, own_package\nprint(openpaisdk.submit(own_package.predict, 2).result(60))\n"
    (here / "main.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(elsewhere)}
    ran = subprocess.run([sys.executable, "main.py"], env=environment, capture_output=True, text=True)
    assert ran.stdout == "41\n", ran.stderr


def test_output_is_followed_while_the_function_runs(here) -> None:
    def count() -> None:
        import logging

        logging.basicConfig(level="INFO")
        for i in range(3):
            print("step", i)
        logging.info("done")

    future = openpaisdk.submit(count)
    lines = list(future.logs(follow=True))
    assert [line for line in lines if line.startswith("step")] == ["step 0\n", "step 1\n", "step 2\n"]
    assert any("done" in line for line in lines)
    assert future.stdout() == "step 0\nstep 1\nstep 2\n" and "done" in future.stderr()


def test_future_as_argument_is_a_dependency(here) -> None:
    def slow_add(a: int, b: int) -> int:
        __import__("time").sleep(0.3)
        return a + b

    first = openpaisdk.submit(slow_add, 1, 2)
    second = openpaisdk.submit(lambda values: sum(values["numbers"]), {"numbers": [first, 10]})
    assert second.result(TIMEOUT_S) == 13
    assert Job(second.job).select_cluster().get_status().submitted_ms < (
        Job(first.job).select_cluster().get_status().completed_ms
    )


def test_call_after_a_failed_one_is_a_typed_error(here) -> None:
    def fail() -> None:
        raise RuntimeError("no data for day 7")

    second = openpaisdk.submit(str, openpaisdk.submit(fail))
    cause = "depends on ended as FAILED: .*RuntimeError: no data for day 7"
    with pytest.raises(task_errors.DependencyFailed, match=cause):
        second.result(TIMEOUT_S)


def test_map_is_one_array_job(here) -> None:
    futures = openpaisdk.map(lambda x: x * x, range(6), limit=3)
    assert futures.results(TIMEOUT_S) == [0, 1, 4, 9, 16, 25]
    assert len({future.job for future in futures}) == 1 and futures[2].job_id == f"{futures.job}_2"
    assert openpaisdk.map(print, []) == []


def test_failed_item_does_not_spoil_the_others(here) -> None:
    futures = openpaisdk.map(lambda x: 1 / x, [1, 0, 2])
    assert isinstance(futures[1].exception(TIMEOUT_S), ZeroDivisionError)
    assert (futures[0].result(TIMEOUT_S), futures[2].result(TIMEOUT_S)) == (1.0, 0.5)


def test_result_of_one_item_as_an_argument(here) -> None:
    futures = openpaisdk.map(lambda x: x + 1, [1, 2])
    assert openpaisdk.submit(max, futures).result(TIMEOUT_S) == 3


def test_large_argument_is_uploaded_once(here) -> None:
    data = os.urandom(3 << 20)
    first = openpaisdk.submit(len, data)
    assert first.result(TIMEOUT_S) == len(data)
    folder = str(first.paths.folder.parent / "values")
    after_first = {entry["name"] for entry in first.cluster.storage.list(folder)}
    futures = openpaisdk.map(lambda pair: pair[1][pair[0]], [(i, data) for i in range(2)])
    assert futures.results(TIMEOUT_S) == [data[0], data[1]]
    added = [entry for entry in first.cluster.storage.list(folder) if entry["name"] not in after_first]
    assert not [entry for entry in added if entry["size"] > 3 << 20]


def test_argument_and_result_that_are_stored_in_several_parts(here_on_host) -> None:
    data = os.urandom((16 << 20) + 1)
    assert openpaisdk.submit(lambda value: value[::-1], data).result(TIMEOUT_S) == data[::-1]


def test_cancelled_call_stops_its_job(here) -> None:
    import time

    future = openpaisdk.submit(time.sleep, 100)
    assert future.cancel()
    assert Job(future.job).select_cluster().wait(timeout=90, progress=False) == "STOPPED"
    with pytest.raises((concurrent.futures.CancelledError, task_errors.JobStopped)):
        future.result(TIMEOUT_S)


def test_await(here) -> None:
    async def main() -> int:
        return await openpaisdk.submit(lambda: 5)

    assert asyncio.run(main()) == 5


def test_waiting_that_ends_early_leaves_the_job_alone(here_on_host) -> None:
    def wait_for_go() -> str:
        while not (here_on_host / "go").exists():
            __import__("time").sleep(0.02)
        return "done"

    future = openpaisdk.submit(wait_for_go)
    with pytest.raises(TimeoutError):
        future.result(timeout=0.01)
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        interrupt.start()
        future.result(TIMEOUT_S)
    assert not future.done()
    (here_on_host / "go").touch()
    assert future.result(TIMEOUT_S) == "done"
    eventually(lambda: f"futures of {future.job}" not in {t.name for t in threading.enumerate()})


def test_cancelled_coroutine_stops_the_job(here_on_host) -> None:
    import time

    future = openpaisdk.submit(time.sleep, 100)

    async def main() -> None:
        await asyncio.wait_for(future, 0.2)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert Job(future.job).select_cluster().wait(timeout=TIMEOUT_S, progress=False) == "STOPPED"


def test_future_survives_its_process(here) -> None:
    program = "import openpaisdk\nprint(openpaisdk.submit(lambda: {'loss': 0.5}).job)\n"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert Job(ran.stdout.strip()).select_cluster().future().result(TIMEOUT_S) == {"loss": 0.5}


def test_job_without_a_function_has_no_future(here) -> None:
    job = Job("plain_$").one_liner("true", sources=[]).submit()
    with pytest.raises(UsageError, match="runs commands, not a Python function"):
        job.future()


def test_decorated_function(here) -> None:
    @openpaisdk.remote(cpu=1, env={"LEVEL": "3"})
    def level(add: int = 0) -> int:
        return int(os.environ["LEVEL"]) + add

    assert level(add=4).result(TIMEOUT_S) == 7
    assert level.options(env={"LEVEL": "5"})().result(TIMEOUT_S) == 5
    assert level.map([1, 2]).results(TIMEOUT_S) == [4, 5]
    assert level.__name__ == "level"
