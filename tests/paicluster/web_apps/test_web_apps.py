"""Web apps of tasks: an address of their own, who may use it, and what passes through."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from paicluster.web_apps.endpoint import MAX_CONNECTIONS
from paicluster.web_apps.grants import AppGrants
from paicluster.web_apps.proxy import Proxy
from pairuntime.transport import websocket
from support.server_fixture import Reply, eventually, job
from support.team_cluster import NewTeam, TeamCluster

# Echoes what it was asked, upgrades on request, and answers some paths specially.
SERVER = r"""
import base64, hashlib, http.server, json, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connections = set()
    def setup(self):
        super().setup(); self.connections.add(self)
    def finish(self):
        self.connections.discard(self); super().finish()
    def reply(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.path == "/connections":
            return self.reply(200, str(len(self.connections)).encode())
        if self.path == "/refuses":
            return self.reply(403, b"no")
        if self.path == "/silent":
            print("asked", flush=True); self.connection.recv(1); return
        if self.headers.get("Upgrade") == "websocket":
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
            self.wfile.write(("HTTP/1.1 101 Switching Protocols\r\n"
                              "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                              "Sec-WebSocket-Accept: " + accept + "\r\n\r\nhello ").encode())
            if self.path == "/leaves":
                self.close_connection = True; return
            while data := self.connection.recv(1000):
                self.connection.sendall(data.upper())
            return
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size).decode()
        if self.headers.get("Transfer-Encoding") == "chunked":
            while n := int(self.rfile.readline(), 16):
                body += self.rfile.read(n).decode(); self.rfile.readline()
            self.rfile.readline()
        port = self.server.server_address[1]
        if self.path == "/away":
            return self.reply(302, b"", [("Location", "http://localhost:%d//evil.example/x" % port)])
        if self.path == "/headers":
            return self.reply(200, b"", [("Set-Cookie", "pai-session-80=x"), ("Set-Cookie", "own=1; Path=/"),
                ("Clear-Site-Data", '"cookies"'), ("Strict-Transport-Security", "max-age=9")])
        if self.path == "/policy":
            return self.reply(200, b"", [("Content-Security-Policy", "frame-ancestors *; img-src 'self'")])
        if self.path == "/rude":
            self.wfile.write(b"what?\r\n\r\n"); self.close_connection = True; return
        seen = {"method": self.command, "path": self.path, "headers": dict(self.headers), "body": body}
        self.reply(200, json.dumps(seen).encode(), [("Content-Type", "application/json")])
    do_POST = do_HEAD = do_DELETE = do_GET
    def log_message(self, *args):
        pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
server = Server(("127.0.0.1", 0), Handler)
print("port", server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.fixture(name="app_port", scope="module")
def port_of_a_running_server(team: TeamCluster) -> Iterator[int]:
    """The port of a web server in the job `serves` of alice."""
    team.accept(job("serves", f"exec python3 - <<'END'\n{SERVER}\nEND"))
    team.wait_state("serves", "RUNNING")
    text = eventually(lambda: team.log_of("serves"), "the server's port")
    yield int(text.split()[1])
    team.stop("serves")


class Browser:
    """Cookies and requests of a browser with one app open."""

    def __init__(
        self, team: TeamCluster, port: int, token: str | None = None, to: str = "", name: str = "serves"
    ) -> None:
        reply = open_app(team, port, token, to, name)
        assert reply.status == 200, reply.text
        link = urlsplit(reply.json()["url"])
        self.address = (str(link.hostname), int(link.port or 0))
        self.link = f"{link.path}?{link.query}"
        self.cookie = ""
        opened = self.ask("GET", self.link)
        assert opened.status == 303, opened.text
        self.landed = opened.headers["location"]
        self.set_cookie = opened.headers["set-cookie"]
        self.cookie = self.set_cookie.partition(";")[0]
        self.opened = opened

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.address, timeout=90)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        connection = self.connect()
        sent = {"Cookie": self.cookie} if self.cookie else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, sent, encode_chunked=True)  # type: ignore[arg-type]
        response = connection.getresponse()
        reply = Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        connection.close()
        return reply

    def upgrade(self, path: str) -> tuple[socket.socket, http.client.HTTPResponse]:
        """Ask for a WebSocket; the response is not read."""
        connection = self.connect()
        headers = {
            "Cookie": self.cookie,
            "Origin": "http://{}:{}".format(*self.address),
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": websocket.new_key(),
        }
        connection.request("GET", path, headers=headers)
        assert connection.sock is not None
        return connection.sock, http.client.HTTPResponse(connection.sock)

    def wait_for_last_connection(self) -> None:
        """Wait until the task's server has no connection but that of the question."""
        eventually(lambda: self.ask("GET", "/connections").text == "1", "the end of other connections")


def open_app(
    team: TeamCluster, port: int, token: str | None = None, to: str = "", name: str = "serves"
) -> Reply:
    more = f"&to={to}" if to else ""
    return team.ask("POST", team.path(name, f"/apps?port={port}{more}"), token=token or team.token)


@pytest.fixture(name="browser", scope="module")
def signed_in_browser(team: TeamCluster, app_port: int) -> Browser:
    return Browser(team, app_port)


def test_app_has_an_address_of_its_own(team: TeamCluster, browser: Browser, app_port: int) -> None:
    assert browser.address[0] == team.address[0]
    assert browser.address[1] not in (team.address[1], app_port)
    assert browser.landed == "/" and "HttpOnly" in browser.set_cookie and "strict" in browser.set_cookie
    assert browser.cookie.startswith(f"pai-app-{browser.address[1]}=")
    assert "cookies" not in browser.opened.headers["clear-site-data"]
    again = Browser(team, app_port, to="/lab")
    assert again.address == browser.address and again.landed == "/lab"
    assert Browser(team, app_port, to="//evil.example").landed == "/"


def test_link_opens_the_app_once(browser: Browser) -> None:
    refused = browser.ask("GET", browser.link)
    assert refused.status == 403
    assert refused.text == (
        "The link has expired or was used before.\nOpen it again from the page of the job.\n"
    )


def test_without_the_cookie_nothing_reaches_the_task(team: TeamCluster, browser: Browser) -> None:
    for cookie in ("", f"pai-app-{browser.address[1]}=wrong", f"pai-session={team.token}"):
        refused = browser.ask("GET", "/", Cookie=cookie)
        assert refused.status == 403 and "open to its user only" in refused.text


def test_requests_pass_without_the_cookies_of_the_cluster(browser: Browser, app_port: int) -> None:
    host = "{}:{}".format(*browser.address)
    cookies = f"pai-session-80=secret; theirs=1; {browser.cookie}"
    seen = browser.ask("POST", "/a%20b?c=d", b"body", Cookie=cookies, Origin=f"http://{host}").json()
    assert (seen["method"], seen["path"], seen["body"]) == ("POST", "/a%20b?c=d", "body")
    assert seen["headers"]["cookie"] == "theirs=1"
    assert seen["headers"]["host"] == f"localhost:{app_port}"
    assert seen["headers"]["origin"] == f"http://localhost:{app_port}"
    assert seen["headers"]["x-forwarded-host"] == host
    chunked = browser.ask("POST", "/", iter([b"one ", b"two"]), Transfer_Encoding="chunked").json()
    assert chunked["body"] == "one two"
    assert "cookie" not in browser.ask("GET", "/").json()["headers"]


def test_responses_touch_neither_the_portal_nor_other_hosts(browser: Browser) -> None:
    headers = browser.ask("GET", "/headers").headers
    assert headers["set-cookie"] == "own=1; Path=/"
    assert not {"clear-site-data", "strict-transport-security"} & headers.keys()
    assert browser.ask("GET", "/away").headers["location"] == "/evil.example/x"
    rude = browser.ask("GET", "/rude")
    assert (rude.status, rude.text) == (
        502,
        "The program at this port of the task does not speak HTTP.\n",
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://elsewhere.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
    ],
)
def test_pages_of_other_apps_cannot_use_it(browser: Browser, headers: dict[str, str]) -> None:
    refused = browser.ask("GET", "/", **headers)
    assert (refused.status, refused.text) == (403, "Only pages of this app may use it.\n")


def test_no_other_page_shows_the_app_in_a_frame(browser: Browser) -> None:
    connection = browser.connect()
    connection.request("GET", "/policy", headers={"Cookie": browser.cookie})
    policies = connection.getresponse().headers.get_all("Content-Security-Policy")
    connection.close()
    # Of several policies all hold.
    assert policies == ["frame-ancestors 'self'", "frame-ancestors *; img-src 'self'"]
    refused = browser.ask("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="iframe")
    assert refused.status == 403 and "frame-ancestors 'none'" in refused.headers["content-security-policy"]


def test_no_service_worker_outlives_the_app(browser: Browser) -> None:
    assert browser.ask("GET", "/worker.js", Service_Worker="script").status == 403


def test_web_socket_passes(browser: Browser) -> None:
    sock, response = browser.upgrade("/socket")
    response.begin()
    assert response.status == 101 and response.headers["Sec-WebSocket-Accept"]
    received = b""
    sock.sendall(b"loud")
    while not received.endswith(b"LOUD"):
        part = response.fp.read1(100) if response.fp else sock.recv(100)
        assert part, received
        received += part
    assert received == b"hello LOUD"
    sock.close()


def test_first_bytes_of_50_web_sockets_and_pages(browser: Browser) -> None:
    """A program may speak first in the new protocol, together with its response."""

    def first_bytes(_: int) -> bytes:
        sock, response = browser.upgrade("/socket")
        response.begin()
        with sock:
            sock.sendall(b"loud")
            received = b""
            while len(received) < 10 and (part := response.fp.read1(100)):
                received += part
        return received

    with ThreadPoolExecutor(4) as pool:
        assert Counter(pool.map(first_bytes, range(50))) == {b"hello LOUD": 50}
        assert Counter(pool.map(lambda _: browser.ask("GET", "/").status, range(50))) == {200: 50}


def test_connection_with_the_task_ends_with_a_refused_web_socket(browser: Browser) -> None:
    sock, response = browser.upgrade("/refuses")
    response.begin()
    assert (response.status, response.read()) == (403, b"no")
    # The browser keeps its connection.
    browser.wait_for_last_connection()
    response.close()
    sock.close()


def test_connection_with_the_task_ends_with_a_browser_that_waits_for_a_web_socket(
    team: TeamCluster, browser: Browser
) -> None:
    sock, response = browser.upgrade("/silent")
    eventually(lambda: b"asked" in team.log_of("serves"), "the request")
    response.close()
    sock.close()
    browser.wait_for_last_connection()


def test_web_socket_ends_with_the_task_end(browser: Browser) -> None:
    sock, response = browser.upgrade("/leaves")
    received = b""
    while part := sock.recv(1000):
        received += part
    assert received.startswith(b"HTTP/1.1 101 ") and received.endswith(b"\r\n\r\nhello ")
    response.close()
    sock.close()


@pytest.mark.parametrize("lost", [0, 1])
def test_web_socket_of_which_an_end_is_lost_keeps_no_app_in_use(lost: int) -> None:
    async def never(_: object) -> socket.socket:
        raise AssertionError

    async def always(_: object) -> bool:
        return True

    async def join() -> int:
        loop = asyncio.get_running_loop()
        proxy = Proxy(AppGrants(), 80, never, always)
        pairs = [socket.socketpair() for _ in range(2)]
        ends = [(await loop.create_connection(asyncio.Protocol, sock=own))[0] for own, _ in pairs]
        ends[lost].close()
        proxy._join(ends[0], ends[1])
        assert all(end.is_closing() for end in ends)
        for _, other in pairs:
            other.close()
        return proxy.open_exchanges

    assert asyncio.run(join()) == 0


def test_request_that_cannot_be_passed_on_is_an_error_of_the_gateway(browser: Browser) -> None:
    """Parsers differ in what they accept."""
    refused = browser.ask("POST", "/", b"12345", Content_Length="5".zfill(30))
    assert refused.status == 502
    assert refused.text.startswith("The request cannot be passed on: ")


def test_idle_connections_of_strangers_make_room_for_the_user(browser: Browser) -> None:
    with contextlib.ExitStack() as opened:
        strangers = [
            opened.enter_context(socket.create_connection(browser.address, timeout=90))
            for _ in range(MAX_CONNECTIONS + 44)
        ]
        assert browser.ask("GET", "/").status == 200
        with contextlib.suppress(ConnectionResetError):
            assert strangers[0].recv(1) == b"", "the oldest is closed"


def test_app_goes_on_with_the_retry_of_its_job(team: TeamCluster, tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    port_file.write_text("0")
    server = f"""
import http.server, os, pathlib
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/exit":
            os._exit(1)
        self.send_response(200); self.end_headers(); self.wfile.write(str(os.getpid()).encode())
file = pathlib.Path({str(port_file)!r})
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(file.read_text())), Handler)
file.write_text(str(server.server_address[1]))
server.serve_forever()
"""
    team.accept(job("retries", f"exec python3 - <<'END'\n{server}\nEND", jobRetryCount=1))
    eventually(lambda: port_file.read_text() not in ("", "0"), "the server's port")
    browser = Browser(team, int(port_file.read_text()), name="retries")
    first = browser.ask("GET", "/")
    assert first.status == 200
    browser.ask("GET", "/exit")

    def answers_again() -> bool:
        reply = browser.ask("GET", "/")
        return reply.status == 200 and reply.text != first.text

    eventually(answers_again, "the app of the retry")
    team.stop("retries")


@pytest.mark.slow  # a server with other settings
def test_request_that_does_not_arrive_ends(new_team: NewTeam) -> None:
    team = new_team("limits: {slow-client: 1s}\n")
    team.accept(job("serves", f"exec python3 - <<'END'\n{SERVER}\nEND"))
    team.wait_state("serves", "RUNNING")
    port = int(eventually(lambda: team.log_of("serves"), "the server's port").split()[1])
    browser = Browser(team, port)
    with socket.create_connection(browser.address, timeout=90) as sock:
        sock.sendall(b"GET / HT")
        assert sock.recv(100).startswith(b"HTTP/1.1 408 ")
    team.stop("serves")


def test_only_users_of_the_job_get_a_link(team: TeamCluster, app_port: int) -> None:
    refused = open_app(team, app_port, team.tokens["bob"])
    assert refused.status == 403
    assert refused.json()["message"] == "User bob is not allowed to forward ports of job alice~serves."
    nothing = open_app(team, 1)
    assert (nothing.status, nothing.json()["code"]) == (409, "NothingListensError")
    assert open_app(team, 70000).status == 400


def test_app_ends_with_the_session_that_opened_it(team: TeamCluster, app_port: int) -> None:
    token = team.log_in("alice")
    browser = Browser(team, app_port, token)
    assert browser.ask("GET", "/").status == 200
    assert team.ask("DELETE", "/api/v2/authn/basic/logout", token=token).status == 200
    refused = browser.ask("GET", "/")
    assert (refused.status, refused.text.splitlines()[0]) == (403, "The session of this app has ended.")


def test_app_ends_with_the_rights_that_opened_it(team: TeamCluster, app_port: int) -> None:
    """A former administrator has no app of another user, and no WebSocket that was opened before."""
    with team.as_administrator("bob"):
        browser = Browser(team, app_port, team.tokens["bob"])
        connection, response = browser.upgrade("/socket")
        response.begin()
        assert response.status == 101
        assert browser.ask("GET", "/").status == 200
    refused = browser.ask("GET", "/")
    assert (refused.status, refused.text.splitlines()[0]) == (403, "The session of this app has ended.")
    with connection:
        while connection.recv(1000):
            pass


def test_settings_name_the_ports_or_none(new_team: NewTeam) -> None:
    team = new_team("listen: {app-ports: null}\n")
    team.accept(job("serves", "sleep 600"))
    team.wait_state("serves", "RUNNING")
    refused = open_app(team, 80)
    assert (refused.status, refused.json()["code"]) == (501, "NoAppsError")
    team.stop("serves")
