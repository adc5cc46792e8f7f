"""Layered defaults: the current folder overrides the home folder, lists are concatenated."""

import re

import pytest
import yaml

from openpaisdk.config import Defaults, change_defaults, read_change
from openpaisdk.config.defaults import KEYS, check_known_key
from paiprotocol.errors import ConfigError, UsageError
from support.paths import REPOSITORY


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def put(text: str, *, is_global: bool = False) -> None:
    change_defaults([read_change(text)], [], is_global=is_global)


def test_no_defaults_at_first() -> None:
    assert Defaults.load().merged() == {}
    assert Defaults.load().text("image") == ""
    assert Defaults.load().number("cpu") is None


def test_project_defaults_override_user_defaults() -> None:
    put("image=everywhere", is_global=True)
    assert Defaults.load().text("image") == "everywhere"
    put("image=here")
    assert Defaults.load().text("image") == "here"


def test_lists_are_concatenated_over_layers() -> None:
    put("sources=a", is_global=True)
    put("sources=b")
    put("sources+=c")
    assert Defaults.load().values("sources") == ["b", "c", "a"]
    put("sources-=b")
    assert Defaults.load().values("sources") == ["c", "a"]


def test_numbers_are_stored_as_numbers(home) -> None:
    put("cpu=4")
    assert yaml.safe_load((home / "project/.openpai/defaults.yaml").read_text()) == {"cpu": 4}
    assert Defaults.load().number("cpu") == 4


def test_unset_removes_key_and_fails_if_not_set() -> None:
    put("image=x")
    change_defaults([], ["image"], is_global=False)
    assert Defaults.load().text("image") == ""
    with pytest.raises(UsageError, match="image is not set in this folder"):
        change_defaults([], ["image"], is_global=False)


def test_every_key_that_can_be_set_is_read() -> None:
    sources = "\n".join(
        path.read_text()
        for path in (REPOSITORY / "src/openpaisdk").rglob("*.py")
        if path.name != "defaults.py"
    )
    readers = r"(?:text|number|values|is_enabled|get|pick)\([^()]*"
    for key in KEYS:
        assert re.search(rf'{readers}"{key}"', sources), f"nothing reads {key}"


def test_keys_of_openpai_that_nothing_reads_are_only_removed(home) -> None:
    with pytest.raises(UsageError, match="Nothing reads the default 'image-list'"):
        put("image-list=busybox")
    (home / "project/.openpai").mkdir()
    (home / "project/.openpai/defaults.yaml").write_text("image-list: [busybox]\n")
    change_defaults([], [check_known_key("image-list")], is_global=False)
    assert Defaults.load().merged() == {}


def test_changes_are_atomic(home) -> None:
    with pytest.raises(UsageError):
        change_defaults([read_change("image=x"), read_change("sources-=nothing")], [], is_global=False)
    assert Defaults.load().merged() == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("imaeg=x", "Did you mean image"),
        ("image", "sets nothing"),
        ("image=", "sets nothing"),
        ("cpu=many", "whole number"),
        ("image+=x", "is not a list"),
        ("clusters-in-local=perhaps", "yes or no"),
    ],
)
def test_invalid_change_is_reported(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_change(text)


def test_value_may_contain_equals_sign() -> None:
    assert read_change("image=registry/a:b=c").value == "registry/a:b=c"


def test_boolean_spellings() -> None:
    for word in ("yes", "true", "on", "1", "YES"):
        assert Defaults([{"clusters-in-local": word}]).is_enabled("clusters-in-local")
    assert Defaults([{"clusters-in-local": True}]).is_enabled("clusters-in-local")
    assert not Defaults([{"clusters-in-local": "no"}]).is_enabled("clusters-in-local")
    assert not Defaults([]).is_enabled("clusters-in-local")


def test_file_without_mapping_is_rejected(home) -> None:
    (home / "project/.openpai").mkdir()
    (home / "project/.openpai/defaults.yaml").write_text("- a\n")
    with pytest.raises(ConfigError, match="must contain keys and values"):
        Defaults.load()


def test_invalid_number_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="cpu=lots"):
        Defaults([{"cpu": "lots"}]).number("cpu")
