"""The settings of one server, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from openpaisdk.errors import UsageError


@dataclass(frozen=True, slots=True)
class Settings:
    home: Path
    host: str = "127.0.0.1"
    port: int = 9186
    tls_cert: str | None = None
    tls_key: str | None = None
    allow_plain_http: bool = False
    cpus: int | None = None
    memory_mb: int | None = None
    gpus: int | None = None
    grace_s: float = 10.0
    # One person on this machine; everything comes from the command that started us.
    embedded: bool = False
    idle_exit_s: float | None = None

    def check(self) -> Settings:
        if not 0 <= self.port <= 65535:
            raise UsageError(f"There is no port {self.port}: it is a number from 0 to 65535.")
        for name, value in (("--cpus", self.cpus), ("--memory-mb", self.memory_mb), ("--gpus", self.gpus)):
            if value is not None and value < 0:
                raise UsageError(f"{name} cannot be negative.")
        if self.grace_s < 0:
            raise UsageError("--grace cannot be negative.")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise UsageError("TLS needs both --tls-cert and --tls-key.")
        for file in (self.tls_cert, self.tls_key):
            if file and not Path(file).is_file():
                raise UsageError(f"There is no file {file}.")
        return self
