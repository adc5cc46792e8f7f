"""The commands for files, word for word as the documentation has them; the engine has tests of its own."""

import json

import yaml


def test_documented_storage_commands(person) -> None:
    person.write(src="content")
    storage = json.loads(person.pai("list-storages", "local", "-o", "json").out)[0]["name"]
    there = f"pai://local/{storage}/documented"
    for words in (
        ["makedir", f"{there}/one"],
        ["makedirs", f"{there}/one"],
        ["copy", str(person.project / "src"), f"{there}/dest"],
        ["copy", f"{there}/dest", str(person.project / "back")],
    ):
        done = person.pai(*words)
        assert done.status == 0, done
    assert (person.project / "back").read_text() == "content"
    assert person.pai("listdir", there).out.split() == ["dest", "one/"]
    assert person.pai("list-dir", "pai://local/0/documented").out.split() == ["dest", "one/"]
    assert "7 bytes" in person.pai("getinfo", f"{there}/dest").out
    assert person.pai("remove", f"{there}/dest").status == 0
    assert person.pai("delete", there).status == 0
    assert "documented" not in person.pai("listdir", f"pai://local/{storage}/").out


def test_select_storage_creates_workspace(person) -> None:
    before = (person.home / ".openpai/clusters.yaml").read_text()
    try:
        words = ["--cluster-alias", "local", "--storage-name", "home", "--workspace", "space"]
        done = person.pai("select-storage", *words)
        assert done.status == 0, done
        user = json.loads(person.pai("cluster-status", "-o", "json").out)["user"]
        assert "space/" in person.pai("listdir", f"pai://local/home/{user}").out
        job = yaml.safe_load(person.pai("sub", "--preview", "-j", "J", "--no-sources", "true").out)
        assert job["parameters"]["work_directory"] == f"/{user}/space/jobs/J"
        assert person.pai("select-storage", "-a", "local", "--storage-name", "home").status == 0
    finally:
        (person.home / ".openpai/clusters.yaml").write_text(before)


def test_add_storage_cluster(newcomer) -> None:
    words = ["--cluster-alias", "store", "--type", "hdfs", "--address", "http://h:50070", "--path", "/data"]
    done = newcomer.pai("add-storage-cluster", *words, "configs:k=v")
    assert done.status == 0, done
    assert (
        yaml.safe_load((newcomer.home / ".openpai/clusters.yaml").read_text())[0]["cluster_alias"] == "store"
    )


def test_file_command_aliases(person) -> None:
    person.write(a="content")
    for words in (
        ["storage", "upload", "-a", "local", "a", "/older.txt"],
        ["storage", "status", "-a", "local", "older.txt"],
        ["storage", "download", "-a", "local", "older.txt", "b"],
        ["storage", "delete", "-a", "local", "older.txt"],
        ["storage", "list-storage", "-a", "local"],
    ):
        done = person.run(["opai", *words])
        assert done.status == 0, done
    assert (person.project / "b").read_text() == "content"
    assert "older.txt" not in person.run(["opai", "storage", "list", "-a", "local", "/"]).out
