"""Which cluster a command means."""

import pytest
import yaml

from openpaisdk.config import ClusterEntry, ClusterRegistry, change_defaults, read_change
from openpaisdk.errors import ConfigError, UsageError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def entry(alias: str, **more: object) -> ClusterEntry:
    return ClusterEntry({"cluster_alias": alias, "pai_uri": f"http://{alias}", **more})


def test_with_no_cluster_the_one_inside_is_meant() -> None:
    chosen = ClusterRegistry.load().resolve()
    assert chosen.alias == "local" and chosen.is_embedded


def test_the_only_cluster_is_the_one_meant() -> None:
    ClusterRegistry.load().put(entry("team"))
    assert ClusterRegistry.load().resolve().alias == "team"


def test_the_selected_one_is_meant_and_a_named_one_wins_over_it() -> None:
    book = ClusterRegistry.load()
    book.put(entry("a"))
    book.put(entry("b"))
    change_defaults([read_change("cluster-alias=b")], [], is_global=True)
    assert ClusterRegistry.load().resolve().alias == "b"
    assert ClusterRegistry.load().resolve("a").alias == "a"


def test_several_and_none_selected_is_a_question_not_a_guess() -> None:
    book = ClusterRegistry.load()
    book.put(entry("a"))
    book.put(entry("b"))
    with pytest.raises(UsageError, match=r"2 clusters \(a, b\) and none is selected"):
        book.resolve()


def test_an_unknown_alias_gets_a_suggestion() -> None:
    book = ClusterRegistry.load()
    book.put(entry("production"))
    with pytest.raises(UsageError, match="Did you mean production"):
        book.resolve("prodution")
    with pytest.raises(UsageError, match="no cluster called 'x'"):
        book.delete("x")


def test_the_cluster_inside_can_always_be_named() -> None:
    book = ClusterRegistry.load()
    book.put(entry("team"))
    assert book.resolve("local").is_embedded


def test_keys_we_do_not_know_survive_a_rewrite(home) -> None:
    book = ClusterRegistry.load()
    book.put(entry("a", storages=[{"name": "x"}], mine=1))
    ClusterRegistry.load().put(entry("b"))
    text = (home / "home/.openpai/clusters.yaml").read_text()
    assert yaml.safe_load(text)[0]["mine"] == 1


def test_the_same_alias_replaces_and_delete_removes() -> None:
    ClusterRegistry.load().put(entry("a"))
    ClusterRegistry.load().put(entry("a", user="u"))
    assert [e.text("user") for e in ClusterRegistry.load().entries] == ["u"]
    ClusterRegistry.load().delete("a")
    assert ClusterRegistry.load().entries == []


def test_clusters_in_local_moves_the_file_into_the_folder(home) -> None:
    change_defaults([read_change("clusters-in-local=yes")], [], is_global=False)
    ClusterRegistry.load().put(entry("here"))
    assert (home / "project/.openpai/clusters.yaml").exists()
    assert not (home / "home/.openpai/clusters.yaml").exists()


def test_a_storage_is_no_cluster_to_run_on() -> None:
    ClusterRegistry.load().put(entry("disk", type="storage-hdfs"))
    assert ClusterRegistry.load().resolve().is_embedded


def test_an_entry_without_alias_is_named_by_its_number(home) -> None:
    (home / "home/.openpai").mkdir()
    (home / "home/.openpai/clusters.yaml").write_text("- cluster_alias: a\n- pai_uri: b\n")
    with pytest.raises(ConfigError, match="entry 2 has no cluster_alias"):
        ClusterRegistry.load()
