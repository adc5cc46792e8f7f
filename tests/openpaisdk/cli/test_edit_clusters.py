"""The clusters file in an editor, clusters asked anew, and one that is down."""

import json
import socket
import stat
import threading

import pytest
import yaml

from openpaisdk.client.fanout import ClusterCall, call_all

ENTRIES = [{"cluster_alias": "one", "pai_uri": "http://one.example", "user": "me", "token": "t"}]


@pytest.fixture
def keeper(newcomer):
    (newcomer.home / ".openpai").mkdir()
    newcomer.clusters = newcomer.home / ".openpai/clusters.yaml"
    newcomer.clusters.write_text(yaml.safe_dump(ENTRIES))
    return newcomer


def editor(person, script: str) -> str:
    path = person.project / "editor.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_valid_edit_replaces_the_file(keeper) -> None:
    done = keeper.pai("edit-clusters", "--editor", editor(keeper, 'sed -i s/one/two/g "$1"'))
    assert done.status == 0 and "now has 1 cluster" in done.err, done
    assert yaml.safe_load(keeper.clusters.read_text())[0]["cluster_alias"] == "two"
    assert keeper.clusters.stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in keeper.clusters.parent.glob("*.edit*")) == []


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
def test_invalid_edit_is_rejected_and_old_file_kept(keeper, script: str, says: str) -> None:
    before = keeper.clusters.read_text()
    done = keeper.pai("edit-clusters", "--editor", editor(keeper, script))
    assert done.status == 1 and says in done.err and "Traceback" not in done.err, done
    assert keeper.clusters.read_text() == before


def test_editor_precedence(keeper) -> None:
    first, second = editor(keeper, "echo visual >&2"), "false"
    env = {"VISUAL": first, "EDITOR": second, "PATH": f"{keeper.env()['PATH']}"}
    done = keeper.pai("edit-clusters", env=env)
    assert done.status == 0 and "visual" in done.err and "Nothing was changed" in done.err, done
    code = keeper.project / "code"
    code.write_text('#!/bin/sh\necho "code $1" >&2\n')
    code.chmod(0o755)
    env["PATH"] = f"{keeper.project}:{env['PATH']}"
    done = keeper.pai("edit-clusters", env=env)
    assert "code --wait" in done.err, done
    done = keeper.pai("edit-clusters", "--editor", "no-such-editor")
    assert done.status == 2 and "cannot be started" in done.err, done


def test_concurrently_changed_file_is_not_overwritten(keeper) -> None:
    script = f'echo "# mine" >> "$1"; echo "# theirs" >> {keeper.clusters}'
    done = keeper.pai("edit-clusters", "--editor", editor(keeper, script))
    assert done.status == 1 and "changed by another command" in done.err, done
    assert "# theirs" in keeper.clusters.read_text() and "# mine" not in keeper.clusters.read_text()


def test_unresponsive_cluster_does_not_block_others(capsys) -> None:
    never = threading.Event()
    quick, slow = ClusterCall("quick", lambda: 1), ClusterCall("slow", never.wait)
    call_all([quick, slow], timeout_s=1.0)  # on a busy machine quick is slower than it looks
    never.set()
    assert quick.result == 1 and slow.error and "slow did not respond" in slow.error.message


# So many that no command would be given the time to wait for one after the other.
_SILENT = 20


@pytest.mark.slow
def test_unreachable_clusters_are_reported_together_and_quickly(keeper) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # one that refuses, and many that accept and never say a word
        uris = {"refuses": "http://127.0.0.1:1"}
        uris |= {f"silent{n}": f"http://127.0.0.1:{silent.getsockname()[1]}" for n in range(_SILENT)}
        entries = [{**ENTRIES[0], "cluster_alias": alias, "pai_uri": uri} for alias, uri in uris.items()]
        keeper.clusters.write_text(yaml.safe_dump(entries))
        done = keeper.pai("update-clusters", "-o", "json")
        assert done.status == 1 and json.loads(done.out) == {}, done
        assert "refuses" in done.err and done.err.count("did not respond") == _SILENT, done
    assert keeper.pai("update-clusters", "nobody").status == 2


def test_embedded_cluster_needs_no_token(newcomer) -> None:
    done = newcomer.pai("update-token")
    assert done.status == 2 and "needs no token" in done.err, done
