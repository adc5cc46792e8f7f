"""A cluster behind nginx: no request is hidden in another one, and a client does not choose its address."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from support.reverse_proxy import nginx_before
from support.server_fixture import eventually
from support.team_cluster import MACHINE, USERS, TeamCluster, add_users

pytestmark = pytest.mark.slow
Address = tuple[str, int]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamCluster]:
    folder = tmp_path_factory.mktemp("proxied")
    add_users(folder / "home")
    (folder / "cluster.yaml").write_text("listen: {trusted-proxies: [127.0.0.1]}\n")
    cluster = TeamCluster(folder / "home", ("--config", str(folder / "cluster.yaml"), *MACHINE))
    try:
        cluster.start()
        cluster.tokens = {user: cluster.log_in(user) for user in USERS}
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def front(proxied: TeamCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with nginx_before(proxied.address, tmp_path_factory.mktemp("nginx") / "nginx") as address:
        yield address


_CHUNKED = b"Transfer-Encoding: chunked\r\n"
# What may stand in a head: LENGTH is that of a body which ends before the hidden request, WHOLE of all.
_HEADS = {
    "CL.TE": b"Content-Length: WHOLE\r\n" + _CHUNKED,
    "TE.CL": _CHUNKED + b"Content-Length: LENGTH\r\n",
    "a space before the colon": b"Content-Length: WHOLE\r\nTransfer-Encoding : chunked\r\n",
    "an unknown encoding": b"Content-Length: WHOLE\r\nTransfer-Encoding: xchunked\r\n",
    "identity": b"Content-Length: WHOLE\r\nTransfer-Encoding: identity\r\n",
    "a tab": b"Content-Length: WHOLE\r\nTransfer-Encoding:\tchunked\r\n",
    "two encodings": b"Content-Length: WHOLE\r\n" + _CHUNKED + b"Transfer-Encoding: identity\r\n",
    "a folded line": b"Content-Length: WHOLE\r\nTransfer-Encoding:\r\n chunked\r\n",
    "a control character": b"Content-Length: WHOLE\r\nTransfer-Encoding: \x0bchunked\r\n",
    "a zero byte": b"Content-Length: WHOLE\r\nTransfer-Encoding: chunked\x00\r\n",
    "a bare line feed": b"Content-Length: WHOLE\r\nX: y\nTransfer-Encoding: chunked\r\n",
    "a bare carriage return": b"Content-Length: WHOLE\r\nX: y\rTransfer-Encoding: chunked\r\n",
    "an indented name": b"Content-Length: WHOLE\r\n Transfer-Encoding: chunked\r\n",
    "no ASCII": b"Content-Length: WHOLE\r\nTransfer-Encoding:\xa0chunked\r\n",
    "two lengths": b"Content-Length: LENGTH\r\nContent-Length: WHOLE\r\n",
    "a list of lengths": b"Content-Length: LENGTH, WHOLE\r\n",
    "a signed length": b"Content-Length: +WHOLE\r\n",
    "a large length": b"Content-Length: 18446744073709551621\r\n",
    "an octal length": b"Content-Length: 0WHOLE\r\n",
    "a hidden header": b"Connection: content-length\r\nContent-Length: WHOLE\r\n",
    "an upgrade": b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: WHOLE\r\n",
    "an expectation": b"Expect: 100-continue\r\nContent-Length: WHOLE\r\n",
}
_BODY = b"0\r\n\r\n"


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("what", _HEADS)
def test_no_request_is_hidden_in_another_one(
    proxied: TeamCluster, front: Address, what: str, at_once: bool
) -> None:
    """One that ends where nginx or the server think it does, and not both, would run with the next client."""
    folder = f"/webhdfs/v1/user/alice/hidden-{list(_HEADS).index(what)}-{at_once}"
    hidden = (
        f"PUT {folder}?op=MKDIRS HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {proxied.token}\r\n"
        "Content-Length: 0\r\n\r\n"
    ).encode()
    head = _HEADS[what].replace(b"LENGTH", b"%d" % len(_BODY))
    head = head.replace(b"WHOLE", b"%d" % len(_BODY + hidden))
    request = b"POST /nowhere HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n"
    for address in (front, proxied.address):
        with socket.create_connection(address, 30) as client, contextlib.suppress(OSError):
            client.sendall(request + _BODY + hidden if at_once else request)
            if not at_once:
                client.sendall(_BODY + hidden)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
        connection = http.client.HTTPConnection(*front, timeout=60)
        connection.request(
            "GET", "/api/v2/tokens/check", headers={"Authorization": f"Bearer {proxied.tokens['bob']}"}
        )
        assert json.loads(connection.getresponse().read())["username"] == "bob"
        connection.close()
    assert proxied.get(f"{folder}?op=GETFILESTATUS").status == 404


def _address_in_audit_log(cluster: TeamCluster, at: Address, headers: dict[str, str]) -> str:
    """Which address the server takes a client at 127.0.0.2 for."""
    log = cluster.home / "audit.log"
    before = log.stat().st_size
    connection = http.client.HTTPConnection(*at, timeout=60, source_address=("127.0.0.2", 0))
    sent = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json", **headers}
    connection.request("POST", "/api/v2/tokens/application", "{}", sent)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    connection.close()

    def found() -> str:
        lines = log.read_bytes()[before:].decode().splitlines(keepends=True)
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return next((one["address"] for one in entries if "tokens/application" in one["path"]), "")

    return str(eventually(found, "a line in the audit log"))


@pytest.mark.parametrize("by_proxy", [True, False])
@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "203.0.113.9"},
        {"X-Forwarded-For": "203.0.113.9, 127.0.0.1"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"X-Forwarded-For": "[::1]:80, ,"},
        {"Forwarded": "for=203.0.113.9;host=evil.example.org;proto=https"},
        {"X-Real-IP": "203.0.113.9", "X_Forwarded_For": "203.0.113.9"},
    ],
)
def test_client_does_not_choose_its_address(
    proxied: TeamCluster, front: Address, headers: dict[str, str], by_proxy: bool
) -> None:
    at = front if by_proxy else proxied.address
    assert _address_in_audit_log(proxied, at, headers) == "127.0.0.2"


def test_client_without_a_proxy_does_not_choose_the_host_of_links(proxied: TeamCluster) -> None:
    connection = http.client.HTTPConnection(*proxied.address, timeout=60, source_address=("127.0.0.2", 0))
    headers = {"X-Forwarded-Host": "evil.example.org", "X-Forwarded-Proto": "https", "Forwarded": "host=evil"}
    connection.request(
        "POST", "/api/v2/authn/links", headers={**headers, "Authorization": f"Bearer {proxied.token}"}
    )
    url = json.loads(connection.getresponse().read())["url"]
    connection.close()
    host, port = proxied.address
    assert url.startswith(f"http://{host}:{port}/")
