"""A storage in a folder of the test's own, and three people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.files import Person, Storage

ADMIN = Person("admin", admin=True)
ALICE = Person("alice", frozenset({"vision"}))
BOB = Person("bob", frozenset({"vision"}))
CAROL = Person("carol")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    made = Storage(tmp_path / "storage")
    for who in (ADMIN, ALICE, BOB, CAROL):
        made.welcome(who)
    yield made
    made.close()


@pytest.fixture
def alice() -> Person:
    return ALICE


@pytest.fixture
def bob() -> Person:
    return BOB


@pytest.fixture
def carol() -> Person:
    return CAROL


@pytest.fixture
def admin() -> Person:
    return ADMIN
