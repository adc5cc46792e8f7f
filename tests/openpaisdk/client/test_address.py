"""Cluster addresses as users type them."""

import pytest

from openpaisdk.client.address import parse_uri
from paiprotocol.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pai.example.org", "http://pai.example.org"),
        ("http://pai.example.org/", "http://pai.example.org"),
        ("HTTPS://pai.example.org:8443/x/", "https://pai.example.org:8443/x"),
        ("http://[::1]:80", "http://[::1]"),
        ("http://10.0.0.1:9186", "http://10.0.0.1:9186"),
        ("https://a:443", "https://a"),
        ("https://a:80", "https://a:80"),
    ],
)
def test_cluster_address_is_parsed(typed: str, meant: str) -> None:
    assert str(parse_uri(typed)) == meant


@pytest.mark.parametrize(
    "typed", ["", "http://", "ftp://x", "http://a:port", "http://a:0", "http://a b", "http://a:99999"]
)
def test_invalid_address_is_rejected(typed: str) -> None:
    with pytest.raises(UsageError):
        parse_uri(typed)


def test_password_in_address_is_rejected_and_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        parse_uri("http://me:secret@host")
    assert "secret" not in str(caught.value)


def test_loopback_addresses_are_recognised() -> None:
    for uri in ("http://127.0.0.1:1", "http://localhost", "http://[::1]:1", "http://127.9.9.9"):
        assert parse_uri(uri).is_loopback
    for uri in ("http://127.example.org", "http://10.0.0.1", "http://localhost.example.org"):
        assert not parse_uri(uri).is_loopback
