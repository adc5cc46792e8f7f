import pytest
from at_a_terminal import Person


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory):
    """One person with a warm cluster, for the tests that leave it as they found it."""
    person = Person(tmp_path_factory.mktemp("shared"))
    assert person.pai("start-cluster").status == 0
    yield person
    person.leave()


@pytest.fixture
def person(shared_home, tmp_path):
    """The shared person in an empty project folder."""
    shared_home.project = tmp_path / "project"
    shared_home.project.mkdir()
    return shared_home


@pytest.fixture
def newcomer(tmp_path):
    """A person on a fresh machine."""
    person = Person(tmp_path / "newcomer")
    yield person
    person.leave()
