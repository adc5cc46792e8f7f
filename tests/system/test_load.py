"""Load: two hundred clients without a pause, a thousand followers of one log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paicluster.auth.tokens import Tokens
from paicluster.store import Store
from support.paths import TESTS
from support.server_fixture import DEADLINE_S, Cluster, job
from support.team_cluster import MACHINE, TeamCluster, add_users

NewTeam = Callable[..., TeamCluster]
PEOPLE = 200
SECONDS = 20
FOLLOWERS = 1000


def tokens_of(home: Path, names: tuple[str, ...]) -> dict[str, str]:
    """A session for each, without so many slow logins."""
    store = Store.open(home / "cluster.db")
    tokens = Tokens.open(store, home / "keys")

    async def issue() -> dict[str, str]:
        return {name: await tokens.issue(name, "session") for name in names}

    found = asyncio.run(issue())
    store.close()
    return found


@pytest.mark.slow
def test_two_hundred_clients_without_a_pause_get_no_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    names = tuple(f"admin{n}" for n in range(PEOPLE))
    # Administrators, because only they see pods.
    add_users(home, names, admins=names)
    tokens = tokens_of(home, names)
    # Hardly any room: it is the answers that are measured here, not what the jobs do.
    cluster = Cluster(home, ("--cpus", "2", *MACHINE[2:]))
    cluster.start()
    try:
        crowd = TESTS / "support/load.py"
        people = "".join(f"{name} {token}\n" for name, token in tokens.items())
        ran = subprocess.run(
            [sys.executable, str(crowd), *map(str, cluster.address), str(SECONDS)],
            input=people,
            capture_output=True,
            text=True,
            timeout=SECONDS + 180,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-2000:]
        said = json.loads(ran.stdout)
        print(json.dumps(said))
        assert said["errors"] == []
        assert set(said["responses"]) == {"list 200", "pods 200", "submit 202"}
        assert said["responses"]["submit 202"] > PEOPLE
        # No client waited much longer than its turn among so many.
        usual = PEOPLE * SECONDS / sum(said["responses"].values())
        assert max(said["slowest"].values()) < max(10, 50 * usual)
        log = cluster.log.read_text()
        assert "Traceback" not in log
    finally:
        cluster.kill()
        for pid in cluster.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


@pytest.mark.slow
def test_a_thousand_followers_of_one_log_keep_memory_flat(new_team: NewTeam, tmp_path: Path) -> None:
    # With the limit that programs usually get, which its tasks keep.
    cluster = new_team(program=("prlimit", "--nofile=1024:16384", sys.executable, "-m", "paicluster"))
    cluster.run(job("limit", "ulimit -n"))
    assert cluster.log_of("limit") == b"1024\n"
    assert cluster.process is not None
    pid = cluster.process.pid
    name, go = "followed", tmp_path / "go"
    cluster.accept(job(name, f"until [ -e {go} ]; do sleep 0.1; done; seq 20000"))
    cluster.wait_state(name, "RUNNING")
    head = f"GET {cluster.path(name, '/follow')} HTTP/1.1\r\nHost: x\r\n"
    head += f"Authorization: Bearer {cluster.token}\r\nConnection: close\r\n\r\n"

    writers = []

    async def follow() -> asyncio.StreamReader:
        # Who takes little at a time leaves the rest to the server.
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, cluster.address)
        reader, writer = await asyncio.open_connection(sock=sock, limit=4096)
        # A forgotten writer closes its connection.
        writers.append(writer)
        writer.write(head.encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b'"state":"RUNNING"')
        return reader

    async def to_the_end(reader: asyncio.StreamReader) -> int:
        """The last line and the end; how much it was in all."""
        rest = b""
        size = 0
        while part := await reader.read(1 << 16):
            size += len(part)
            rest = (rest + part)[-2000:]
        assert b"\n20000\n" in rest
        assert b'"kind":"end"' in rest
        return size

    def ask_often() -> float:
        """Cost of a response to another client."""
        began = cluster.main_thread_cpu_s()
        for _ in range(50):
            assert cluster.get("/api/v2/jobs?limit=1").status == 200
        return cluster.main_thread_cpu_s() - began

    async def all_of_them() -> tuple[int, int, int, int]:
        alone = await asyncio.to_thread(ask_often)
        before = pss_kb(pid)
        readers = [await follow() for _ in range(FOLLOWERS)]
        idle = pss_kb(pid)
        assert await asyncio.to_thread(ask_often) < 10 * alone, "those who follow hold up the others"
        go.touch()
        await asyncio.to_thread(cluster.wait_state, name, "SUCCEEDED")
        held = pss_kb(pid)
        sizes = await asyncio.gather(*map(to_the_end, readers))
        assert min(sizes) > 108_000
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        return before, idle, held, pss_kb(pid)

    before, idle, held, after = asyncio.run(asyncio.wait_for(all_of_them(), 240))
    print(f"{before} kB, {idle} kB with {FOLLOWERS} followers, {held} kB while they had much to take")
    print(f"{after} kB after all of them read to the end")
    assert (idle - before) / FOLLOWERS < 60
    assert held < before + 60 * FOLLOWERS
    assert after < before + 60 * FOLLOWERS


def pss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise AssertionError("no Pss")


def test_idle_connections_above_the_limit_leave_place_for_others(new_team: NewTeam) -> None:
    cluster = new_team(program=("prlimit", "--nofile=600:600", sys.executable, "-m", "paicluster"))
    held = []
    try:
        for _ in range(400):
            held.append(socket.create_connection(cluster.address, DEADLINE_S))
        cluster.description = None
        assert cluster.get("/api/v2/info").status == 200
        assert cluster.run(job("after", "true"))["state"] == "SUCCEEDED"
        assert "Traceback" not in cluster.log.read_text()
    finally:
        for connection in held:
            connection.close()
