"""Finding and ending the processes of a task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.process import cgroups
from pairuntime.supervisor import claim, process_tree


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def _gone(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def _wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 90
    while not all(map(_gone, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_descendants_are_found_over_generations_and_sessions(
    started: list[subprocess.Popen[bytes]],
) -> None:
    script = "setsid bash -c 'sleep 60 & echo $!; wait' & echo $!; wait"
    top = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE)
    started.append(top)
    assert top.stdout is not None
    # setsid may fork once more: the printed pid must be among them, at any depth.
    numbers = {int(top.stdout.readline()) for _ in range(2)}
    found = set(process_tree.descendants(top.pid))
    assert numbers <= found
    assert process_tree.parents_first({top.pid, *found})[0] == top.pid
    process_tree.kill_below(top.pid)
    _wait_until_gone(sorted(found))
    assert top.wait(90) >= 0  # itself it was not killed
    top.stdout.close()


def test_processes_are_ordered_parents_first_whatever_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The numbers started again at their maximum while the tree grew.
    tree = {32760: 700, 32767: 32760, 301: 32767, 300: 301, 302: 301, 900: 0}
    monkeypatch.setattr(process_tree, "_parent", tree.__getitem__)
    order = process_tree.parents_first(set(tree))
    assert sorted(order) == sorted(tree)
    assert all(order.index(parent) < order.index(pid) for pid, parent in tree.items() if parent in tree)


def test_descendants_of_a_thread_are_found(started: list[subprocess.Popen[bytes]]) -> None:
    script = (
        "import subprocess, threading, time\n"
        "threading.Thread(target=lambda: print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
        " or time.sleep(60)).start()\n"
    )
    top = subprocess.Popen([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE)
    started.append(top)
    assert top.stdout is not None
    child = int(top.stdout.readline())
    assert child in process_tree.descendants(top.pid)
    process_tree.kill_below(top.pid)
    top.stdout.close()


def test_orphans_are_found_by_their_environment_marker(tmp_path: Path) -> None:
    word = f"PAI_ATTEMPT_UID={uuid.uuid4()}"
    environment = {**os.environ, "PAI_ATTEMPT_UID": word.partition("=")[2]}
    # The middle process exits: the sleeper is no descendant any more.
    out = subprocess.check_output(
        ["bash", "-c", "setsid sleep 60 >/dev/null & echo $!"], env=environment, text=True, cwd=tmp_path
    )
    orphan = int(out)
    deadline = time.monotonic() + 90
    claim, work = str(tmp_path / "claim"), str(tmp_path)  # for a moment it has no environment
    while process_tree.kill_orphaned(process_tree.Cgroup(process_tree.PROC, ""), word.encode(), claim, work):
        assert time.monotonic() < deadline
    assert _gone(orphan)
    assert process_tree.pids_with_marker(word.encode()) == []


def test_child_before_exec_is_found_by_its_open_claim(tmp_path: Path) -> None:
    """A supervisor killed at the very moment it starts its program."""
    told_r, told_w = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        try:
            claim.acquire(str(tmp_path), "uid")
            child = os.fork()
            if child == 0:
                signal.pause()
            os.write(told_w, b"%d" % child)
        finally:
            os._exit(0)
    os.waitpid(supervisor, 0)
    child = int(os.read(told_r, 16))
    os.close(told_r)
    os.close(told_w)
    assert not claim.is_held(str(tmp_path))
    path = str(tmp_path / claim.NAME)
    assert (
        process_tree.kill_orphaned(
            process_tree.Cgroup(process_tree.PROC, ""), b"PAI_ATTEMPT_UID=other", path, ""
        )
        == 1
    )
    _wait_until_gone([child])
    assert (
        process_tree.kill_orphaned(
            process_tree.Cgroup(process_tree.PROC, ""), b"PAI_ATTEMPT_UID=other", path, ""
        )
        == 0
    )


_ASK = """
import os, sys
from pairuntime.supervisor import process_tree
os.setgroups([{group}])
for groups in ([], [{group}]):
    account = {{"uid": {uid}, "gid": {uid}, "groups": groups}}
    print(process_tree.may_enter(account, sys.argv[1]))
print(os.geteuid(), os.getegid(), os.getgroups())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="asks for another account")
def test_account_may_enter_by_its_own_groups_only() -> None:
    uid, group = 64_321, 64_322
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o750)
        os.chown(folder, 0, group)
        script = _ASK.format(uid=uid, group=group)
        ran = subprocess.run(
            [sys.executable, "-c", script, folder], capture_output=True, text=True, check=True
        )
    assert ran.stdout.split("\n") == ["False", "True", f"0 0 [{group}]", ""]


def test_exited_process_is_not_an_error() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    process_tree.send(gone.pid, signal.SIGKILL)
    assert process_tree.descendants(gone.pid) == []
    assert process_tree.children(gone.pid) == []


def test_removed_cgroup_is_created_again_by_join() -> None:
    """A server that starts removes empty groups; a supervisor may be about to enter one."""
    held = cgroups.choose(f"pai-test-{os.getpid()}-{time.monotonic_ns()}", (process_tree.V1, process_tree.V2))
    if held.root is None:
        pytest.skip("this account may not make cgroups")
    group = held.cgroup("one")
    try:
        group.create()
        Path(group.path).rmdir()
        pid = os.fork()
        if pid == 0:
            try:
                group.join()
                os._exit(0 if os.getpid() in group.members() else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        group.remove()
        held.root.rmdir()
