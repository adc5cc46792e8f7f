import pytest


@pytest.fixture(autouse=True)
def temporary_home(tmp_path_factory, monkeypatch):
    """What is remembered of a folder is remembered in a home that is thrown away."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home
