"""Operations of clients: jobs of every kind, files, commands in tasks, functions and notebooks.

Each submits or uploads, waits or follows, and compares what the cluster says with what it must be.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import openpaisdk
from chaos.load import AFTER_FAULT_S, TEMPORARY, Choice, Client, Expected, Load
from openpaisdk import Cluster as UserCluster
from openpaisdk.client.session import STDOUT, SessionRefused
from openpaisdk.errors import UsageError
from openpaisdk.functions.task_errors import TaskError
from paiprotocol.errors import Conflict, NotFound, PaiError
from support.notebooks import texts, write_notebook
from support.server_fixture import job

_FUNCTION_S = 240.0
_MAX_UPLOAD_BYTES = 3 << 20

# -- jobs ------------------------------------------------------------------------------------------


def make_job(
    load: Load, number: int, rng: random.Random, kind: str, *, tasks: int = 1, last: str = "", **more: Any
) -> Expected:
    """A job whose tasks write a line to a file of their own at their start and end, and number their output.

    ``last`` is the command after the last line of output.
    """
    fields = {name: more.pop(name) for name in ("state", "exit_code", "own_failures") if name in more}
    name = f"{kind}-{number}"
    lines = rng.randrange(5, 120)
    index = "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"
    file = f"{load.ledger}/{name}.{index}"
    commands = (
        f"echo start $PAI_CONTAINER_ID $(date +%s) >> {file}",
        f"for i in $(seq {lines}); do echo {name} {index} line $i; if [ $((i % 16)) = 0 ]; then sleep 0.1; "
        "fi; done",
        f"echo {name} {index} ends",
        f"echo end $PAI_CONTAINER_ID $(date +%s) >> {file}",
        *([last] if last else []),
    )
    spec = load.site.engine.place(job(name, *commands, instances=tasks, **more))
    return Expected(name, kind, tasks, lines, spec, **fields)


def _run(client: Client, expected: Expected, rng: random.Random) -> None:
    """Submit a job; most of the time follow one task to its end."""
    client.submit(expected)
    if rng.random() < 0.7:
        client.follow(expected, rng.randrange(expected.tasks))


def _single(client: Client, number: int, rng: random.Random) -> None:
    _run(client, make_job(client.load, number, rng, "single"), rng)


def _failing(client: Client, number: int, rng: random.Random) -> None:
    fails: dict[str, Any] = {"state": "FAILED", "exit_code": 255, "own_failures": 1}
    _run(client, make_job(client.load, number, rng, "failing", last="exit 3", **fails), rng)


def _retried(client: Client, number: int, rng: random.Random) -> None:
    fails: dict[str, Any] = {"state": "FAILED", "exit_code": 255, "own_failures": 3, "jobRetryCount": 2}
    _run(client, make_job(client.load, number, rng, "retried", last="exit 3", **fails), rng)


def _gang(client: Client, number: int, rng: random.Random) -> None:
    _run(client, make_job(client.load, number, rng, "gang", tasks=rng.randrange(2, 5)), rng)


def _array(client: Client, number: int, rng: random.Random) -> None:
    all_of_them = {"minFailedInstances": -1, "minSucceededInstances": -1}
    extras = {"gangAllocation": False, "openpaisdk": {"arrayLimit": 2}}
    made = make_job(
        client.load, number, rng, "array", tasks=rng.randrange(2, 6), completion=all_of_them, extras=extras
    )
    _run(client, made, rng)


def _stopped(client: Client, number: int, rng: random.Random) -> None:
    stopped: dict[str, Any] = {"state": "STOPPED", "exit_code": -210}
    made = make_job(client.load, number, rng, "stopped", last="sleep 600", **stopped)
    client.submit(made)
    if rng.random() < 0.7:
        client.wait(made.name, "RUNNING")
    client.retry(made.name, lambda: client.cluster.stop(made.name))
    client.wait(made.name)


def _dependent(client: Client, number: int, rng: random.Random) -> None:
    first = make_job(client.load, number, rng, "first")
    client.submit(first)
    after = {"openpaisdk": {"after": [{"job": first.name, "on": "success"}]}}
    check = f'grep -q "^end" {client.load.ledger}/{first.name}.0'
    _run(client, make_job(client.load, number, rng, "second", last=check, extras=after), rng)


# -- everything else -------------------------------------------------------------------------------


def _upload(client: Client, number: int, rng: random.Random) -> None:
    """Upload a file; some are then overwritten by a second version."""
    path = f"/user/{client.site.cluster.user}/chaos/file-{number}"
    for version in range(1 + (rng.random() < 0.3)):
        content = rng.randbytes(int(_MAX_UPLOAD_BYTES * rng.random() ** 3))
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            client.retry(path, partial(client.storage.upload, file.name, path))
        with client.seen.lock:
            client.seen.files[path] = hashlib.sha256(content).hexdigest()
        client.seen.count(f"upload version {version}")
    if rng.random() < 0.5:
        check_file(client, path)
        if rng.random() < 0.8:
            _delete(client, path)


def _delete(client: Client, path: str) -> None:
    # A deletion that is sent again after a lost response finds no file.
    with contextlib.suppress(NotFound):
        client.retry(path, lambda: client.storage.delete(path))
    with client.seen.lock:
        client.seen.deleted.add(path)
        del client.seen.files[path]
    client.seen.count("deletion")


def check_file(client: Client, path: str) -> None:
    """Download a file, and compare it with what was acknowledged."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "file"
        try:
            client.retry(path, lambda: client.storage.download(path, str(target)))
        except (NotFound, UsageError):
            client.seen.report(f"the uploaded file {path} is gone")
            return
        if hashlib.sha256(target.read_bytes()).hexdigest() != client.seen.files[path]:
            client.seen.report(f"the uploaded file {path} has another content")


def _commands(client: Client, number: int, rng: random.Random) -> None:
    """Run commands in a running job. Only a lost connection may end one early."""
    stopped: dict[str, Any] = {"state": "STOPPED", "exit_code": -210}
    made = make_job(client.load, number, rng, "host", last="sleep 600", **stopped)
    client.submit(made)
    for _ in range(4):
        if client.wait(made.name, "RUNNING") != "RUNNING":
            break
        began_s = time.monotonic()
        try:
            _run_command(client, made.name, rng)
        except PaiError as error:
            # The task may be lost at this moment, or not have begun.
            is_expected = isinstance(error, (*TEMPORARY, Conflict, SessionRefused)) or "running" in str(error)
            if not is_expected or not client.site.was_disturbed(began_s - AFTER_FAULT_S):
                client.seen.report(f"exec in {made.name}: {error!r} though no fault was near")
    client.retry(made.name, lambda: client.cluster.stop(made.name))
    client.wait(made.name)


def _run_command(client: Client, name: str, rng: random.Random) -> None:
    sent = rng.randbytes(rng.randrange(1, 60_000)).hex().encode()
    status = rng.randrange(100)
    began_s = time.monotonic()
    session = client.cluster.with_own_connection().open_session(name)
    try:
        session.start(["sh", "-c", f"cat; exit {status}"])
        session.send_stdin(sent)
        session.end_stdin()
        received = errors = b""
        while session.exit_status is None:
            for stream, data in session.receive():
                if stream == STDOUT:
                    received += data
                else:
                    errors += data
    finally:
        session.close()
    # The command ends with its task, or is not started.
    was_killed = client.site.was_disturbed(began_s - AFTER_FAULT_S, *client.site.engine.ends_commands)
    if (received, session.exit_status) != (sent, status) and not was_killed:
        client.seen.report(
            f"exec in {name}: {len(received)} of {len(sent)} bytes, status {session.exit_status}, "
            f"not {status}: {received[-200:]!r} {errors[-200:]!r}"
        )
    client.seen.count("commands")


def _function(client: Client, number: int, rng: random.Random) -> None:
    site = client.site
    cluster = UserCluster("chaos", site.proxy.url, site.cluster.user, token=site.cluster.token)
    base = rng.randrange(2, 50)
    future = client.retry(
        "function",
        lambda: openpaisdk.submit(pow, base, number, cluster=cluster, image="host", mem="64m", sources=[]),
    )
    began_s = time.time()
    try:
        result = future.result(_FUNCTION_S)
    except TaskError:
        if site.was_full(began_s, time.time()):
            return  # its result could not be written
        raise
    if result != base**number:
        client.seen.report(f"function {number}: {result}, not {base**number}")


def _outputs(client: Client, number: int, rng: random.Random) -> None:
    """A job with two output files, which are on the storage when it has succeeded."""
    name, began_s = f"outputs-{number}", time.time()
    sizes = {name: rng.randrange(1, 300_000) for name in ("a", "b")}
    commands = [f"head -c {size} /dev/zero > $PAI_OUTPUT_DIR/{file}" for file, size in sizes.items()]
    text = json.dumps(client.site.engine.place(job(name, *commands)))
    client.retry(name, lambda: client.cluster.submit(text, key=f"key-{name}"))
    state = client.wait(name)
    if state != "SUCCEEDED":
        _check_unsuccessful(client, name, state, began_s)
        return
    for file, size in sizes.items():
        path = f"/user/{client.site.cluster.user}/jobs/{name}/output/{file}"
        status = client.retry(path, partial(client.storage.status, path))
        if status["size"] != size:
            client.seen.report(f"{path} has {status['size']} of {size} bytes")
    client.seen.count("stored outputs")


def _check_unsuccessful(client: Client, name: str, state: str, began_s: float) -> None:
    """Report a job with outputs that failed without a full disk or a fault that kills programs."""
    kills = client.site.engine.kills_programs
    if not client.site.was_disturbed_in(began_s, time.time(), "fill-disk", *kills):
        client.seen.report(f"{name} is {state}")


def _notebook(client: Client, number: int, rng: random.Random) -> None:
    """A notebook as a job, and its output. It takes seconds of processor time, so their number is limited."""
    if not client.load.may_run_notebook():
        return
    site, base, name = client.site, rng.randrange(1000), f"notebook-{number}"
    cluster = UserCluster("chaos", site.proxy.url, site.cluster.user, token=site.cluster.token)
    began_s = time.time()
    with tempfile.TemporaryDirectory() as folder:
        write_notebook(Path(folder) / "sum.ipynb", "print(base + 1)")
        options: dict[str, Any] = {"image": "host", "mem": "512m", "python": sys.executable}
        made = openpaisdk.Job(name).from_notebook(
            Path(folder) / "sum.ipynb", parameters={"base": base}, **options
        )
        # After a lost response the job exists.
        with contextlib.suppress(Conflict):
            client.retry(name, lambda: made.submit(cluster))
        state = client.wait(name)
        if state != "SUCCEEDED":
            _check_unsuccessful(client, name, state, began_s)
            return
        result = Path(folder) / "result.ipynb"
        path = f"/user/{site.cluster.user}/jobs/{name}/output/sum.executed.ipynb"
        client.retry(name, lambda: client.storage.download(path, str(result)))
        if texts(result)[-1] != f"{base + 1}\n":
            client.seen.report(f"{name}: {texts(result)}, not {base + 1}")
    client.seen.count("executed notebook")


OPERATIONS: dict[str, Choice] = {
    "single": (6, _single),
    "failing": (2, _failing),
    "retried": (3, _retried),
    "gang": (4, _gang),
    "array": (3, _array),
    "stopped": (2, _stopped),
    "dependent": (2, _dependent),
    "upload": (5, _upload),
    "commands": (2, _commands),
    "function": (1, _function),
    "notebook": (1, _notebook),
    "outputs": (3, _outputs),
}
