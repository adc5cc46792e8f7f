"""Storage commands exactly as documented; the transfer has tests of its own."""

import json

import pytest
import yaml


def test_documented_storage_commands(user) -> None:
    user.write(src="content")
    storage = json.loads(user.pai("list-storages", "local", "-o", "json").out)[0]["name"]
    there = f"pai://local/{storage}/documented"
    for words in (
        ["makedir", f"{there}/one"],
        ["makedirs", f"{there}/one"],
        ["copy", str(user.project / "src"), f"{there}/dest"],
        ["copy", f"{there}/dest", str(user.project / "back")],
    ):
        done = user.pai(*words)
        assert done.status == 0, done
    assert (user.project / "back").read_text() == "content"
    assert user.pai("listdir", there).out.split() == ["dest", "one/"]
    assert user.pai("list-dir", "pai://local/0/documented").out.split() == ["dest", "one/"]
    assert "7 bytes" in user.pai("getinfo", f"{there}/dest").out
    assert user.pai("remove", f"{there}/dest").status == 0
    assert user.pai("delete", there).status == 0
    assert "documented" not in user.pai("listdir", f"pai://local/{storage}/").out


def test_select_storage_creates_workspace(user) -> None:
    with user.restored_clusters():
        words = ["--cluster-alias", "local", "--storage-name", "home", "--workspace", "space"]
        done = user.pai("select-storage", *words)
        assert done.status == 0, done
        owner = json.loads(user.pai("cluster-status", "-o", "json").out)["user"]
        assert "space/" in user.pai("listdir", f"pai://local/home/{owner}").out
        job = yaml.safe_load(user.pai("sub", "--preview", "-j", "J", "--no-sources", "true").out)
        assert job["parameters"]["work_directory"] == f"/{owner}/space/jobs/J"
        assert user.pai("select-storage", "-a", "local", "--storage-name", "home").status == 0


@pytest.mark.slow
def test_workspace_comes_from_option_then_set_then_select_storage(user) -> None:
    owner = json.loads(user.pai("cluster-status", "-o", "json").out)["user"]

    def folder(*words: str) -> str:
        job = yaml.safe_load(user.pai("sub", "--preview", "-j", "J", "--no-sources", *words, "true").out)
        found = job.get("parameters", {}).get("work_directory", "")
        return str(found).replace("${PAI_USER_NAME}", owner)

    with user.restored_clusters():
        assert folder() == ""
        assert user.pai("select-storage", "-a", "local", "-s", "home", "-w", "selected").status == 0
        assert folder() == f"/{owner}/selected/jobs/J"
        assert user.pai("set", "workspace=set").status == 0
        assert folder() == f"/{owner}/set/jobs/J"
        assert folder("-w", "given") == f"/{owner}/given/jobs/J"
        # An absolute path is one in all three.
        assert folder("-w", "/data//given/") == "/data/given/jobs/J"
        assert user.pai("set", "workspace=/data/set").status == 0
        assert folder() == "/data/set/jobs/J"
        assert user.pai("unset", "workspace").status == 0
        assert user.pai("select-storage", "-a", "local", "-s", "home", "-w", "/tmp/selected").status == 0
        assert folder() == "/tmp/selected/jobs/J"
        bad = user.pai("sub", "--preview", "-w", "../other", "--no-sources", "true")
        assert bad.status == 2 and "'..'" in bad.err, bad
        assert user.pai("select-storage", "-a", "local", "-s", "home", "-w", "../other").status == 2


def test_relative_workspace_is_below_the_users_folder(user) -> None:
    """Also on the embedded cluster, whose user is only known when it runs."""
    job = ["-j", "filed_$", "--no-sources", "--mem", "32m", "--wait", "-w", "deep/er"]
    name = user.pai("sub", *job, "echo kept > $PAI_OUTPUT_DIR/f").out.strip()
    owner = json.loads(user.pai("cluster-status", "-o", "json").out)["user"]
    found = user.pai("copy", f"pai://local/home/{owner}/deep/er/jobs/{name}/output/f", "-")
    assert found.out == "kept\n", found
    assert user.pai("copy", f"pai://local/jobs/{name}/output/f", "-").out == "kept\n"


def test_selected_storage_is_cleared(user) -> None:
    with user.restored_clusters() as clusters:
        clusters.write_text("- {cluster_alias: local, type: embedded}\n")
        assert user.pai("select-storage", "-a", "local", "-s", "home", "-w", "space").status == 0
        done = user.pai("select-storage", "-a", "local", "--clear")
        assert yaml.safe_load(clusters.read_text()) == [{"cluster_alias": "local", "type": "embedded"}]
    assert done.status == 0 and "No storage is selected on local any more" in done.err, done
    again = user.pai("select-storage", "-a", "local", "--clear")
    assert again.status == 0 and "No storage is selected on local." in again.err, again
    assert user.pai("select-storage", "-a", "local", "--clear", "-s", "home").status == 2
    missing = user.pai("select-storage", "-a", "local")
    assert missing.status == 2 and "--storage-name is missing" in missing.err, missing


def test_add_storage_cluster(new_user) -> None:
    words = ["--cluster-alias", "store", "--type", "hdfs", "--address", "http://h:50070", "--path", "/data"]
    done = new_user.pai("add-storage-cluster", *words, "configs:k=v")
    assert done.status == 0, done
    assert (
        yaml.safe_load((new_user.home / ".openpai/clusters.yaml").read_text())[0]["cluster_alias"] == "store"
    )


def test_file_command_aliases(user) -> None:
    user.write(a="content")
    for words in (
        ["storage", "upload", "-a", "local", "a", "/older.txt"],
        ["storage", "status", "-a", "local", "older.txt"],
        ["storage", "download", "-a", "local", "older.txt", "b"],
        ["storage", "delete", "-a", "local", "older.txt"],
        ["storage", "list-storage", "-a", "local"],
    ):
        done = user.run(["opai", *words])
        assert done.status == 0, done
    assert (user.project / "b").read_text() == "content"
    assert "older.txt" not in user.run(["opai", "storage", "list", "-a", "local", "/"]).out
