"""Helpers that write and read files of a storage as one of its users."""

from __future__ import annotations

import os

import pytest

from paicluster.files import Storage, StorageUser
from paiprotocol.errors import PaiError


def put(storage: Storage, path: str, data: bytes, user: StorageUser, *, overwrite: bool = False) -> None:
    staged = storage.stage(path, user, overwrite=overwrite)
    staged.write(data)
    staged.commit()


def read(storage: Storage, path: str, user: StorageUser) -> bytes:
    opened = storage.open_read(path, user)
    with os.fdopen(opened.fd, "rb") as file:
        return file.read()


def raises_code(code: str) -> pytest.RaisesExc[PaiError]:
    return pytest.raises(PaiError, check=lambda error: error.code == code)


def names(storage: Storage, path: str, user: StorageUser) -> list[str]:
    return [entry.name for entry in storage.list(path, user).entries]


def internal_files(storage: Storage) -> list[str]:
    return [name for _, _, files in os.walk(storage.root / ".pai") for name in files]
