"""Login of `paddlecloud` by password and certificate, and datacenters that do not answer as they should."""

import contextlib
import json
import os
import socket
import ssl

import pytest

from support.certificates import CertificateAuthority, certificate
from support.http_peer import Peer, reply
from support.ports import free_port


class TokenServer:
    """Issues tokens for one password and answers with the jobs of none."""

    def __init__(self):
        self.token = "first"
        self.password = "secret"
        self.peer = Peer(self._respond)

    def _respond(self, request):
        if request.path == "/api-token-auth/":
            if json.loads(request.body)["password"] != self.password:
                return reply({"non_field_errors": ["Unable to log in with provided credentials."]}, 400)
            return reply({"token": self.token})
        if request.headers.get("authorization") != f"Token {self.token}":
            return reply({"detail": "Invalid token."}, 401)
        return reply({"code": 200, "msg": [], "items": [], "terminating": []})

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.peer.requests]


@pytest.fixture(name="server")
def server_fixture(paddle_user):
    server = TokenServer()
    paddle_user.configure(f"dc1: {{username: u1, password: secret, endpoint: '{server.peer.uri}'}}")
    yield server
    server.peer.close()


HEADER = "NAMESPACE  NAME  DESIRED  SUCCESSFUL  AGE\n"


def test_token_is_fetched_once_and_private(paddle_user, server) -> None:
    for _ in range(2):
        done = paddle_user.paddlecloud("jobs")
        assert (done.status, done.out, done.err) == (0, HEADER, "")
    assert server.paths == ["/api-token-auth/", "/api/v1/jobs", "/api/v1/jobs"]
    assert (paddle_user.home / ".paddle/tokens.json").stat().st_mode & 0o777 == 0o600


def test_revoked_token_is_replaced(paddle_user, server) -> None:
    assert paddle_user.paddlecloud("jobs").status == 0
    server.token = "second"
    assert paddle_user.paddlecloud("jobs").status == 0
    assert server.paths[-3:] == ["/api/v1/jobs", "/api-token-auth/", "/api/v1/jobs"]


def test_damaged_token_file_is_replaced(paddle_user, server) -> None:
    (paddle_user.home / ".paddle/tokens.json").write_text("[")
    assert paddle_user.paddlecloud("jobs").status == 0


def test_each_datacenter_has_its_own_token(paddle_user, server) -> None:
    other = TokenServer()
    other.token = "of the other"
    entry = "{{name: {}, username: u1, password: secret, endpoint: '{}'}}"
    items = (entry.format("dc1", server.peer.uri), entry.format("dc2", other.peer.uri))
    paddle_user.configure(f"datacenters: [{', '.join(items)}]\ncurrent-datacenter: dc2\n")
    for words in (["jobs"], ["jobs", "-datacenter", "dc1"], ["jobs"]):
        assert paddle_user.paddlecloud(*words).status == 0
    assert server.paths == ["/api-token-auth/", "/api/v1/jobs"]
    assert other.paths == ["/api-token-auth/", "/api/v1/jobs", "/api/v1/jobs"]
    other.peer.close()


def test_stored_token_is_not_for_another_password(paddle_user, server) -> None:
    """A second entry for the same user and address, with a wrong password, is refused."""
    entry = "{{name: {}, username: u1, password: {}, endpoint: '{}'}}"
    items = (entry.format(*one, server.peer.uri) for one in (("dc1", "secret"), ("dc2", "wrong")))
    paddle_user.configure(f"datacenters: [{', '.join(items)}]\n")
    assert paddle_user.paddlecloud("jobs").status == 0
    done = paddle_user.paddlecloud("jobs", "-datacenter", "dc2")
    assert (done.status, "does not accept the password of u1" in done.err) == (1, True), done
    assert paddle_user.paddlecloud("jobs").status == 0
    assert server.paths.count("/api-token-auth/") == 2
    assert "secret" not in (paddle_user.home / ".paddle/tokens.json").read_text()


def test_wrong_password(paddle_user, server) -> None:
    server.password = "another"
    done = paddle_user.paddlecloud("get", "jobs")
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        "paddlecloud: The datacenter dc1 does not accept the password of u1.\n"
        "             Correct username or password in ~/.paddle/config.\n"
    )


def test_neither_password_nor_certificate(paddle_user) -> None:
    paddle_user.configure("dc1: {username: u1, endpoint: 'http://127.0.0.1:1'}")
    done = paddle_user.paddlecloud("jobs")
    assert (done.status, "has neither a certificate nor a user name and a password" in done.err) == (1, True)


def test_certificate_needs_tls(paddle_user) -> None:
    paddle_user.configure("dc1: {usercert: /a, userkey: /b, endpoint: 'http://127.0.0.1:1'}")
    done = paddle_user.paddlecloud("jobs")
    assert (done.status, "its endpoint is plain HTTP" in done.err) == (1, True)


def test_nothing_listens_there(paddle_user) -> None:
    port = free_port()
    paddle_user.configure(f"dc1: {{username: u, password: p, endpoint: '127.0.0.1:{port}'}}")
    done = paddle_user.paddlecloud("jobs")
    assert done.status == 1
    assert "nothing listens there" in done.err
    assert "Check endpoint of dc1 in ~/.paddle/config." in done.err


@pytest.mark.parametrize("endpoint", ["ftp://host", "http://", "http://u:p@host", "host:99999"])
def test_unusable_endpoint(paddle_user, endpoint: str) -> None:
    paddle_user.configure(f"dc1: {{username: u, password: p, endpoint: '{endpoint}'}}")
    done = paddle_user.paddlecloud("jobs")
    assert done.status == 1
    assert "The endpoint of the datacenter dc1 cannot be used" in done.err


@pytest.mark.parametrize("body", [b"<html>", b"[]", b""])
def test_server_that_is_not_paddlecloud(paddle_user, body: bytes) -> None:
    peer = Peer(lambda request: reply(body))
    paddle_user.configure(f"dc1: {{username: u, password: p, endpoint: '{peer.uri}'}}")
    done = paddle_user.paddlecloud("jobs")
    peer.close()
    assert (done.status, "is not one of PaddleCloud" in done.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["kill", "j"], {"code": 500, "msg": "no job j"}),
        (["get", "jobs"], {"code": 500, "msg": "no job j"}),
        (["get", "workers"], {"code": 500, "msg": "no job j"}),
        (["get", "quota"], {"code": 500, "msg": "no job j"}),
        (["logs", "-w", "pod", "j"], {"code": 500, "msg": "no job j"}),
        (["submit", "/pfs/dc1/home/u/p"], {"code": 500, "msg": "no job j"}),
        (["submit", "-jobname", "j", "/pfs/dc1/home/u/p"], {"msg": "no job j"}),
        (["pfs", "rm", "/pfs/dc1/home/u/p"], {"err": "no job j", "results": None}),
        (["pfs", "mkdir", "/pfs/dc1/home/u/p"], {"err": "no job j", "results": None}),
        (["pfs", "ls", "/pfs/dc1/home/u/p"], {"err": "no job j", "results": None}),
        (["file", "ls", "/pfs/dc1/home/u/p"], {"msg": "no job j"}),
        (["file", "get", "/pfs/dc1/home/u/p", "here"], {"msg": "no job j"}),
        (["publish", "/pfs/dc1/home/u/p"], {"msg": "no job j"}),
        (["delete", "registry", "r"], {"code": 500, "msg": "no job j"}),
        (
            ["registry", "-name", "a", "-username", "b", "-password", "c", "-server", "d"],
            {"code": 500, "msg": "no job j"},
        ),
    ],
)
def test_application_errors_are_failures_of_the_command(paddle_user, words: list[str], answer) -> None:
    def respond(request):
        token = {"token": "t"} if request.path == "/api-token-auth/" else answer
        return reply(token, 200, "Content-Type: application/json")

    peer = Peer(respond)
    paddle_user.configure(f"dc1: {{username: u, password: p, endpoint: '{peer.uri}'}}")
    done = paddle_user.paddlecloud(*words)
    peer.close()
    assert done.status == 1, done
    assert done.err == "paddlecloud: no job j.\n"
    assert os.listdir(paddle_user.project) == []


# -- certificates ------------------------------------------------------------------------------


class TlsPeer(Peer):
    """Asks for a certificate of its authority without demanding one, and knows the user by it."""

    def __init__(self, folder, authority: CertificateAuthority):
        self.users: list[str] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        self._context.load_verify_locations(authority.file)
        self._context.verify_mode = ssl.CERT_OPTIONAL
        super().__init__(lambda request: reply({"code": 200, "msg": [], "items": [], "user": "alice"}))
        self.uri = f"https://127.0.0.1:{self.port}"

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            secure = self._context.wrap_socket(sock, server_side=True)
            found = secure.getpeercert() or {}
            self.users += [
                value for rdn in found.get("subject", ()) for key, value in rdn if key == "commonName"
            ]
            super()._serve(secure)


@pytest.fixture(name="tls")
def tls_fixture(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    certificate(folder, "127.0.0.1")
    authority = CertificateAuthority(folder)
    peer = TlsPeer(folder, authority)
    peer.folder, peer.authority = folder, authority
    yield peer
    peer.close()


def configure(user, peer, files, endpoint: str = "") -> None:
    cert, key = files
    user.configure(
        f"dc1:\n  usercert: {cert}\n  userkey: {key}\n  cacert: {peer.folder}/cert.pem\n"
        f"  endpoint: {endpoint or peer.uri}\n"
    )


def test_certificate_is_sent_instead_of_a_token(paddle_user, tls, tmp_path) -> None:
    configure(paddle_user, tls, tls.authority.issue(tmp_path, "alice"), f"127.0.0.1:{tls.port}")
    done = paddle_user.paddlecloud("jobs")
    assert (done.status, done.out) == (0, HEADER), done
    assert set(tls.users) == {"alice"}
    assert all("authorization" not in request.headers for request in tls.requests)


def test_expired_certificate(paddle_user, tls, tmp_path) -> None:
    configure(paddle_user, tls, tls.authority.issue(tmp_path, "alice", days=-1))
    done = paddle_user.paddlecloud("jobs")
    assert (done.status, "your certificate has expired" in done.err) == (1, True), done
    assert "Traceback" not in done.err


def test_certificate_of_another_authority(paddle_user, tls, tmp_path) -> None:
    (tmp_path / "other").mkdir()
    files = CertificateAuthority(tmp_path / "other", "Another cluster").issue(tmp_path, "alice")
    configure(paddle_user, tls, files)
    done = paddle_user.paddlecloud("jobs")
    assert done.status == 1
    # The server closes the connection, and its alert may be lost with it.
    known = "your certificate was issued by an authority that it does not know" in done.err
    assert known or f"It may refuse your certificate {files[0]}" in done.err, done


def test_certificate_that_is_not_there_or_not_one(paddle_user, tls, tmp_path) -> None:
    configure(paddle_user, tls, (tmp_path / "nope.pem", tmp_path / "nope-key.pem"))
    done = paddle_user.paddlecloud("jobs")
    assert (done.status, "nope.pem cannot be read" in done.err) == (1, True)
    cert, _ = tls.authority.issue(tmp_path, "alice")
    _, other_key = tls.authority.issue(tmp_path, "bob")
    configure(paddle_user, tls, (cert, other_key))
    done = paddle_user.paddlecloud("jobs")
    assert (done.status, "are not a certificate and its unencrypted key" in done.err) == (1, True)
    (tmp_path / "text").write_text("no certificate")
    configure(paddle_user, tls, (tmp_path / "text", tmp_path / "text"))
    done = paddle_user.paddlecloud("jobs")
    assert (done.status, "are not a certificate and its unencrypted key" in done.err) == (1, True)


def test_server_whose_certificate_is_not_trusted(paddle_user, tls, tmp_path) -> None:
    cert, key = tls.authority.issue(tmp_path, "alice")
    paddle_user.configure(f"dc1: {{usercert: {cert}, userkey: {key}, endpoint: '{tls.uri}'}}")
    done = paddle_user.paddlecloud("jobs")
    assert (done.status, "its certificate is not trusted" in done.err) == (1, True)
    assert "cacert" in done.err
    assert paddle_user.paddlecloud("jobs", env={"SSL_CERT_FILE": f"{tls.folder}/cert.pem"}).status == 0


def test_response_that_breaks_off_is_requested_again(paddle_user, server) -> None:
    broken = [b"HTTP/1.1 200 X\r\nContent-Length: 500\r\n\r\n{", b"HTTP/1.1 200 X\r\n"]
    answer = server.peer.respond

    def respond(request):
        if request.path == "/api/v1/jobs" and broken:
            return iter([broken.pop()])
        return answer(request)

    server.peer.respond = respond
    done = paddle_user.paddlecloud("jobs")
    assert (done.status, done.out, done.err) == (0, HEADER, "")
    assert server.paths.count("/api/v1/jobs") == 3


NONSENSE = {
    "nothing": b"",
    "text": b"SSH-2.0-OpenSSH_9.2\r\n",
    "page": reply(b"<html>Sign in to the proxy</html>"),
    "empty": reply(b""),
    "null": reply(None),
    "list": reply([[{}]]),
    "number": reply(5),
    "other types": reply({"code": {}, "msg": 5, "items": {"a": 1}, "token": [], "err": {}, "results": 7}),
    "items": reply(
        {"code": 200, "msg": [], "items": [None, 5, [], {"metadata": 5}], "err": "", "results": [5]}
    ),
    "deep": reply(b"[" * 100_000),
    "huge number": reply(b'{"code": ' + b"9" * 5000 + b"}"),
    "control characters": reply({"detail": "\x1b]52;c;aGk=\x07", "msg": "\x1b[2J", "err": "\x1b[2J"}, 400),
    "invalid length": b"HTTP/1.1 200 X\r\nContent-Length: -5\r\n\r\n",
    "invalid chunk": b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "long header": b"HTTP/1.1 200 X\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
}
COMMANDS = (
    "jobs",
    "get jobs",
    "quota",
    "logs j",
    "kill j",
    "pods",
    "registry",
    "file ls /pfs/dc1/home/u1/x",
    "ls /pfs/dc1/home/u1/x",
    "cp /pfs/dc1/home/u1/x y",
    "rm /pfs/dc1/home/u1/x",
    "mkdir /pfs/dc1/home/u1/x",
)


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_is_answered_with_a_sentence(paddle_user, server, what: str) -> None:
    """By a server that knows the user, and by one that does not."""
    assert paddle_user.paddlecloud("jobs").status == 0
    answer = server.peer.respond
    for knows in (True, False):
        server.peer.respond = lambda request, knows=knows: (
            answer(request) if knows and request.path == "/api-token-auth/" else iter([NONSENSE[what]])
        )
        if not knows:
            (paddle_user.home / ".paddle/tokens.json").unlink(missing_ok=True)
        for command in COMMANDS:
            done = paddle_user.paddlecloud(*command.split())
            said = done.out + done.err
            assert "bug in paddlecloud" not in said and "Traceback" not in said, (command, done)
            assert "\x1b" not in said, (command, done)
            assert done.status == 0 or 0 < len(done.err.splitlines()) <= 4, (command, done)


def test_redirect_gets_no_token(paddle_user, server) -> None:
    other = Peer(lambda _: reply({}))
    assert paddle_user.paddlecloud("jobs").status == 0
    server.peer.respond = lambda _: reply(b"", 307, f"Location: {other.uri}/")
    done = paddle_user.paddlecloud("jobs")
    assert done.status == 1 and f"redirects to {other.uri}" in done.err
    assert other.requests == []
    other.close()
