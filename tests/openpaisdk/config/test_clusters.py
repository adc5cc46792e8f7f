"""Resolution of the cluster that a command uses."""

import pytest
import yaml

from openpaisdk.config import ClusterEntry, ClusterRegistry, change_defaults, read_change
from paiprotocol.errors import ConfigError, UsageError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def entry(alias: str, **more: object) -> ClusterEntry:
    return ClusterEntry({"cluster_alias": alias, "pai_uri": f"http://{alias}", **more})


def test_without_clusters_the_embedded_one_is_used() -> None:
    chosen = ClusterRegistry.load().resolve()
    assert chosen.alias == "local" and chosen.is_embedded


def test_only_cluster_is_used() -> None:
    ClusterRegistry.load().put(entry("team"))
    assert ClusterRegistry.load().resolve().alias == "team"


def test_alias_overrides_selected_cluster() -> None:
    book = ClusterRegistry.load()
    book.put(entry("a"))
    book.put(entry("b"))
    change_defaults([read_change("cluster-alias=b")], [], is_global=True)
    assert ClusterRegistry.load().resolve().alias == "b"
    assert ClusterRegistry.load().resolve("a").alias == "a"


def test_several_clusters_need_a_selection() -> None:
    book = ClusterRegistry.load()
    book.put(entry("a"))
    book.put(entry("b"))
    with pytest.raises(UsageError, match=r"2 clusters \(a, b\) and none is selected"):
        book.resolve()


def test_unknown_alias_gets_a_suggestion() -> None:
    book = ClusterRegistry.load()
    book.put(entry("production"))
    with pytest.raises(UsageError, match="Did you mean production"):
        book.resolve("prodution")
    with pytest.raises(UsageError, match="no cluster called 'x'"):
        book.delete("x")


def test_embedded_cluster_can_always_be_named() -> None:
    book = ClusterRegistry.load()
    book.put(entry("team"))
    assert book.resolve("local").is_embedded


def test_unknown_keys_survive_a_rewrite(home) -> None:
    book = ClusterRegistry.load()
    book.put(entry("a", storages=[{"name": "x"}], mine=1))
    ClusterRegistry.load().put(entry("b"))
    text = (home / "home/.openpai/clusters.yaml").read_text()
    assert yaml.safe_load(text)[0]["mine"] == 1


def test_put_replaces_alias_and_delete_removes_it() -> None:
    ClusterRegistry.load().put(entry("a"))
    ClusterRegistry.load().put(entry("a", user="u"))
    assert [e.text("user") for e in ClusterRegistry.load().entries] == ["u"]
    ClusterRegistry.load().delete("a")
    assert ClusterRegistry.load().entries == []


def test_clusters_in_local_uses_project_folder(home) -> None:
    change_defaults([read_change("clusters-in-local=yes")], [], is_global=False)
    ClusterRegistry.load().put(entry("here"))
    assert (home / "project/.openpai/clusters.yaml").exists()
    assert not (home / "home/.openpai/clusters.yaml").exists()


def test_storage_entry_is_not_used_for_jobs() -> None:
    ClusterRegistry.load().put(entry("disk", type="storage-hdfs"))
    assert ClusterRegistry.load().resolve().is_embedded


def test_entry_without_alias_is_named_by_number(home) -> None:
    (home / "home/.openpai").mkdir()
    (home / "home/.openpai/clusters.yaml").write_text("- cluster_alias: a\n- pai_uri: b\n")
    with pytest.raises(ConfigError, match="entry 2 has no cluster_alias"):
        ClusterRegistry.load()
