"""Key files and sealing of job secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paicluster.auth.key_files import load_key
from paicluster.auth.sealing import Sealer
from paiprotocol.errors import ConfigError, StoreError


def test_key_is_created_once_and_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        key = load_key(tmp_path / "keys", "tokens")
    finally:
        os.umask(before)
    assert len(key) == 32
    assert load_key(tmp_path / "keys", "tokens") == key
    assert load_key(tmp_path / "keys", "sealing") != key
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    assert {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "keys").iterdir()} == {
        "tokens": 0o600,
        "sealing": 0o600,
    }


def test_concurrent_creation_yields_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        keys = set(pool.map(lambda _: load_key(tmp_path / "keys", "tokens"), range(64)))
    assert len(keys) == 1


def test_readable_key_file_is_made_private(tmp_path: Path) -> None:
    load_key(tmp_path, "tokens")
    (tmp_path / "tokens").chmod(0o644)
    load_key(tmp_path, "tokens")
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o600


def test_damaged_key_is_reported(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_bytes(b"short")
    with pytest.raises(ConfigError, match="is damaged: it has 5 bytes"):
        load_key(tmp_path, "tokens")


def test_key_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a file where the folder should be")
    with pytest.raises(ConfigError, match="tokens"):
        load_key(tmp_path / "keys", "tokens")


def test_sealed_secret_opens_only_for_its_job(tmp_path: Path) -> None:
    sealer = Sealer.from_key_files(tmp_path)
    sealed = sealer.seal(b"the password", "alice~job")
    assert b"password" not in sealed
    assert sealer.seal(b"the password", "alice~job") != sealed
    assert Sealer.from_key_files(tmp_path).unseal(sealed, "alice~job") == b"the password"
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for data, uid in (
        (sealed, "bob~job"),
        (changed, "alice~job"),
        (b"", "alice~job"),
        (sealed[:11], "alice~job"),
    ):
        with pytest.raises(StoreError, match="cannot be decrypted"):
            sealer.unseal(data, uid)
    with pytest.raises(StoreError):
        Sealer(bytes(32)).unseal(sealed, "alice~job")


def test_cryptography_is_imported_only_for_secrets(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "import paicluster.auth.users, paicluster.auth.sealing, paicluster.auth.tokens\n"
        "print('cryptography' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
