import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))

from at_a_terminal import Person


@pytest.fixture
def newcomer(tmp_path):
    """A person on a fresh machine."""
    person = Person(tmp_path / "newcomer")
    yield person
    person.leave()


@pytest.fixture
def neighbour(tmp_path):
    """Another one, with a home of their own."""
    person = Person(tmp_path / "neighbour")
    yield person
    person.leave()
