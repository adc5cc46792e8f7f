"""A real HDFS for tests: one NameNode and one DataNode, with WebHDFS, on loopback; and Hadoop's jars.

`with hdfs(folder) as real:` gives one with `real.url` (WebHDFS, without security: `user.name=X` is X) and
`real.address` (`HOST:PORT` of `hdfs://`). It is ready in some ten seconds. The jars are fetched once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import pytest

from support.external_services import debian, missing
from support.ports import free_ports

# Jars of this Spark version that a NameNode and a DataNode of Hadoop 2.7.3 need.
_VERSION = "2.4.8"
_JARS = (
    *(
        "hadoop-annotations",
        "hadoop-auth",
        "hadoop-common",
        "hadoop-hdfs",
        "commons-",
        "guava-",
        "htrace",
        "http",
    ),
    *(
        "jackson-core-asl",
        "jackson-mapper-asl",
        "jackson-jaxrs",
        "jackson-xc",
        "javax.servlet",
        "jetty",
        "jsp-api",
    ),
    *(
        "leveldbjni",
        "log4j",
        "netty",
        "protobuf-java",
        "slf4j",
        "xercesImpl",
        "xmlenc",
        "jaxb-api",
        "activation",
    ),
    "stax-api",
)
_OPENS = ("java.lang", "java.nio", "java.util", "java.net")
_DEBIAN = (
    "jersey1-core",
    "jersey1-server",
    "jersey1-servlet",
    "jersey1-json",
    "jsr311-api",
    "commons-daemon",
)
_READY_S = 90.0


def jars(version: str, wanted: Sequence[str]) -> Path:
    """A folder with these jars of Spark's archive on PyPI, cached for later runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openpaisdk-tests"
    folder = cache / f"jars-of-spark-{version}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            folder.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                _extract(_fetch(version, Path(scratch)), folder, wanted)
            (folder / "complete").touch()
    return folder


def _fetch(version: str, scratch: Path) -> Path:
    """The plain archive: pip cannot install it with a current Python."""
    target = scratch / "spark.tar.gz"
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pyspark/"
    try:
        with urllib.request.urlopen(index, timeout=60) as reply:
            page = reply.read().decode()
        found = re.search(rf'href="([^"]*/pyspark-{re.escape(version)}\.tar\.gz)#sha256=([0-9a-f]+)"', page)
        assert found is not None, index
        with (
            urllib.request.urlopen(urljoin(index, found[1]), timeout=120) as reply,
            target.open("wb") as file,
        ):
            shutil.copyfileobj(reply, file, 1 << 20)
    except OSError as error:
        missing(f"pyspark {version} from {index} ({error})")
    with target.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == found[2]
    return target


def _extract(archive: Path, folder: Path, wanted: Sequence[str]) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            if name.endswith(".jar") and name.startswith(tuple(wanted)) and member.isfile():
                source = tar.extractfile(member)
                assert source is not None
                (folder / name).write_bytes(source.read())


@pytest.fixture(scope="session", name="real_hdfs")
def real_hdfs_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHdfs]:
    """One HDFS for all tests of the group `hdfs`; each uses folders of its own."""
    with hdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@dataclass
class RealHdfs:
    url: str
    address: str


@contextmanager
def hdfs(folder: Path) -> Iterator[RealHdfs]:
    """A running HDFS until the end of the block; ``folder`` is empty and receives all its files."""
    debian(
        ["default-jre-headless", *(f"lib{name}-java" for name in _DEBIAN)],
        commands=["java"],
        files=_debian_jars(),
    )
    ports = free_ports(5)
    conf = _configure(folder, ports)
    classes = ":".join([str(conf), f"{jars(_VERSION, _JARS)}/*", *_debian_jars()])
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    java += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in (*_OPENS, "sun.nio.ch")]
    java += ["-cp", classes]
    name_node = "org.apache.hadoop.hdfs.server.namenode.NameNode"
    running: list[subprocess.Popen[bytes]] = []
    with (folder / "log").open("wb") as log:
        made = subprocess.run(
            [*java, name_node, "-format", "-nonInteractive"], stdout=log, stderr=log, timeout=60, check=False
        )
        assert made.returncode == 0, (folder / "log").read_text()[-2000:]
        try:
            for daemon in (name_node, "org.apache.hadoop.hdfs.server.datanode.DataNode"):
                running.append(subprocess.Popen([*java, daemon], stdout=log, stderr=log))
            real = RealHdfs(f"http://127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[0]}")
            _wait(real, folder / "log")
            yield real
        finally:
            for process in running:
                process.kill()
                process.wait()


def _debian_jars() -> list[str]:
    return [f"/usr/share/java/{name}.jar" for name in _DEBIAN]


def _configure(folder: Path, ports: Sequence[int]) -> Path:
    conf = folder / "conf"
    for role in ("hdfs", "datanode"):
        (conf / "webapps" / role / "WEB-INF").mkdir(parents=True)
        (conf / "webapps" / role / "WEB-INF/web.xml").write_text("<web-app/>")
    at = [f"127.0.0.1:{port}" for port in ports]
    _write(
        conf / "core-site.xml", {"fs.defaultFS": f"hdfs://{at[0]}", "hadoop.tmp.dir": str(folder / "data")}
    )
    _write(
        conf / "hdfs-site.xml",
        {
            "dfs.namenode.http-address": at[1],
            # The default is the host name, which may have another address: Debian uses 127.0.1.1.
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.datanode.address": at[2],
            "dfs.datanode.http.address": at[3],
            "dfs.datanode.ipc.address": at[4],
            "dfs.replication": "1",
            "dfs.namenode.safemode.extension": "0",
        },
    )
    (conf / "log4j.properties").write_text(
        "log4j.rootLogger=WARN,console\nlog4j.appender.console=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.console.layout=org.apache.log4j.SimpleLayout\n"
    )
    return conf


def _write(file: Path, values: dict[str, str]) -> None:
    lines = [
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in values.items()
    ]
    file.write_text(f"<configuration>{''.join(lines)}</configuration>")


def _wait(real: RealHdfs, log: Path) -> None:
    """Wait until a file can be written: then the DataNode has registered."""
    ends = time.monotonic() + _READY_S
    url = f"{real.url}/webhdfs/v1/ready?op=CREATE&user.name={os.environ.get('USER') or 'root'}&overwrite=true"
    while True:
        try:
            request = urllib.request.Request(url, method="PUT")
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=5) as reply:
                if reply.status == 307:
                    return
        except OSError:
            pass
        assert time.monotonic() < ends, log.read_text()[-2000:]
        time.sleep(0.2)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def http_error_307(self, req, fp, code, msg, headers):  # type: ignore[no-untyped-def]
        return fp
