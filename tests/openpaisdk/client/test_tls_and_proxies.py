"""Clusters over TLS and through a proxy: the same client on other sockets."""

import socket
import ssl
import threading

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.client.follow_stream import FollowRequest, follow_stream
from paiprotocol.errors import ConnectionFailed, PaiError
from pairuntime.transport.http1 import Body
from support import certificates
from support.http_peer import Peer, reply, upgrade_with_first_bytes


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1."""
    return certificates.certificate(tmp_path_factory.mktemp("tls"), "127.0.0.1")


class SecurePeer(Peer):
    def __init__(self, respond, certificate):
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        super().__init__(respond)
        self.uri = f"https://127.0.0.1:{self.port}"

    def _serve(self, sock: socket.socket) -> None:
        try:
            sock = self.context.wrap_socket(sock, server_side=True)
        except OSError:
            return
        super()._serve(sock)


@pytest.fixture
def secure(certificate):
    peers = []

    def make(respond) -> SecurePeer:
        peers.append(SecurePeer(respond, certificate))
        return peers[-1]

    yield make
    for p in peers:
        p.close()


def test_untrusted_certificate_is_rejected_with_a_hint(secure) -> None:
    p = secure(lambda r: reply([]))
    with pytest.raises(ConnectionFailed, match="certificate is not trusted by this machine") as caught:
        ClusterClient("team", Endpoint(p.uri, "me", "t")).jobs()
    assert "--ca" in caught.value.hint and "--insecure" in caught.value.hint
    assert p.requests == []


def test_self_signed_certificate_can_be_trusted(secure, certificate) -> None:
    p = secure(lambda r: reply([]))
    c = ClusterClient("team", Endpoint(p.uri, "me", "t", ca_file=str(certificate / "cert.pem")))
    assert c.jobs() == [] and c.jobs() == []
    assert p.connections == 1 and p.requests[0].headers["authorization"] == "Bearer t"


def test_verification_can_be_disabled(secure) -> None:
    p = secure(lambda r: reply([]))
    assert ClusterClient("team", Endpoint(p.uri, verify=False)).jobs() == []


def test_invalid_ca_file_is_a_one_line_error(secure, tmp_path) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    for path in (tmp_path / "bad.pem", tmp_path / "missing.pem"):
        with pytest.raises(PaiError, match=r"\.pem cannot be used"):
            ClusterClient("team", Endpoint("https://127.0.0.1:1", ca_file=str(path))).jobs()


def test_job_is_followed_over_tls(secure, certificate) -> None:
    frames = b'{"kind":"log","attempt":0,"taskAttempt":0,"offset":0,"size":3}\nabc'
    frames += b'{"kind":"end","state":"SUCCEEDED"}\n'
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    p = secure(lambda r: iter([head, b"%x\r\n%s\r\n" % (len(frames), frames), b"0\r\n\r\n"]))
    c = ClusterClient("team", Endpoint(p.uri, ca_file=str(certificate / "cert.pem")))
    assert b"".join(f.data for f in follow_stream(c, FollowRequest("j"))) == b"abc"


def test_tls_is_tunnelled_through_a_proxy(secure, certificate, monkeypatch) -> None:
    p = secure(lambda r: reply([]))
    requests = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def carry(a: socket.socket, b: socket.socket) -> None:
            try:
                while data := a.recv(65536):
                    b.sendall(data)
            except OSError:
                pass

        def proxy() -> None:
            client, _ = listener.accept()
            requests.append(client.recv(65536).split(b"\r\n")[0].decode())
            client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            server = socket.create_connection(("127.0.0.1", p.port))
            threading.Thread(target=carry, args=(server, client), daemon=True).start()
            carry(client, server)

        threading.Thread(target=proxy, daemon=True).start()
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        c = ClusterClient("team", Endpoint(f"https://pai.example.org:{p.port}", verify=False))
        assert c.jobs() == []
        c.close()
    assert requests[0].startswith(f"CONNECT pai.example.org:{p.port} ")


def test_first_bytes_of_the_new_protocol_come_with_the_response(secure) -> None:
    """A server may send both at once: they are one read of the client."""
    first = b"\x82\x05hello"
    p = secure(lambda request: upgrade_with_first_bytes(request, first, b"\x82\x01!"))
    transport = ClusterClient("team", Endpoint(p.uri, verify=False)).transport
    sock, received = transport.upgrade("/", {}, "any")
    with sock:
        while part := sock.recv(100):
            received += part
    assert received == first + b"\x82\x01!"


def test_body_that_a_plain_socket_sends_by_the_kernel_is_encrypted(secure) -> None:
    class FileBody(Body):
        def chunks(self):
            yield b"abc"
            yield memoryview(b"d" * 100_000)

        def send(self, sock: socket.socket) -> None:
            raise AssertionError("sendfile would write to the socket below TLS")

    p = secure(lambda r: reply(r.body))
    transport = ClusterClient("team", Endpoint(p.uri, verify=False)).transport
    assert transport.request("PUT", "/", body=FileBody(100_003)).read() == b"abc" + b"d" * 100_000


def use_proxy(monkeypatch, name: str, address: str) -> None:
    for each in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, address)


def test_proxy_gets_whole_addresses_and_its_credentials(peer, monkeypatch) -> None:
    p = peer(lambda r: reply([]))
    use_proxy(monkeypatch, "http_proxy", f"http://me:se%40cret@127.0.0.1:{p.port}")
    c = ClusterClient("team", Endpoint("http://pai.example.org/x", "me", "t"))
    assert c.jobs() == [] and c.jobs() == []
    assert p.connections == 1 and p.requests[0].target.startswith("http://pai.example.org/x/rest-server/api/")
    assert p.requests[0].headers["host"] == "pai.example.org"
    assert p.requests[0].headers["proxy-authorization"] == "Basic bWU6c2VAY3JldA=="


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (reply(b"no", 403), "tunnel connection failed: 403 X"),
        (b"SSH-2.0-x\r\n\r\n", "the proxy at this address does not speak HTTP"),
        (None, "the proxy closed the connection"),
    ],
)
def test_proxy_that_opens_no_tunnel_is_reported(peer, monkeypatch, response, reason: str) -> None:
    p = peer(lambda r: response)
    use_proxy(monkeypatch, "https_proxy", f"http://127.0.0.1:{p.port}")
    with pytest.raises(ConnectionFailed) as caught:
        ClusterClient("team", Endpoint("https://pai.example.org")).jobs()
    assert reason.lower() in caught.value.message
    assert {r.method for r in p.requests} == {"CONNECT"} and p.requests[0].target == "pai.example.org:443"


def test_silent_tls_server_times_out(monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"https://127.0.0.1:{listener.getsockname()[1]}"
        c = ClusterClient("team", Endpoint(uri, verify=False))
        c.transport.shorten_timeouts(0.2)
        with pytest.raises(ConnectionFailed, match="no connection could be established in time"):
            c.jobs()
