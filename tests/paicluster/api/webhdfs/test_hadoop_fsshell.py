"""Hadoop's FsShell with a delegation token in a file, as on a secured cluster."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from support.external_services import debian
from support.hadoop import jars
from support.webhdfs_client import StorageCluster, WebHdfsClient

pytestmark = [pytest.mark.slow, pytest.mark.service]

# A few jars of this Spark version contain Hadoop's whole client.
_SPARK = "3.5.1"
_JAR_PREFIXES = ("hadoop-client-", "commons-", "slf4j-", "log4j-", "jcl-over-")


@pytest.fixture(scope="session")
def client_jars() -> Path:
    return jars(_SPARK, _JAR_PREFIXES)


class FsShell:
    def __init__(self, client_jars: Path, scratch: Path, cluster: StorageCluster, token: str):
        debian(["default-jre-headless"], commands=["java"])
        self.base = "webhdfs://{}:{}".format(*cluster.address)
        self.scratch = scratch
        (scratch / "conf").mkdir()
        (scratch / "conf/core-site.xml").write_text("<configuration/>")
        service = self.base.partition("://")[2].encode()
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        # Hadoop's token file: magic, version, one token with its service, no secret keys.
        token_file = b"HDTS\0" + b"\1" + bytes([len(service)]) + service + raw + b"\0"
        (scratch / "tokens").write_bytes(token_file)
        self._command = [
            *("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *("-cp", f"{scratch / 'conf'}:{client_jars}/*", "org.apache.hadoop.fs.FsShell"),
        ]

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """Arguments that begin with `:` are paths of the storage."""
        expanded = [self.base + argument[1:] if argument[:1] == ":" else argument for argument in arguments]
        done = subprocess.run(
            [*self._command, *expanded],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=self.scratch,
            env={
                **os.environ,
                "HADOOP_TOKEN_FILE_LOCATION": str(self.scratch / "tokens"),
                "LC_ALL": "C.UTF-8",
            },
        )
        assert done.returncode == status, (arguments, done.stdout, done.stderr)
        return done.stdout.replace(self.base, "")


@pytest.fixture
def shell(client_jars: Path, tmp_path: Path, cluster: StorageCluster, alice: WebHdfsClient) -> FsShell:
    token = alice.json("GETDELEGATIONTOKEN", "/", renewer="alice")["Token"]["urlString"]
    return FsShell(client_jars, tmp_path, cluster, token)


def test_fsshell_commands(shell: FsShell, alice: WebHdfsClient, folder: str, tmp_path: Path) -> None:
    large = hashlib.shake_128(b"shell").digest(3_000_000)
    (tmp_path / "large").write_bytes(large)
    (tmp_path / "one").write_bytes(b"one\n")
    (tmp_path / "two").write_bytes(b"two\n")
    shell("-mkdir", "-p", f":{folder}/deep/er")
    shell("-put", "one", "large", f":{folder}")
    shell("-appendToFile", "two", f":{folder}/one")
    assert shell("-cat", f":{folder}/one") == "one\ntwo\n"
    shell("-get", f":{folder}/large", "back")
    assert (tmp_path / "back").read_bytes() == large
    shell("-cp", f":{folder}/one", f":{folder}/deep/copy")
    shell("-mv", f":{folder}/deep/copy", f":{folder}/moved")
    listed = shell("-ls", f":{folder}")
    assert [line.split()[-1] for line in listed.splitlines()[1:]] == [
        f"{folder}/{name}" for name in ("deep", "large", "moved", "one")
    ]
    assert "-rw-r--r--   1 alice alice    3000000" in listed
    assert shell("-du", "-s", f":{folder}").split()[0] == str(len(large) + 16)
    assert shell("-count", f":{folder}").split()[:3] == ["3", "3", str(len(large) + 16)]
    checksum = alice.json("GETFILECHECKSUM", f"{folder}/one", data="true")["FileChecksum"]
    assert shell("-checksum", f":{folder}/one").split()[1:] == [checksum["algorithm"], checksum["bytes"][:56]]
    shell("-test", "-d", f":{folder}/deep")
    shell("-test", "-e", f":{folder}/none", status=1)
    shell("-rm", f":{folder}/moved")
    shell("-rm", "-r", f":{folder}/deep", f":{folder}/large")
    assert alice.names(folder) == ["one"]


def test_fsshell_with_names_beyond_ascii(shell: FsShell, alice: WebHdfsClient, folder: str) -> None:
    """Hadoop's client sends the names as they are, without encoding them."""
    (shell.scratch / "日本").write_bytes("こんにちは\n".encode())
    shell("-put", "日本", f":{folder}")
    # The folders of Spark's `partitionBy`.
    shell("-mkdir", "-p", f":{folder}/city=Orléans")
    shell("-put", "日本", f":{folder}/city=Orléans/é 1%.txt")
    shell("-appendToFile", "日本", f":{folder}/日本")
    assert shell("-cat", f":{folder}/日本") == "こんにちは\n" * 2
    shell("-get", f":{folder}/city=Orléans/é 1%.txt", "zurück")
    assert (shell.scratch / "zurück").read_text() == "こんにちは\n"
    listed = shell("-ls", "-R", f":{folder}").splitlines()
    assert [line.partition(folder)[2] for line in listed] == [
        "/city=Orléans",
        "/city=Orléans/é 1%.txt",
        "/日本",
    ]
    shell("-mv", f":{folder}/日本", f":{folder}/новый")
    shell("-rm", "-r", f":{folder}/city=Orléans")
    assert alice.names(folder) == ["новый"]


def test_fsshell_reports_permission_denied(shell: FsShell) -> None:
    done = subprocess.run(
        [*shell._command, "-ls", f"{shell.base}/user/bob"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HADOOP_TOKEN_FILE_LOCATION": str(shell.scratch / "tokens")},
    )
    assert done.returncode == 1
    assert "Permission denied: user=alice, access=READ_EXECUTE" in done.stderr
