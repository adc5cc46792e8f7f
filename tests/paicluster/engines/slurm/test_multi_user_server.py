"""A server as root that submits each user's jobs under that user's account."""

from __future__ import annotations

import hashlib
import io
import os
import pwd
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from pairuntime.transport import websocket
from pairuntime.transport.relay import PROTOCOL
from support.server_fixture import eventually, job, role
from support.slurm_cluster import RealSlurm
from support.unix_users import (
    CrewCluster,
    add_people,
    open_folder,
    processes_with_argument,
    unix_accounts,
)
from support.web_socket import WebSocket

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("slurm")]

ALICE, BOB = (f"pai-{name}-{os.getpid()}" for name in ("ann", "ben"))
_FILE = "engine: {{type: slurm, folder: {folder}, partition: main, file-lag: 0.5, interval: 0.5}}\n"


@pytest.fixture
def cluster(slurm: RealSlurm) -> Iterator[CrewCluster]:
    with unix_accounts(ALICE, BOB), open_folder() as folder:
        add_people(folder / "home", ALICE, BOB)
        (folder / "home" / "cluster.yaml").write_text(_FILE.format(folder=folder / "shared"))
        made = CrewCluster(folder / "home", (), {"SLURM_CONF": str(slurm.conf)})
        try:
            yield made.start()
        finally:
            made.close()
            for name in (ALICE, BOB):
                slurm.ask("scancel", "-u", name)


def _said(cluster: CrewCluster, what: dict[str, Any]) -> str:
    status = cluster.run(what)
    log = cluster.log_of(what["name"]).decode()
    assert status["state"] == "SUCCEEDED", (status, log, cluster.events(what["name"]))
    return log


def _sources(cluster: CrewCluster) -> dict[str, Any]:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("mine.txt"))
    name = hashlib.sha256(data.getvalue()).hexdigest()
    put = cluster.ask("PUT", f"/api/v2/sources/{name}", data.getvalue())
    assert put.status < 300, put.text
    return {"sha256": name, "size": len(data.getvalue())}


def test_users_run_under_their_accounts_and_cannot_read_others(
    cluster: CrewCluster, slurm: RealSlurm
) -> None:
    cluster.as_user(ALICE)
    with_sources = job("who", "id -un; echo $USER $HOME; ls; pai-runtime 2>&1 || true; pwd")
    with_sources["extras"] = {"openpaisdk": {"sources": _sources(cluster)}}
    said = _said(cluster, with_sources).splitlines()
    assert said[:2] == [ALICE, f"{ALICE} /home/{ALICE}"] and "mine.txt" in said
    assert "Permission denied" not in "\n".join(said)
    work = said[-1]
    assert "4" in _said(cluster, job("gang", taskRoles={"main": role("echo $((2 + 2))", instances=2)}))
    cluster.accept(job("long", "trap 'echo bye; exit 0' TERM; echo up; sleep 60 & wait"))
    cluster.wait_state("long", "RUNNING")
    cluster.stop("long")
    assert cluster.wait_over("long")["state"] == "STOPPED"

    cluster.as_user(BOB)
    shared = work.partition("/tasks/")[0]
    peek = f"ls {work} {work}/.. {shared} {shared}/events {shared}/tasks; cat {work}/../{{spec.json,task.sh}}"
    said = _said(
        cluster, job("peek", f"({peek}) 2>&1 | grep -v 'Permission denied' || true; id -un")
    ).splitlines()
    assert said == [BOB]

    def uid_of_the_job() -> str:
        """Empty while Slurm does not answer.

        A number: an account of an earlier test may have had the same one, and jobs that are listed.
        """
        lines = slurm.ask("squeue", "-h", "--states=all", "-o", "%j %U").splitlines()
        return dict(line.split() for line in lines).get(f"{BOB}~peek", "")

    assert eventually(uid_of_the_job, "the job in Slurm's list") == str(pwd.getpwnam(BOB).pw_uid)


def test_host_of_a_session_has_the_account_of_its_step(cluster: CrewCluster) -> None:
    """Only the program that it starts for the session, setpriv, has to be root."""
    cluster.as_user(ALICE)
    cluster.accept(job("entered", "echo up; sleep 600"))
    eventually(lambda: b"up" in cluster.log_of("entered"), "the task")
    session = WebSocket(cluster, cluster.path("entered", "/exec?terminal=false"))
    session.send("start", command=["sh", "-c", "id -un; exec sleep 600"])
    session.read_until(ALICE.encode())
    account = pwd.getpwnam(ALICE)
    hosts = processes_with_argument(f"{account.pw_uid}:{account.pw_gid}")
    assert list(hosts.values()) == [{ALICE}]
    session.send("signal", name="TERM")
    assert session.finish() == {"type": "exit", "status": 143, "signal": "TERM"}
    eventually(
        lambda: not processes_with_argument(f"{account.pw_uid}:{account.pw_gid}"), "the end of the host"
    )


_ECHO = (
    "import socket, time; server = socket.create_server(('127.0.0.1', 0)); "
    "print('port', server.getsockname()[1], flush=True); peer, _ = server.accept(); "
    "peer.sendall(peer.recv(100)); time.sleep(600)"
)


def test_forwarder_has_the_account_of_its_step(cluster: CrewCluster) -> None:
    cluster.as_user(ALICE)
    cluster.accept(job("serving", f'exec python3 -c "{_ECHO}"'))
    eventually(lambda: b"port" in cluster.log_of("serving"), "the service")
    port = cluster.log_of("serving").split()[-1].decode()
    connection = WebSocket(cluster, cluster.path("serving", f"/forward?port={port}"), protocols=PROTOCOL)
    connection.sock.sendall(websocket.frame(websocket.BINARY, b"hello", masked=True))
    account = pwd.getpwnam(ALICE)
    mark = f"{account.pw_uid}:{account.pw_gid}"
    assert list(processes_with_argument(mark).values()) == [{ALICE}]
    received = b""
    while b"hello" not in received:
        data = connection.sock.recv(100)
        assert data, received
        received += data
    # It notices the end of its task, and its own is noticed.
    cluster.stop("serving")
    eventually(lambda: not processes_with_argument(mark), "the end of the forwarder")
    connection.sock.close()
