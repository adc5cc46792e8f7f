"""curl commands of Hadoop's WebHDFS documentation."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.external_services import debian
from support.webhdfs_client import StorageCluster, WebHdfsClient

pytestmark = pytest.mark.service


def curl(cluster: StorageCluster, *arguments: str) -> str:
    debian(["curl"], commands=["curl"])
    program = shutil.which("curl")
    assert program is not None
    done = subprocess.run(
        [program, "-sS", "--fail-with-body", "--noproxy", "*", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_curl_creates_and_reads_a_file(
    cluster: StorageCluster, alice: WebHdfsClient, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"0123456789" * 300_000)
    url = f"{cluster.url}/webhdfs/v1{folder}/file?delegation={alice.token}"
    head = curl(cluster, "-i", "-X", "PUT", f"{url}&op=CREATE")
    location = next(line.split(": ")[1] for line in head.splitlines() if line.lower().startswith("location"))
    curl(cluster, "-X", "PUT", "-T", str(tmp_path / "file"), location)
    curl(cluster, "-L", f"{url}&op=OPEN", "-o", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()
    # With `-L` the first request has the body and expects 100-continue.
    curl(cluster, "-L", "-T", str(tmp_path / "file"), f"{url}&op=CREATE&overwrite=true")
    curl(cluster, "-L", "-X", "POST", "-T", str(tmp_path / "file"), f"{url}&op=APPEND")
    assert curl(cluster, f"{url}&op=GETFILESTATUS").count('"length":6000000') == 1
    assert curl(cluster, "-r", "2999998-3000001", f"{url}&op=OPEN") == "8901"
    assert curl(cluster, "-X", "DELETE", f"{url}&op=DELETE") == '{"boolean":true}'
