"""Ways around the rights of others, each closed."""

from __future__ import annotations

import pytest
from test_storing_files import refused

from paicluster.files import Person, Storage
from paicluster.files.records import SUPERGROUP, SUPERUSER

_PUBLIC = (SUPERUSER, SUPERGROUP, 0o1777)


@pytest.mark.parametrize("place", ["tmp", "Output", "openpai-sdk"])
def test_nobody_puts_his_own_folder_where_everybody_writes(
    storage: Storage, alice: Person, bob: Person, place: str
) -> None:
    storage.make_dirs("/user/alice/trap", alice, 0o777)
    with refused("ForbiddenFileError"):
        storage.rename("/user/alice/trap", f"/{place}", alice)
    with refused("ForbiddenFileError"):
        storage.move("/user/alice/trap", f"/{place}", alice, overwrite=False)
    storage.make_dirs(f"/{place}", bob)
    with refused("ForbiddenFileError"):
        storage.move("/user/alice/trap", f"/{place}", alice, overwrite=True)
    assert storage.status(f"/{place}", bob).record == _PUBLIC
    # Into it is another matter.
    assert storage.rename("/user/alice/trap", f"/{place}", alice)
    assert storage.status(f"/{place}/trap", bob).record.owner == "alice"


def test_an_empty_folder_of_the_root_is_not_replaced_by_whoever_is_called_like_it(
    storage: Storage, admin: Person
) -> None:
    data = Person("data")
    storage.welcome(data)
    storage.make_dirs("/data", admin)
    storage.make_dirs("/user/data/trap", data, 0o777)
    with refused("ForbiddenFileError"):
        storage.move("/user/data/trap", "/data", data, overwrite=True)
    assert storage.status("/data", admin).record.owner == "admin"
