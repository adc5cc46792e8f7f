"""The bounds of docs/contributing/bounds.md: bound + 1 is refused, and the server's memory stays small."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import importlib
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from paicluster.api.middleware.slow_clients import MAX_HEAD_BYTES
from paicluster.api.route_reference import bound_text, current_page
from paicluster.api.routes import OPENPAI_ROUTES, PADDLECLOUD_ROUTES, ROUTES
from paicluster.api.routing.route import Bound, Route
from paicluster.api.webhdfs import read_operations
from paicluster.logs.task_metrics import MAX_READ_BYTES
from paiprotocol.transfer.hashing import DIGEST_BYTES
from paiprotocol.transfer.pack_format import MAX_PACK_BYTES, MAX_PACK_FILES
from pairuntime.supervisor import claim, exit_record
from support.paths import REPOSITORY
from support.server_fixture import job
from support.team_cluster import MACHINE, USERS, TeamCluster, add_users

pytestmark = pytest.mark.slow
PAGE = REPOSITORY / "docs/contributing/bounds.md"
_CONSTANT = re.compile(r"^\| [^|]+ \| (\d+)[^|]* \| `([\w.]+):(\w+)` \|$", re.MULTILINE)

MAX_GROWTH_MB = 64
# Settings of the tests' server: smaller than the defaults, so that bound + 1 is quick to send.
BODY_MB, SOURCES_MB = 2, 2
STREAMED_BYTES = 96 << 20
SETTINGS = {Bound.BODY_SETTING: BODY_MB << 20, Bound.SOURCES_SETTING: SOURCES_MB << 20}
UNREAD_BYTES = 1 << 20
REFUSED = (400, 401, 403, 404, 405, 409, 411, 413)
PATH_VALUES = {
    "framework": "alice~small",
    "job": "small",
    "user": "ghost",
    "vc": "default",
    "role": "main",
    "sha256": "a" * 64,
    "path": "user/alice/file",
    "uid": "00000000-0000-4000-8000-000000000000",
    "attempt": "0",
    "index": "0",
    "task_attempt": "0",
}


class Row(NamedTuple):
    method: str
    path: str
    # In bytes, or how its bytes are taken; None: not read.
    bound: int | Bound | None

    @property
    def target(self) -> str:
        return re.sub(r"{(\w+)(?::\w+)?}", lambda found: PATH_VALUES.get(found[1], "x"), self.path)


def rows_of(routes: Iterable[Route]) -> list[Row]:
    return [Row(method, route.path, route.bound(method)) for route in routes for method in route.methods]


ROWS = rows_of(ROUTES)
# With OpenPAI's token a path of both dialects is OpenPAI's.
PADDLECLOUD = {row[:2] for row in rows_of(PADDLECLOUD_ROUTES)} - {row[:2] for row in rows_of(OPENPAI_ROUTES)}
# Of these the whole body is in memory.
BOUNDS = sorted({row.bound for row in ROWS if isinstance(row.bound, int)}) + list(SETTINGS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamCluster]:
    folder = tmp_path_factory.mktemp("bounds")
    settings = folder / "cluster.yaml"
    settings.write_text(f"limits: {{body-mb: {BODY_MB}, sources-mb: {SOURCES_MB}}}\n")
    add_users(folder / "home")
    cluster = TeamCluster(folder / "home", ("--config", str(settings), *MACHINE), description=None)
    try:
        cluster.start()
        cluster.tokens = {user: cluster.log_in(user) for user in USERS}
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        cluster.run(job("small", "true"))
        assert cluster.ask("PUT", "/webhdfs/v1/user/alice/here?op=MKDIRS").status == 200
        # Importing the description of the API takes memory once, whoever asks first.
        cluster.get("/openapi.json")
        yield cluster
    finally:
        cluster.close()


@contextlib.contextmanager
def small_growth(cluster: TeamCluster) -> Iterator[None]:
    """The peak of the server's memory grows by less than the limit meanwhile."""
    assert cluster.process is not None
    folder = Path(f"/proc/{cluster.process.pid}")
    (folder / "clear_refs").write_text("5")  # the peak becomes the current size
    before = _status_mb(folder, "VmHWM")
    yield
    growth = _status_mb(folder, "VmHWM") - before
    assert growth < MAX_GROWTH_MB, f"the server's memory grew by {growth} MB"


def _status_mb(folder: Path, key: str) -> int:
    (line,) = [line for line in (folder / "status").read_text().splitlines() if line.startswith(key)]
    return int(line.split()[1]) >> 10


def send(cluster: TeamCluster, row: Row, chunks: Iterator[bytes], length: int | None, query: str = "") -> int:
    """Send a body, chunked without a length; returns the status, whether or not the body was read."""
    connection = cluster.connect()
    try:
        connection.putrequest(row.method, row.target + query)
        token = (
            cluster.log_in("admin")
            if row.path.endswith(("/logout", "/authn/session"))
            else cluster.tokens["admin"]
        )
        connection.putheader("Authorization", f"Bearer {token}")
        connection.putheader("Content-Type", "application/json")
        if length is None:
            connection.putheader("Transfer-Encoding", "chunked")
        else:
            connection.putheader("Content-Length", str(length))
        connection.endheaders()
        try:
            for chunk in chunks:
                connection.send(b"%x\r\n%s\r\n" % (len(chunk), chunk) if length is None else chunk)
            if length is None:
                connection.send(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before all of it was sent
        try:
            response = connection.getresponse()
            is_paddlecloud = (row.method, row.path) in PADDLECLOUD
            return _paddlecloud_status(response) if is_paddlecloud else response.status
        except (ConnectionResetError, http.client.RemoteDisconnected):
            return 413  # the rest of the body met a closed connection, and the response was lost with it
    finally:
        connection.close()


def _paddlecloud_status(response: http.client.HTTPResponse) -> int:
    """Errors of this dialect are 200, with the status or a text in the body."""
    if response.status != 200:
        return response.status
    reply = json.loads(response.read() or b"{}")
    return int(reply.get("code", 400 if reply.get("err") else 200))


def zeros(size: int) -> Iterator[bytes]:
    block = b" " * (1 << 18)
    while size > 0:
        yield block[:size]
        size -= len(block)


def test_table_of_bodies_in_the_documentation_is_current() -> None:
    assert current_page(PAGE) == PAGE.read_text(), "run `make docs`"


@pytest.mark.parametrize(("value", "module", "name"), _CONSTANT.findall(PAGE.read_text()))
def test_listed_constant_has_this_value(value: str, module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) == int(value)


def send_too_much(server: TeamCluster, rows: Iterable[Row], size: int) -> dict[tuple[Row, bool], int]:
    """Statuses of bodies of this size, with their length and chunked."""
    with small_growth(server):
        return {
            (row, length is None): send(server, row, zeros(size), length)
            for row in rows
            if not row.path.endswith("/follow")  # a stream
            for length in (size, None)
        }


@pytest.mark.parametrize("bound", BOUNDS, ids=bound_text)
def test_body_of_bound_and_one_is_refused_without_memory(server: TeamCluster, bound: int | Bound) -> None:
    size = SETTINGS[bound] if isinstance(bound, Bound) else bound
    statuses = send_too_much(server, [row for row in ROWS if row.bound == bound], size + 1)
    assert statuses
    assert {key: status for key, status in statuses.items() if status not in REFUSED} == {}
    # Others are refused before their body is read, because this path or user is not allowed: all reports of
    # tasks, which need the ticket of an attempt.
    ours = [status for (row, _), status in statuses.items() if "/attempts/" not in row.path]
    assert not ours or any(status == 413 for status in ours)


def test_body_that_is_not_read_takes_no_memory(server: TeamCluster) -> None:
    statuses = send_too_much(server, [row for row in ROWS if row.bound is None], UNREAD_BYTES + 1)
    failed = {key: status for key, status in statuses.items() if status >= 500}
    # OpenPAI answers 500 for a legacy storage that does not exist, and so do we.
    assert {key for key in failed if "/storage/" not in key[0].path} == set()


@pytest.mark.parametrize("op", ["CREATE", "APPEND"])
def test_streamed_body_takes_no_memory(server: TeamCluster, op: str) -> None:
    method = "PUT" if op == "CREATE" else "POST"
    row = Row(method, f"/webhdfs/v1/user/alice/streamed-{op}", Bound.STREAMED)
    token = server.tokens["alice"]
    if op == "APPEND":
        assert server.ask("PUT", f"{row.path}?op=CREATE&data=true", b"x", token=token).status == 201
    with small_growth(server):
        query = f"?op={op}&data=true"
        assert send(server, row, zeros(STREAMED_BYTES), STREAMED_BYTES, query) in (200, 201)
    found = server.get(f"{row.path}?op=GETFILESTATUS").json()["FileStatus"]
    assert found["length"] == STREAMED_BYTES + (op == "APPEND")
    server.ask("DELETE", f"{row.path}?op=DELETE")


def test_streamed_part_takes_no_memory(server: TeamCluster) -> None:
    begin = {"path": "/user/admin/part", "key": "k", "size": STREAMED_BYTES, "partBytes": 128 << 20}
    token = server.tokens["admin"]
    reply = server.ask("POST", "/api/v2/transfer/uploads", {**begin, "hash": "blake2b-128"}, token=token)
    assert reply.status == 200, reply.text
    row = Row("PUT", f"/api/v2/transfer/uploads/{reply.json()['id']}", Bound.STREAMED)
    with small_growth(server):
        status = send(server, row, zeros(STREAMED_BYTES + DIGEST_BYTES), STREAMED_BYTES + DIGEST_BYTES)
    assert status == 400  # the hash at its end is wrong


def test_head_of_bound_and_one_is_refused(server: TeamCluster) -> None:
    with small_growth(server), socket.create_connection(server.address, 30) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ")
        with contextlib.suppress(OSError):
            sock.sendall(b"a" * (2 * MAX_HEAD_BYTES))
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100).startswith(b"HTTP/1.1 431")
    assert server.get("/healthz").status == 200


# A check of a job file answers with the problems of that file.
_CHECKS = "/api/v2/job-checks"
_OF_JSON = [
    row
    for row in ROWS
    if row.path != _CHECKS
    and (row.bound is Bound.BODY_SETTING or (isinstance(row.bound, int) and row.bound <= MAX_PACK_BYTES))
]


def test_deep_job_file_is_a_problem_of_the_file(server: TeamCluster) -> None:
    body = b'{"value":' + b"[" * 30_000 + b"]" * 30_000 + b"}"
    with small_growth(server):
        reply = server.ask("POST", _CHECKS, body, token=server.tokens["admin"])
    assert reply.status == 200 and reply.json()["problems"]


def test_deep_json_is_refused_by_every_route(server: TeamCluster) -> None:
    body = b'{"value":' + b"[" * 30_000 + b"]" * 30_000 + b"}"
    with small_growth(server):
        statuses = {row: send(server, row, iter([body]), len(body)) for row in _OF_JSON}
    assert {row: status for row, status in statuses.items() if status not in REFUSED} == {}


@pytest.mark.parametrize("field", ["grouplist", "virtualCluster", "names", "value"])
def test_long_lists_are_refused_by_every_route(server: TeamCluster, field: str) -> None:
    body = json.dumps({field: ["n"] * 10_000, "data": {field: ["n"] * 10_000}}).encode()
    with small_growth(server):
        statuses = {row: send(server, row, iter([body]), len(body)) for row in _OF_JSON}
    # Early clients select legacy storages by POST; a new token has no fields, and others are ignored.
    allowed = {row for row in _OF_JSON if "/storage/" in row.path or row.path.endswith("/application")}
    refused = {row: status for row, status in statuses.items() if row not in allowed}
    assert {row: status for row, status in refused.items() if status not in REFUSED} == {}


@pytest.mark.parametrize(
    "query",
    [
        "username=" + ",".join(["alice"] * 30_000),
        "keyword=" + "%25" * 60_000,
        "tagsContain=" + ",".join(f"t{i}" for i in range(20_000)),
        "&".join(f"state=WAITING{i}" for i in range(10_000)),
        "offset=99999999999999999999",
        "limit=50001",
    ],
    ids=["users", "wildcards", "tags", "fields", "offset", "limit"],
)
def test_long_queries_are_bounded(server: TeamCluster, query: str) -> None:
    for path in ("/api/v2/jobs", "/api/v1/jobs", "/api/v2/users", "/api/v2/tokens", "/api/v2/groups"):
        with small_growth(server):
            status = server.get(f"{path}?{query}", token=server.tokens["admin"]).status
        assert status < 500, path


def test_folder_with_more_entries_than_a_listing_has_is_refused(server: TeamCluster) -> None:
    folder = server.home / "storage/user/alice/many"
    assert server.ask("PUT", "/webhdfs/v1/user/alice/many?op=MKDIRS").status == 200
    for i in range(read_operations._MAX_LISTED + 1):
        os.close(os.open(folder / str(i), os.O_CREAT | os.O_WRONLY))
    with small_growth(server):
        reply = server.get("/webhdfs/v1/user/alice/many?op=LISTSTATUS")
        assert reply.status == 400 and "LISTSTATUS_BATCH" in reply.text
        (folder / "0").unlink()
        assert server.get("/webhdfs/v1/user/alice/many?op=LISTSTATUS").status == 200
        assert server.get("/api/v2/transfer/tree?path=/user/alice/many").status == 200
        assert server.get("/webhdfs/v1/user/alice/many?op=GETCONTENTSUMMARY").status == 200


def test_bulk_requests_have_a_bounded_number_of_names(server: TeamCluster) -> None:
    names = [str(i) for i in range(MAX_PACK_FILES + 1)]
    for path in ("fetch", "remove"):
        with small_growth(server):
            reply = server.ask("POST", f"/api/v2/transfer/{path}", {"path": "/user/alice", "names": names})
        assert reply.status == 400 and str(MAX_PACK_FILES) in reply.text


def test_files_of_a_task_are_read_in_bounded_parts(server: TeamCluster) -> None:
    """A log without line ends, endless metrics, and records that no supervisor wrote."""
    size = 256 << 20
    line = json.dumps({"step": 1, "values": {"a": 1}})
    server.run(
        job(
            "large",
            "mkdir -p .pai",
            f"yes '{line}' | head -c {MAX_READ_BYTES + 100} > .pai/metrics.jsonl || true",
            "head -c 1000000 /dev/zero",
        )
    )
    uid = server.detail("large")["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    folder = server.home / "tasks" / uid[:2] / uid
    os.truncate(folder / "all.0", size)
    with small_growth(server):
        assert len(server.log_of("large", tail=1)) <= size
    with small_growth(server):
        reply = server.get(server.path("large", "/metrics"))
        assert reply.status == 200 and MAX_READ_BYTES - 100 < len(reply.body) <= MAX_READ_BYTES
        rest = server.get(server.path("large", f"/metrics?start={len(reply.body)}"))
        assert 0 < len(rest.body) < 200
    for name in ("exit.json", "claim"):
        os.truncate(folder / name, size)
    with small_growth(server):
        assert server.get(server.path("large")).status == 200
        assert server.run(job("after-damaged-records", "true"))["state"] == "SUCCEEDED"


def test_source_archive_over_its_bound_is_refused(server: TeamCluster) -> None:
    content = b" " * ((SOURCES_MB << 20) + 1)
    path = f"/api/v2/sources/{hashlib.sha256(content).hexdigest()}"
    with small_growth(server):
        assert server.ask("PUT", path, content).status == 413
    assert list((server.home / "sources").glob("*")) == []


def test_lists_of_names_have_a_bounded_number_of_items(server: TeamCluster) -> None:
    token = server.tokens["admin"]
    body = {"data": {"username": "alice", "grouplist": ["g"] * 1001}}
    reply = server.ask("PUT", "/api/v2/users/alice/grouplist", body, token=token)
    assert reply.status == 400
    reply = server.ask("PUT", "/api/v2/users/alice/grouplist", {"grouplist": ["g"] * 1001}, token=token)
    assert reply.status == 400


def test_upload_with_more_parts_than_the_bound_is_refused(server: TeamCluster) -> None:
    begin = {"path": "/user/alice/large", "key": "k", "partBytes": 1 << 16, "size": (1 << 33) + 1}
    reply = server.ask("POST", "/api/v2/transfer/uploads", begin)
    assert reply.status == 400 and "at most 131072 parts" in reply.text


@pytest.mark.parametrize("record", [claim, exit_record])
@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"[1]"])
def test_record_that_no_supervisor_wrote_is_not_read_whole(
    tmp_path: Path, record: ModuleType, content: bytes
) -> None:
    (tmp_path / record.NAME).write_bytes(content)
    os.truncate(tmp_path / record.NAME, len(content) or 4 << 30)
    assert not record.read(str(tmp_path))
