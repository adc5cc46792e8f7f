"""Writes and reads files of a storage, as one of its users."""

from __future__ import annotations

import os

import pytest

from openpaisdk.errors import PaiError
from paicluster.files import Storage, StorageUser


def put(storage: Storage, path: str, data: bytes, who: StorageUser, *, overwrite: bool = False) -> None:
    staged = storage.stage(path, who, overwrite=overwrite)
    staged.write(data)
    staged.commit()


def read(storage: Storage, path: str, who: StorageUser) -> bytes:
    opened = storage.open_read(path, who)
    with os.fdopen(opened.fd, "rb") as file:
        return file.read()


def refused(code: str) -> pytest.RaisesExc[PaiError]:
    return pytest.raises(PaiError, check=lambda error: error.code == code)


def names(storage: Storage, path: str, who: StorageUser) -> list[str]:
    return [entry.name for entry in storage.list(path, who).entries]


def own_files(storage: Storage) -> list[str]:
    return [name for _, _, files in os.walk(storage.root / ".pai") for name in files]
