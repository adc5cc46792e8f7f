"""A real PostgreSQL on this machine, run by an ordinary account, with an empty database for each test."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from support.external_services import debian
from support.ports import free_port

_ACCOUNT = "nobody"
_DEADLINE_S = 90.0
_BINARIES = "lib/postgresql/*/bin"
# A machine crash is nothing that these tests wait for; `kill -9` loses nothing of what was written.
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum_naptime": "60s",
    "listen_addresses": "127.0.0.1",
}


# Also where the tests are killed: their parent is the thread that starts a server.
_END_WITH_PARENT = ("setpriv", "--pdeathsig", "QUIT", "--")
_PREFIX, _LOCK = "pg-", "lock"


@dataclass
class PostgresqlServer:
    """One server. Its administrator is ``admin``, who needs no password over the socket in ``folder``."""

    folder: Path
    port: int
    binaries: Path
    settings: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    @classmethod
    def create(cls, folder: Path, **settings: str) -> PostgresqlServer:
        server = cls(folder, free_port(), _install(), {**_SETTINGS, **settings})
        # As an institution's own: texts are not ordered by their bytes.
        natural = ["--locale-provider=icu", "--icu-locale=en-US"] if server._major >= 15 else []
        server._run(
            "initdb", "-D", str(server.data), "-U", "admin", "-A", "trust", "-E", "UTF8", "-N", *natural
        )
        # Over TCP with a password, as from another machine.
        (server.data / "pg_hba.conf").write_text(
            "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )
        return server

    @property
    def _major(self) -> int:
        return int(self.binaries.parent.name)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> PostgresqlServer:
        options = {**self.settings, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_END_WITH_PARENT, self.binaries / "postgres", "-D", self.data, *words],
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
                **_account(),
            )
        ends = time.monotonic() + _DEADLINE_S
        while True:
            ready = [self.binaries / "pg_isready", "-q", "-h", self.folder, "-p", str(self.port)]
            if subprocess.run(ready, check=False).returncode == 0:
                return self
            if self.process.poll() is not None or time.monotonic() > ends:
                raise AssertionError((self.folder / "log").read_text()[-3000:])
            time.sleep(0.02)

    def stop(self, *, at_once: bool = False) -> None:
        """End it: its clients are disconnected. ``at_once``: as after a crash."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
            self.process.wait(_DEADLINE_S)
            self.process = None

    def url(self, database: str) -> str:
        return f"postgresql://admin@/{database}?host={self.folder}&port={self.port}"

    def new_database(self, template: str = "template0") -> str:
        """Create a database; its name."""
        name = f"cluster_{os.getpid()}_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop_database(self, name: str) -> None:
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the administrator."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as conn:
            cursor = conn.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *words: str) -> None:
        ran = subprocess.run(
            [self.binaries / program, *words],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            cwd=self.folder,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(self.folder)},
            **_account(),
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


@contextlib.contextmanager
def postgresql_folder() -> Iterator[Path]:
    """A folder of the server's account; the path of a socket in it must be short."""
    _remove_folders_of_killed_tests()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if os.geteuid() == 0:
                account = pwd.getpwnam(_ACCOUNT)
                os.chown(folder, account.pw_uid, account.pw_gid)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_folders_of_killed_tests() -> None:
    for file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), file.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(file.parent, ignore_errors=True)


@pytest.fixture(scope="session", name="postgresql_server")
def postgresql_server_fixture() -> Iterator[PostgresqlServer]:
    """One server for all tests of a process."""
    with postgresql_folder() as folder:
        server = PostgresqlServer.create(folder).start()
        try:
            yield server
        finally:
            server.stop(at_once=True)


def _account() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam(_ACCOUNT)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _install() -> Path:
    """The folder of the programs of the newest PostgreSQL that is installed."""
    folders = _installed()
    if not folders:
        debian(["postgresql-common"], commands=["pg_createcluster"])
        # Otherwise the package starts a server of its own.
        file = Path("/etc/postgresql-common/createcluster.conf")
        if file.exists() and os.geteuid() == 0:
            file.write_text(f"{file.read_text()}\ncreate_main_cluster = false\n")
        # Not psql: the package of the clusters' tools has a command of this name, too.
        versions = subprocess.check_output(["/usr/share/postgresql-common/supported-versions"], text=True)
        server = f"/usr/lib/postgresql/{versions.split()[-1]}/bin/postgres"
        debian(["postgresql"], commands=[], files=[server])
        folders = _installed()
    return folders[-1]


def _installed() -> list[Path]:
    found = [folder for folder in Path("/usr").glob(_BINARIES) if (folder / "postgres").exists()]
    return sorted(found, key=lambda folder: int(folder.parent.name))
