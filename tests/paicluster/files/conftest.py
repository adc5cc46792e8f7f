"""A storage in a temporary folder, an administrator and three users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.files import Storage, StorageUser

ADMIN = StorageUser("admin", admin=True)
ALICE = StorageUser("alice", frozenset({"vision"}))
BOB = StorageUser("bob", frozenset({"vision"}))
CAROL = StorageUser("carol")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    opened = Storage(tmp_path / "storage")
    for user in (ADMIN, ALICE, BOB, CAROL):
        opened.provision(user)
    yield opened
    opened.close()


@pytest.fixture
def alice() -> StorageUser:
    return ALICE


@pytest.fixture
def bob() -> StorageUser:
    return BOB


@pytest.fixture
def carol() -> StorageUser:
    return CAROL


@pytest.fixture
def admin() -> StorageUser:
    return ADMIN
