"""TAB completion of commands, options and names, in real shells."""

import os
import pty
import re
import subprocess
import time

import pytest
import yaml

from openpaisdk.cli.commands import ENTRY_POINTS
from openpaisdk.cli.parser import get_parser
from openpaisdk.cli.setup.completion import SCRIPTS
from support.external_services import debian
from support.import_budget import HEAVY, OTHER_PACKAGES, imported
from support.terminal import is_readable


def tab(user, *words: str) -> list[str]:
    done = user.pai("__complete", *words)
    assert done.status == 0 and done.err == "", done
    return done.out.split("\n")[:-1]


@pytest.fixture
def known(user):
    entries = [
        {"cluster_alias": "local", "type": "embedded"},
        {
            "cluster_alias": "team",
            "pai_uri": "http://127.0.0.1:1",
            "user": "me",
            "token": "t",
            "info": {},
            "virtual_clusters": ["default", "vision"],
            "storages": [{"name": "nfs_data"}, {"name": "nfs_home"}],
        },
    ]
    (user.project / ".openpai").mkdir()
    (user.project / ".openpai/clusters.yaml").write_text(yaml.safe_dump(entries))
    (user.project / ".openpai/defaults.yaml").write_text("clusters-in-local: 'yes'\ncluster-alias: local\n")
    return user


@pytest.mark.parametrize("name", list(ENTRY_POINTS))
def test_get_parser_runs_no_command(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert get_parser(name).name == name
    assert list(tmp_path.iterdir()) == []


def test_completes_commands_and_options(known) -> None:
    assert tab(known, "stop") == ["stop-cluster", "stop-job", "stop-jobs"]
    assert set(tab(known, "")) >= {"sub", "list-jobs", "doctor"}
    assert tab(known, "sub", "--pip") == ["--pip", "--pip-installs", "--pip-path"]
    assert tab(known, "list-jobs", "--state", "R") == ["RUNNING"]
    assert tab(known, "list-jobs", "-o", "") == ["table", "json", "yaml"]
    assert tab(known, "list-jobs", "--output=j") == ["--output=json"]
    assert tab(known, "set", "clus") == ["clusters-in-local=", "cluster-alias="]
    assert tab(known, "completion", "z") == ["zsh"] and tab(known, "help", "doc") == ["doctor"]
    assert tab(known, "nonsense", "x") == [] and tab(known, "sub", "-j", "x", "--", "pyth") == []
    assert tab(known, "sub", "python", "--pi") == [], "that is an option of python's"


def test_completes_clusters_storages_and_virtual_clusters(known) -> None:
    assert tab(known, "select-cluster", "") == ["local", "team"]
    assert tab(known, "list-jobs", "-a", "t") == ["team"] and tab(known, "list-jobs", "-a=l") == ["-a=local"]
    assert tab(known, "sub", "-a", "team", "--vc", "") == ["default", "vision"]
    assert tab(known, "copy", "pai://") == ["pai://local/", "pai://team/"]
    assert tab(known, "copy", "x", "pai://team/nfs") == ["pai://team/nfs_data/", "pai://team/nfs_home/"]
    assert tab(known, "copy", "pai://local/h") == ["pai://local/home/"]
    assert tab(known, "sub", "--vc", "") == ["default"]
    assert tab(known, "select-storage", "-a", "team", "--storage-name", "nfs_h") == ["nfs_home"]


def test_completes_job_names(known) -> None:
    over = known.pai("sub", "--no-sources", "--mem", "16m", "--wait", "-j", "tabbed_$", "true").out.strip()
    going = known.pai("sub", "--no-sources", "--mem", "16m", "-j", "tabbed_$", "sleep 60").out.strip()
    try:
        assert sorted(tab(known, "logs", "tabbed_")) == sorted([over, going])
        assert tab(known, "stop-job", "tabbed_") == [going]
        assert tab(known, "delete-job", "tabbed_") == [over]
        assert tab(known, "job-status", "-a", "local", over[:-1]) == [over]
        assert tab(known, "job-status", over, "") == ["config", "ssh", "events", "tasks"]
        assert tab(known, "job-status", over, "config", "") == []
        assert tab(known, "logs", "-a", "team", "x") == [], "one that is down is not waited for"
    finally:
        known.pai("stop-job", going)


def test_completion_starts_no_cluster(new_user) -> None:
    assert tab(new_user, "logs", "") == []
    assert not (new_user.home / ".openpai").exists()


def test_completion_imports_no_heavy_modules(settled_user) -> None:
    got = imported(settled_user, "__complete", "logs", "x")
    assert not got & (HEAVY | OTHER_PACKAGES | {"hashlib", "difflib"})


def at_a_shell(user, command: list[str], setup: str, typed: str, want: str) -> str:
    """Type into a real shell, press TAB, and wait for the expected text."""
    ours, theirs = pty.openpty()
    env = user.env(PS1="$ ", TERM="dumb", HISTFILE="/dev/null")
    process = subprocess.Popen(
        command,
        cwd=user.project,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=lambda: (os.setsid(), __import__("fcntl").ioctl(0, 0x540E, 0)),
    )
    os.close(theirs)
    seen = ""

    def read(until: str, within: float = 60.0) -> None:
        nonlocal seen
        deadline = time.monotonic() + within
        while until not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen) and time.monotonic() < deadline:
            if is_readable(ours, 0.1):
                try:
                    seen += os.read(ours, 4096).decode(errors="replace")
                except OSError:
                    return

    try:
        os.write(ours, f"{setup}\necho rea''dy\n".encode())
        read("ready")
        seen = ""
        os.write(ours, typed.encode() + b"\t")
        read(want)
    finally:
        process.kill()
        process.wait(90)
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)


@pytest.mark.parametrize(
    ("typed", "want"),
    [
        ("pai select-cl", "select-cluster"),
        ("pai select-cluster te", "team"),
        ("pai copy pai://te", "pai://team/"),
    ],
)
def test_bash_completes(known, typed: str, want: str) -> None:
    seen = at_a_shell(
        known, ["bash", "--norc", "--noprofile", "-i"], 'eval "$(pai completion bash)"', typed, want
    )
    assert want in seen, seen


@pytest.mark.service
@pytest.mark.parametrize("typed", ["pai select-cl", "pai select-cluster te"])
def test_zsh_completes(known, typed: str) -> None:
    debian(["zsh"], commands=["zsh"])
    want = "team" if typed.endswith("te") else "select-cluster"
    setup = 'autoload -Uz compinit; compinit -u -D; eval "$(pai completion zsh)"'
    assert want in at_a_shell(known, ["zsh", "-f", "-i"], setup, typed, want)


@pytest.mark.service
def test_fish_completes(known) -> None:
    debian(["fish"], commands=["fish"])
    script = SCRIPTS["fish"] + "complete -C 'pai select-cluster te'; complete -C 'pai stop-jo'\n"
    done = known.run(["fish", "--no-config", "-c", script])
    assert done.out.split() == ["team", "stop-job", "stop-jobs"], done


def test_completion_help_explains_setup(user) -> None:
    for shell in SCRIPTS:
        assert user.pai("completion", shell).out == SCRIPTS[shell]
        assert shell in user.pai("completion", "--help").out
