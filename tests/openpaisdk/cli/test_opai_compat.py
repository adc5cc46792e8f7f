"""The `opai` command line, translated."""

import json

import pytest

from openpaisdk.cli.opai_compat import ACTIONS, translate_opai
from paiprotocol.errors import UsageError


@pytest.mark.parametrize(
    ("scene", "action"), [(s, a) for s, actions in ACTIONS.items() for a in actions if s != "storage"]
)
def test_every_opai_action_is_translated(scene: str, action: str) -> None:
    assert translate_opai([scene, action, "-a", "x"]) == [ACTIONS[scene][action], "-a", "x"]


@pytest.mark.parametrize(
    ("words", "becomes"),
    [
        ("list-storage -a team", "list-storages team"),
        ("list -a team -s data /x", "listdir pai://team/data/x"),
        ("status -a team x", "getinfo pai://team/0/x"),
        ("upload -a team --overwrite here /there", "copy here pai://team/0/there"),
        ("download --cluster-alias=team -s s there here", "copy pai://team/s/there here"),
        ("delete -a team --recursive x", "remove pai://team/0/x"),
    ],
)
def test_opai_storage_paths_become_pai_urls(words: str, becomes: str) -> None:
    assert translate_opai(["storage", *words.split()]) == becomes.split()


def test_unknown_opai_action_is_reported(user) -> None:
    with pytest.raises(UsageError, match="has no action 'fly'"):
        translate_opai(["job", "fly"])
    done = user.run(["opai", "job", "fly"])
    assert done.status == 2 and "Its actions: list, status" in done.err, done
    assert user.run(["opai", "job", "list"]).status == 0
    assert user.run(["opai", "set", "cpu=2"]).status == 0
    assert user.run(["opai", "unset", "cpu"]).status == 0
    assert user.run(["opai", "cluster", "select", "local"]).status == 0


def test_opai_commands_run(user) -> None:
    done = user.run(["opai", "job", "list", "-o", "json"])
    assert done.status == 0 and isinstance(json.loads(done.out), list)
    assert user.run(["opai", "job", "nonsense"]).status == 2


def test_opai_command_line_is_translated() -> None:
    assert translate_opai(["job", "list", "-a", "x"]) == ["list-jobs", "-a", "x"]
    assert translate_opai(["cluster", "select", "-g", "x"]) == ["select-cluster", "-g", "x"]
    assert translate_opai(["set", "image=x"]) == ["set", "image=x"]
