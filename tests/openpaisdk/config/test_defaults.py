"""Defaults in layers: the folder over the home folder, lists add up."""

import pytest
import yaml

from openpaisdk.config import Defaults, change_defaults, read_change
from openpaisdk.errors import ConfigError, UsageError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def put(text: str, *, is_global: bool = False) -> None:
    change_defaults([read_change(text)], [], is_global=is_global)


def test_nothing_is_set_at_first() -> None:
    assert Defaults.load().merged() == {}
    assert Defaults.load().text("image") == ""
    assert Defaults.load().number("cpu") is None


def test_the_folder_wins_over_the_home_folder() -> None:
    put("image=everywhere", is_global=True)
    assert Defaults.load().text("image") == "everywhere"
    put("image=here")
    assert Defaults.load().text("image") == "here"


def test_lists_add_up_over_the_layers_nearest_first() -> None:
    put("sources=a", is_global=True)
    put("sources=b")
    put("sources+=c")
    assert Defaults.load().many("sources") == ["b", "c", "a"]
    put("sources-=b")
    assert Defaults.load().many("sources") == ["c", "a"]


def test_numbers_are_numbers_in_the_file(home) -> None:
    put("cpu=4")
    assert yaml.safe_load((home / "project/.openpai/defaults.yaml").read_text()) == {"cpu": 4}
    assert Defaults.load().number("cpu") == 4


def test_an_unset_key_is_gone_and_unsetting_it_again_says_so() -> None:
    put("image=x")
    change_defaults([], ["image"], is_global=False)
    assert Defaults.load().text("image") == ""
    with pytest.raises(UsageError, match="image is not set in this folder"):
        change_defaults([], ["image"], is_global=False)


def test_several_changes_are_made_all_or_none(home) -> None:
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
        ("image+=x", "holds one value"),
        ("clusters-in-local=perhaps", "yes or no"),
    ],
)
def test_a_wrong_change_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_change(text)


def test_a_value_may_hold_an_equals_sign() -> None:
    assert read_change("image=registry/a:b=c").value == "registry/a:b=c"


def test_yes_is_yes_in_every_spelling() -> None:
    for word in ("yes", "true", "on", "1", "YES"):
        assert Defaults([{"clusters-in-local": word}]).yes("clusters-in-local")
    assert Defaults([{"clusters-in-local": True}]).yes("clusters-in-local")
    assert not Defaults([{"clusters-in-local": "no"}]).yes("clusters-in-local")
    assert not Defaults([]).yes("clusters-in-local")


def test_a_file_that_holds_something_else_is_refused(home) -> None:
    (home / "project/.openpai").mkdir()
    (home / "project/.openpai/defaults.yaml").write_text("- a\n")
    with pytest.raises(ConfigError, match="must hold keys and values"):
        Defaults.load()


def test_a_number_that_is_none_says_how_to_mend_it() -> None:
    with pytest.raises(ConfigError, match="cpu=lots"):
        Defaults([{"cpu": "lots"}]).number("cpu")
