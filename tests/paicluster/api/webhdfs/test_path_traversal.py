"""No URL leads outside the storage."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.webhdfs_client import StorageCluster

_PIECES = [
    *(
        "..",
        ".",
        "%2e",
        "%2e%2e",
        "%2E.",
        "%2f",
        "%5c",
        "\\",
        "%00",
        "%c0%ae%c0%ae",
        "%252e%252e",
        "//",
        "%ff",
    ),
    *(
        "up",
        "away",
        "user",
        "alice",
        "etc",
        "passwd",
        "secret",
        ".pai",
        "%2epai",
        ";x=y",
        "%e2%80%a5",
        "x" * 256,
    ),
    *("%ef%bc%8e%ef%bc%8e", "%u002e", "~", "%3f", "%23", "+", "*", "a:b", "%0d%0aX-Evil:%20yes"),
]


@pytest.fixture(scope="module")
def cluster_with_links(cluster: StorageCluster) -> StorageCluster:
    """Cluster whose storage has links to a secret in its home."""
    (cluster.home / "secret").write_bytes(b"THE SECRET")
    admin = cluster.client("admin")
    admin.put("MKDIRS", "/traps")
    for folder in (cluster.home / "storage/traps", cluster.home / "storage"):
        (folder / "up").symlink_to(cluster.home)
        (folder / "away").symlink_to(cluster.home / "secret")
    return cluster


def send(cluster: StorageCluster, method: str, target: str, body: bytes = b"") -> bytes:
    """Send a request line unchanged: no client normalises it."""
    with socket.create_connection(cluster.address, timeout=90) as connection:
        connection.sendall(
            f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
            f"Authorization: Bearer {cluster.tokens['admin']}\r\n\r\n".encode("utf-8", "surrogateescape")
            + body
        )
        response = b""
        while data := connection.recv(65536):
            response += data
        return response


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(_PIECES), min_size=1, max_size=6),
    st.sampled_from(["", "/", "/traps/", "/traps/up/", "/../", "/%2e%2e/"]),
)
def test_no_url_reads_or_writes_anything_outside(
    cluster_with_links: StorageCluster, pieces: list[str], lead: str
) -> None:
    target = "/webhdfs/v1" + lead + "/".join(pieces)
    for method, op in (
        ("GET", "OPEN"),
        ("GET", "LISTSTATUS"),
        ("PUT", "MKDIRS"),
        ("PUT", "CREATE&data=true"),
    ):
        response = send(cluster_with_links, method, f"{target}?op={op}", b"written")
        assert b"THE SECRET" not in response
        assert b"cluster.db" not in response
        assert str(cluster_with_links.home).encode() not in response
        assert b"X-Evil" not in response.partition(b"\r\n\r\n")[0]
    response = send(cluster_with_links, "PUT", f"/webhdfs/v1/traps?op=RENAME&destination={'/'.join(pieces)}")
    assert b" 500 " not in response.partition(b"\r\n")[0]
    if b'"boolean":true' in response:
        send(cluster_with_links, "DELETE", f"/webhdfs/v1{'/'.join(pieces)}/traps?op=DELETE&recursive=true")
        (cluster_with_links.home / "storage/traps").mkdir(exist_ok=True)
    assert (cluster_with_links.home / "secret").read_bytes() == b"THE SECRET"
    assert {"storage", "secret", "cluster.db"} <= {item.name for item in cluster_with_links.home.iterdir()}
    assert not {"written", "new"} & {item.name for item in cluster_with_links.home.iterdir()}


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_arbitrary_bytes_get_a_valid_response(cluster: StorageCluster, path: bytes, query: bytes) -> None:
    encoded = "".join(f"%{byte:02x}" for byte in path)
    value = "".join(f"%{byte:02x}" for byte in query)
    for op in ("GETFILESTATUS", "LISTSTATUS_BATCH", "GETCONTENTSUMMARY"):
        response = send(cluster, "GET", f"/webhdfs/v1/{encoded}?op={op}&startAfter={value}&doas={value}")
        assert response.split(b" ", 2)[1] in (b"200", b"400", b"401", b"403", b"404"), response
