"""Hadoop's FsShell with a delegation token in a file, as on a secured cluster."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from support.external_services import debian
from support.hadoop import jars
from support.server_fixture import DEADLINE_S
from support.webhdfs_client import StorageCluster, WebHdfsClient

pytestmark = [pytest.mark.slow, pytest.mark.service]

# A few jars of this Spark version contain Hadoop's whole client.
_SPARK = "3.5.1"
_JAR_PREFIXES = ("hadoop-client-", "commons-", "slf4j-", "log4j-", "jcl-over-")
# To start what writes logs takes a third of a command.
_LOG_WRITERS = ("log4j-core", "log4j-slf4j")


class Java:
    """Java with Hadoop's client: every command starts one, the first stores the classes that it loaded."""

    def __init__(self, folder: Path):
        debian(["default-jre-headless"], commands=["java"])
        found = sorted(jars(_SPARK, _JAR_PREFIXES).glob("*.jar"))
        # Not in a folder: classes of a path with a folder cannot be stored.
        settings = folder / "settings.jar"
        with zipfile.ZipFile(settings, "w") as archive:
            archive.writestr("core-site.xml", "<configuration/>")
        used = [str(jar) for jar in found if not jar.name.startswith(_LOG_WRITERS)]
        self._classes = folder / "classes.jsa"
        self._options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable"]
        self._options += ["-cp", ":".join([str(settings), *used])]

    def command(self, program: str) -> list[str]:
        # Java runs without the stored classes where it cannot use them.
        option = "SharedArchiveFile" if self._classes.exists() else "ArchiveClassesAtExit"
        return ["java", f"-XX:{option}={self._classes}", *self._options, program]


@pytest.fixture(scope="session", name="java")
def java_fixture(tmp_path_factory: pytest.TempPathFactory) -> Java:
    return Java(tmp_path_factory.mktemp("java"))


class FsShell:
    def __init__(self, java: Java, scratch: Path, cluster: StorageCluster, token: str):
        self.base = "webhdfs://{}:{}".format(*cluster.address)
        self.scratch = scratch
        self._java = java
        service = self.base.partition("://")[2].encode()
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        # Hadoop's token file: magic, version, one token with its service, no secret keys.
        token_file = b"HDTS\0" + b"\1" + bytes([len(service)]) + service + raw + b"\0"
        (scratch / "tokens").write_bytes(token_file)

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """The output of a command. Arguments that begin with `:` are paths of the storage."""
        done = self.run(*arguments)
        assert done.returncode == status, (arguments, done.stdout, done.stderr)
        return done.stdout.replace(self.base, "")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        expanded = [self.base + argument[1:] if argument[:1] == ":" else argument for argument in arguments]
        return subprocess.run(
            [*self._java.command("org.apache.hadoop.fs.FsShell"), *expanded],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            cwd=self.scratch,
            env={
                **os.environ,
                "HADOOP_TOKEN_FILE_LOCATION": str(self.scratch / "tokens"),
                "LC_ALL": "C.UTF-8",
            },
        )


@pytest.fixture
def shell(java: Java, tmp_path: Path, cluster: StorageCluster, alice: WebHdfsClient) -> FsShell:
    token = alice.json("GETDELEGATIONTOKEN", "/", renewer="alice")["Token"]["urlString"]
    return FsShell(java, tmp_path, cluster, token)


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
    done = shell.run("-ls", ":/user/bob")
    assert done.returncode == 1
    assert "Permission denied: user=alice, access=READ_EXECUTE" in done.stderr
