"""Whatever is put into an address, it stays below the root."""

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
def trapped(cluster: StorageCluster) -> StorageCluster:
    """The storage of the cluster, with links that lead to a secret in its home."""
    (cluster.home / "secret").write_bytes(b"THE SECRET")
    admin = cluster.person("admin")
    admin.put("MKDIRS", "/traps")
    for place in (cluster.home / "storage/traps", cluster.home / "storage"):
        (place / "up").symlink_to(cluster.home)
        (place / "away").symlink_to(cluster.home / "secret")
    return cluster


def ask(cluster: StorageCluster, method: str, target: str, body: bytes = b"") -> bytes:
    """A request line as it is: no client cleans it up."""
    with socket.create_connection(cluster.address, timeout=20) as connection:
        connection.sendall(
            f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
            f"Authorization: Bearer {cluster.tokens['admin']}\r\n\r\n".encode("utf-8", "surrogateescape")
            + body
        )
        answer = b""
        while data := connection.recv(65536):
            answer += data
        return answer


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(_PIECES), min_size=1, max_size=6),
    st.sampled_from(["", "/", "/traps/", "/traps/up/", "/../", "/%2e%2e/"]),
)
def test_nothing_outside_is_read_or_written(trapped: StorageCluster, pieces: list[str], lead: str) -> None:
    target = "/webhdfs/v1" + lead + "/".join(pieces)
    for method, op in (
        ("GET", "OPEN"),
        ("GET", "LISTSTATUS"),
        ("PUT", "MKDIRS"),
        ("PUT", "CREATE&data=true"),
    ):
        answer = ask(trapped, method, f"{target}?op={op}", b"written")
        assert b"THE SECRET" not in answer
        assert b"cluster.db" not in answer
        assert str(trapped.home).encode() not in answer
        assert b"X-Evil" not in answer.partition(b"\r\n\r\n")[0]
    answer = ask(trapped, "PUT", f"/webhdfs/v1/traps?op=RENAME&destination={'/'.join(pieces)}")
    assert b" 500 " not in answer.partition(b"\r\n")[0]
    if b'"boolean":true' in answer:
        ask(trapped, "DELETE", f"/webhdfs/v1{'/'.join(pieces)}/traps?op=DELETE&recursive=true")
        (trapped.home / "storage/traps").mkdir(exist_ok=True)
    assert (trapped.home / "secret").read_bytes() == b"THE SECRET"
    assert {"storage", "secret", "cluster.db"} <= {item.name for item in trapped.home.iterdir()}
    assert not {"written", "new"} & {item.name for item in trapped.home.iterdir()}


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_get_an_answer(cluster: StorageCluster, path: bytes, query: bytes) -> None:
    encoded = "".join(f"%{byte:02x}" for byte in path)
    value = "".join(f"%{byte:02x}" for byte in query)
    for op in ("GETFILESTATUS", "LISTSTATUS_BATCH", "GETCONTENTSUMMARY"):
        answer = ask(cluster, "GET", f"/webhdfs/v1/{encoded}?op={op}&startAfter={value}&doas={value}")
        assert answer.split(b" ", 2)[1] in (b"200", b"400", b"401", b"403", b"404"), answer
