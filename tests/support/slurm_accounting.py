"""A real Slurm accounting: slurmdbd with its own MariaDB."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.external_services import debian
from support.ports import free_ports
from support.slurm_cluster import eventually

PACKAGES = ("slurmdbd", "mariadb-server", "slurm-wlm-mysql-plugin")
COMMANDS = ("slurmdbd", "mariadbd", "mariadb-install-db")

_CONF = """AuthType=auth/munge
AuthInfo=socket={d}/run/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
PidFile={d}/run/slurmdbd.pid
LogFile={d}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage}
StorageUser=root
StorageLoc=slurm
"""


class Accounting:
    """In Slurm's own folder. ``settings``: lines of slurm.conf."""

    def __init__(self, folder: Path):
        debian(PACKAGES, commands=COMMANDS)
        self.folder = folder
        port, self._storage = free_ports(2)
        self.settings = {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(port),
            "AccountingStoragePass": f"{folder}/run/munge.socket",
        }
        for name in ("run", "log"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        conf = folder / "slurmdbd.conf"
        conf.write_text(_CONF.format(d=folder, port=port, storage=self._storage))
        conf.chmod(0o600)

    @contextmanager
    def running(self, environment: Mapping[str, str]) -> Iterator[None]:
        data = self.folder / "mariadb"
        log = (self.folder / "log" / "mariadb.log").open("ab")
        path = environment["PATH"]
        install = shutil.which("mariadb-install-db", path=path)
        words = [str(install), "--no-defaults", f"--datadir={data}", "--user=root", "--skip-test-db"]
        subprocess.run(words, stdout=log, stderr=log, check=True, timeout=120)
        socket = self.folder / "run" / "mariadb.sock"
        program = [
            str(shutil.which("mariadbd", path=path)),
            "--no-defaults",
            f"--datadir={data}",
            "--user=root",
        ]
        program += [f"--port={self._storage}", "--bind-address=127.0.0.1", f"--socket={socket}"]
        program += ["--skip-grant-tables", "--innodb-flush-log-at-trx-commit=0"]
        database = subprocess.Popen(program, stdout=log, stderr=log)
        started: list[subprocess.Popen[bytes]] = [database]
        try:
            eventually(socket.exists, "MariaDB")
            dbd = subprocess.Popen(
                [str(shutil.which("slurmdbd", path=path)), "-D"],
                env=dict(environment),
                stdout=log,
                stderr=log,
            )
            started.append(dbd)
            listening = ["sacctmgr", "-n", "show", "cluster"]
            eventually(
                lambda: not subprocess.run(listening, env=dict(environment), capture_output=True).returncode,
                "slurmdbd",
                60,
            )
            yield
        finally:
            for process in reversed(started):
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
                process.wait()
            log.close()
