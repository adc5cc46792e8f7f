"""Clusters over TLS and through a proxy: the same client on top of http.client."""

import socket
import ssl
import threading

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.client.follow_stream import FollowRequest, follow_stream
from openpaisdk.errors import ConnectionFailed, PaiError
from support import certificates
from support.http_peer import Peer, reply


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
    c = ClusterClient("team", Endpoint(p.uri, "me", "t", authority_file=str(certificate / "cert.pem")))
    assert c.jobs() == [] and c.jobs() == []
    assert p.connections == 1 and p.requests[0].headers["authorization"] == "Bearer t"


def test_verification_can_be_disabled(secure) -> None:
    p = secure(lambda r: reply([]))
    assert ClusterClient("team", Endpoint(p.uri, verify=False)).jobs() == []


def test_invalid_ca_file_is_a_one_line_error(secure, tmp_path) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    for path in (tmp_path / "bad.pem", tmp_path / "missing.pem"):
        with pytest.raises(PaiError, match=r"\.pem cannot be used"):
            ClusterClient("team", Endpoint("https://127.0.0.1:1", authority_file=str(path))).jobs()


def test_job_is_followed_over_tls(secure, certificate) -> None:
    frames = b'{"kind":"log","attempt":0,"taskAttempt":0,"offset":0,"size":3}\nabc'
    frames += b'{"kind":"end","state":"SUCCEEDED"}\n'
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    p = secure(lambda r: iter([head, b"%x\r\n%s\r\n" % (len(frames), frames), b"0\r\n\r\n"]))
    c = ClusterClient("team", Endpoint(p.uri, authority_file=str(certificate / "cert.pem")))
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
