"""`pai edit-clusters`, `pai update-clusters`, and unreachable clusters."""

import json
import socket
import stat
import threading

import pytest
import yaml

from openpaisdk.client.fanout import ClusterCall, call_all

ENTRIES = [{"cluster_alias": "one", "pai_uri": "http://one.example", "user": "me", "token": "t"}]


@pytest.fixture
def user_with_clusters(new_user):
    (new_user.home / ".openpai").mkdir()
    new_user.clusters = new_user.home / ".openpai/clusters.yaml"
    new_user.clusters.write_text(yaml.safe_dump(ENTRIES))
    return new_user


def editor(user, script: str) -> str:
    path = user.project / "editor.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_valid_edit_replaces_the_file(user_with_clusters) -> None:
    done = user_with_clusters.pai(
        "edit-clusters", "--editor", editor(user_with_clusters, 'sed -i s/one/two/g "$1"')
    )
    assert done.status == 0 and "now has 1 cluster" in done.err, done
    assert yaml.safe_load(user_with_clusters.clusters.read_text())[0]["cluster_alias"] == "two"
    assert user_with_clusters.clusters.stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in user_with_clusters.clusters.parent.glob("*.edit*")) == []


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ('echo "- [" > "$1"', "not valid YAML"),
        ('echo "a: b" > "$1"', "must contain a list"),
        ('echo "- {pai_uri: x}" > "$1"', "has no cluster_alias"),
        ('echo "- {cluster_alias: x}" > "$1"', "has no pai_uri"),
        ('cat "$1" "$1" > "$1.2"; mv "$1.2" "$1"', "alias of another entry"),
        ("exit 3", "failed with status 3"),
    ],
)
def test_invalid_edit_is_rejected_and_old_file_kept(user_with_clusters, script: str, says: str) -> None:
    before = user_with_clusters.clusters.read_text()
    done = user_with_clusters.pai("edit-clusters", "--editor", editor(user_with_clusters, script))
    assert done.status == 1 and says in done.err and "Traceback" not in done.err, done
    assert user_with_clusters.clusters.read_text() == before


def test_editor_precedence(user_with_clusters) -> None:
    first, second = editor(user_with_clusters, "echo visual >&2"), "false"
    env = {"VISUAL": first, "EDITOR": second, "PATH": f"{user_with_clusters.env()['PATH']}"}
    done = user_with_clusters.pai("edit-clusters", env=env)
    assert done.status == 0 and "visual" in done.err and "Nothing was changed" in done.err, done
    code = user_with_clusters.project / "code"
    code.write_text('#!/bin/sh\necho "code $1" >&2\n')
    code.chmod(0o755)
    env["PATH"] = f"{user_with_clusters.project}:{env['PATH']}"
    done = user_with_clusters.pai("edit-clusters", env=env)
    assert "code --wait" in done.err, done
    done = user_with_clusters.pai("edit-clusters", "--editor", "no-such-editor")
    assert done.status == 2 and "cannot be started" in done.err, done


def test_concurrently_changed_file_is_not_overwritten(user_with_clusters) -> None:
    script = f'echo "# mine" >> "$1"; echo "# theirs" >> {user_with_clusters.clusters}'
    done = user_with_clusters.pai("edit-clusters", "--editor", editor(user_with_clusters, script))
    assert done.status == 1 and "changed by another command" in done.err, done
    assert (
        "# theirs" in user_with_clusters.clusters.read_text()
        and "# mine" not in user_with_clusters.clusters.read_text()
    )


def test_unresponsive_cluster_does_not_block_others(capsys) -> None:
    never = threading.Event()
    quick, slow = ClusterCall("quick", lambda: 1), ClusterCall("slow", never.wait)
    call_all([quick, slow], timeout_s=1.0)  # enough for the quick call on a busy machine
    never.set()
    assert quick.result == 1 and slow.error and "slow did not respond" in slow.error.message


# So many that waiting for one after the other would exceed the test's time limit.
_SILENT = 20


@pytest.mark.slow
def test_unreachable_clusters_are_reported_together_and_quickly(user_with_clusters) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # one that refuses connections, and many that accept and never respond
        uris = {"refuses": "http://127.0.0.1:1"}
        uris |= {f"silent{n}": f"http://127.0.0.1:{silent.getsockname()[1]}" for n in range(_SILENT)}
        entries = [{**ENTRIES[0], "cluster_alias": alias, "pai_uri": uri} for alias, uri in uris.items()]
        user_with_clusters.clusters.write_text(yaml.safe_dump(entries))
        done = user_with_clusters.pai("update-clusters", "-o", "json")
        assert done.status == 1 and json.loads(done.out) == {}, done
        assert "refuses" in done.err and done.err.count("did not respond") == _SILENT, done
    assert user_with_clusters.pai("update-clusters", "nobody").status == 2


def test_embedded_cluster_needs_no_token(new_user) -> None:
    done = new_user.pai("update-token")
    assert done.status == 2 and "needs no token" in done.err, done
