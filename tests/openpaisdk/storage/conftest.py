"""A person with the cluster of this machine, whose storage the tests of this room use; see `desk`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest
from bad_wire import BadWire
from desk import Desk

from cli.at_a_terminal import Person


@pytest.fixture(scope="session")
def shared_desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    person = Person(tmp_path_factory.mktemp("storage"))
    assert person.pai("start-cluster").status == 0
    (person.home / ".openpai").mkdir(exist_ok=True)
    # Under an alias of its own, as a cluster somewhere else would be: its address does not change under us.
    said = person.handshake()
    entry = {"cluster_alias": "team", "pai_uri": said["url"], "user": said["user"], "token": said["token"]}
    (person.home / ".openpai/clusters.yaml").write_text(json.dumps([entry]))
    yield Desk(person, str(said["url"]), str(said["user"]), str(said["token"]))
    person.leave()


_numbers = itertools.count()


@pytest.fixture
def desk(shared_desk: Desk, tmp_path: object) -> Desk:
    """The shared person, in an empty folder, with an empty folder on the storage."""
    shared_desk.begin(tmp_path, next(_numbers))
    return shared_desk


@pytest.fixture
def wire(desk: Desk) -> Iterator[BadWire]:
    """The same cluster, called `far`, over a bad wire."""
    wire = BadWire(desk.url)
    book = desk.person.home / ".openpai/clusters.yaml"
    before = book.read_text()
    entry = {"cluster_alias": "far", "pai_uri": wire.url, "user": desk.user, "token": desk.token}
    book.write_text(before.rstrip() + "\n" if before.startswith("-") else "- " + before.strip("[] \n") + "\n")
    with book.open("a") as f:
        f.write("- " + json.dumps(entry) + "\n")
    yield wire
    wire.close()
    book.write_text(before)
