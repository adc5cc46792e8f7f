"""A home with people in it, for clusters that are not started yet."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))
sys.path.insert(0, str(Path(__file__).parent.parent / "api"))

from team import PASSWORD, PEOPLE

from paicluster.auth.passwords import hash_password
from paicluster.store import Store, users

MACHINE = ("--cpus", "64", "--memory-mb", "65536", "--gpus", "4", "--allow-shared-account")


def add_people(
    home: Path,
    names: tuple[str, ...] = PEOPLE,
    password: str = PASSWORD,
    admins: tuple[str, ...] = ("admin",),
) -> None:
    """Users in a home nobody has started yet."""
    home.mkdir(parents=True, exist_ok=True)
    store = Store.open(home / "cluster.db")
    hashed = hash_password(password)
    for who in names:
        admin = who in admins
        store.write_sync(lambda conn, w=who, a=admin: users.add_user(conn, w, hashed, created_ms=0, admin=a))
    store.close()
