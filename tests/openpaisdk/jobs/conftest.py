import pytest


@pytest.fixture(autouse=True)
def temporary_home(tmp_path_factory, monkeypatch):
    """Keep the pack cache in a temporary home."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home
