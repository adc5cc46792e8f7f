"""Hadoop's own client: its shell, and Java programs against its library."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.external_services import debian
from support.hadoop import jars

# A few jars of this Spark version contain Hadoop's whole client.
_SPARK = "3.5.1"
_JAR_PREFIXES = ("hadoop-client-", "commons-", "slf4j-", "log4j-", "jcl-over-")
# Programs of a few seconds: the second compiler and other collectors cost more than they gain.
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_JAVAC = (*(f"-J{option}" for option in _SHORT_LIVED), "-proc:none")


class HadoopClient:
    """Hadoop's client: its shell, and programs against its library."""

    def __init__(self, scratch: Path):
        debian(["default-jdk-headless"], commands=["java", "javac"])
        self._scratch = scratch
        (scratch / "core-site.xml").write_text("<configuration/>")
        (scratch / "log4j.properties").write_text("log4j.rootLogger=OFF\n")
        self._classes = f"{scratch}:{jars(_SPARK, _JAR_PREFIXES)}/*"

    def shell(self, *arguments: str) -> bytes:
        return self._java("org.apache.hadoop.fs.FsShell", *arguments)

    def run(self, name: str, source: str, *arguments: str) -> bytes:
        file = self._scratch / f"{name}.java"
        if not file.exists():
            file.write_text(source)
            subprocess.run(
                ["javac", *_JAVAC, "-cp", self._classes, "-d", self._scratch, file], check=True, timeout=120
            )
        return self._java(name, *arguments)

    def _java(self, *arguments: str) -> bytes:
        done = subprocess.run(
            ["java", *_SHORT_LIVED, "-cp", self._classes, *arguments],
            capture_output=True,
            timeout=120,
            env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", "HADOOP_USER_NAME": "test"},
        )
        assert done.returncode == 0, (arguments, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout
