"""Listings of an untrusted storage: its names must not lead out of the target."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from openpaisdk.client import Endpoint
from openpaisdk.storage.backends.connection_pool import ConnectionPool
from openpaisdk.storage.backends.webhdfs import WebHdfs
from openpaisdk.storage.fsspec_filesystem import PaiFileSystem
from paiprotocol.errors import PaiError

WAYS_OUT = ["../out", "..", ".", "/etc/out", "a/b", "", "nul\0byte"]


class UntrustedHdfs(ThreadingHTTPServer):
    """HDFS server whose folders list configured names and whose files contain `bad`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.listed: list[dict[str, object]] = []
        self.remaining: int | None = 0
        """Reported number of remaining entries; None: batches are not supported."""
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: UntrustedHdfs

    def do_GET(self) -> None:
        folder = self.path.partition("?")[0] in ("/webhdfs/v1/d", "/webhdfs/v1/")
        listed = {"FileStatuses": {"FileStatus": self.server.listed}}
        if "op=LISTSTATUS_BATCH" in self.path and self.server.remaining is not None:
            batch = {"partialListing": listed, "remainingEntries": self.server.remaining}
            body = json.dumps({"DirectoryListing": batch}).encode()
        elif "op=LISTSTATUS_BATCH" in self.path:
            why = 'Invalid value for webhdfs parameter "op": No enum constant'
            said = {"exception": "IllegalArgumentException", "javaClassName": "x", "message": why}
            self._answer(400, json.dumps({"RemoteException": said}).encode(), "application/json")
            return
        elif "op=LISTSTATUS" in self.path:
            body = json.dumps(listed).encode()
        elif "op=GETFILESTATUS" in self.path:
            said = {"type": "DIRECTORY" if folder else "FILE", "length": 3, "permission": "999"}
            body = json.dumps({"FileStatus": said}).encode()
        else:
            body = b"bad"
        self._answer(200, body, "application/octet-stream" if "op=OPEN" in self.path else "application/json")

    def do_PUT(self) -> None:
        self._answer(200, b"<html>the page of a proxy</html>", "text/html")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def untrusted_hdfs() -> Iterator[UntrustedHdfs]:
    made = UntrustedHdfs()
    yield made
    made.shutdown()
    made.server_close()


def test_listing_rejects_names_that_lead_out(untrusted_hdfs: UntrustedHdfs) -> None:
    storage = WebHdfs(
        ConnectionPool("untrusted_hdfs", Endpoint(untrusted_hdfs.url, "me", "")),
        url="pai://untrusted_hdfs/hdfs",
        user="me",
    )
    good = {"pathSuffix": "good", "type": "FILE", "length": 3}
    for name in WAYS_OUT:
        for kind in ("FILE", "DIRECTORY"):
            untrusted_hdfs.listed = [good, {"pathSuffix": name, "type": kind, "length": 3}]
            with pytest.raises(PaiError, match="is not a valid name"):
                storage.list_folder("/d")
    untrusted_hdfs.listed = [good]
    assert [entry.name for entry in storage.list_folder("/d")] == ["good"]
    untrusted_hdfs.listed = [{"pathSuffix": "", "type": "FILE", "length": 3}]  # how HDFS lists a file
    assert [entry.name for entry in storage.list_folder("/d/f")] == ["f"]
    storage.close()


def test_hdfs_without_batches_is_listed_in_one_request(untrusted_hdfs: UntrustedHdfs) -> None:
    storage = WebHdfs(
        ConnectionPool("untrusted_hdfs", Endpoint(untrusted_hdfs.url, "me", "")),
        url="pai://untrusted_hdfs/hdfs",
        user="me",
    )
    untrusted_hdfs.remaining = None
    assert storage.is_empty("/d") and storage.list_folder("/d") == []
    untrusted_hdfs.listed = [{"pathSuffix": name, "type": "FILE", "length": 3} for name in ("b", "a")]
    assert [entry.name for entry in storage.list_folder("/d")] == ["a", "b"] and not storage.is_empty("/d")
    storage.close()


@pytest.mark.parametrize("remaining", [1, -1, "none", []])
def test_endless_listing_is_rejected(untrusted_hdfs: UntrustedHdfs, remaining: int) -> None:
    storage = WebHdfs(
        ConnectionPool("untrusted_hdfs", Endpoint(untrusted_hdfs.url, "me", "")),
        url="pai://untrusted_hdfs/hdfs",
        user="me",
    )
    untrusted_hdfs.listed, untrusted_hdfs.remaining = (
        [{"pathSuffix": "a", "type": "FILE", "length": 3}],
        remaining,
    )
    with pytest.raises(PaiError, match="sent a response that is not WebHDFS"):
        storage.list_folder("/d")
    untrusted_hdfs.listed = []
    with pytest.raises(PaiError, match="sent a response that is not WebHDFS"):
        storage.list_folder("/d")
    storage.close()


def test_fsspec_writes_nothing_outside_the_target(
    untrusted_hdfs: UntrustedHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    book = tmp_path / "home/.openpai/clusters.yaml"
    book.parent.mkdir(parents=True)
    storage = {"name": "hdfs", "type": "hdfs", "webhdfs": untrusted_hdfs.url, "path": "/"}
    book.write_text(
        json.dumps(
            [{"cluster_alias": "untrusted_hdfs", "type": "storage-hdfs", "user": "me", "storages": [storage]}]
        )
    )
    fs = PaiFileSystem(skip_instance_cache=True)
    good = {"pathSuffix": "good", "type": "FILE", "length": 3}
    for name in WAYS_OUT:
        untrusted_hdfs.listed = [good, {"pathSuffix": name, "type": "FILE", "length": 3}]
        fs.invalidate_cache()
        with pytest.raises(OSError, match="is not a valid name"):
            fs.get("pai://untrusted_hdfs/hdfs/d", str(tmp_path / "in/here"), recursive=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
    untrusted_hdfs.listed = [good]
    fs.invalidate_cache()
    fs.get("pai://untrusted_hdfs/hdfs/d", str(tmp_path / "in"), recursive=True)
    assert fs.find("pai://untrusted_hdfs/hdfs/d") == ["untrusted_hdfs/hdfs/d/good"]
    assert (tmp_path / "in/good").read_bytes() == b"bad"


def test_page_of_a_proxy_is_not_taken_for_a_rename(untrusted_hdfs: UntrustedHdfs) -> None:
    storage = WebHdfs(
        ConnectionPool("untrusted_hdfs", Endpoint(untrusted_hdfs.url, "me", "")),
        url="pai://untrusted_hdfs/hdfs",
        user="me",
    )
    with pytest.raises(PaiError, match="sent a response that is not WebHDFS"):
        storage.rename("/a", "/b")
    storage.close()
