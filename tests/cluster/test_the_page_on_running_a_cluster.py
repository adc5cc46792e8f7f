"""Every command and every job of docs/running-a-cluster.md does what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from served import Cluster, job

from openpaisdk.protocol import read_job

PAGE = (Path(__file__).parents[2] / "docs/running-a-cluster.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[list[str]]:
    return [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]


def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    serving = [words for words in commands() if words[1] == "serve"]
    others = [words for words in commands() if words[1] != "serve"]
    assert len(serving) == 2 and [words[1] for words in others] == ["backup", "restore"]
    for words in serving:
        # The page's port and home may be taken here; everything else is as it stands there.
        options = words[2:]
        for name in ("--home", "--port"):
            if name in options:
                del options[options.index(name) : options.index(name) + 2]
        cluster = Cluster(tmp_path / "cluster", ("--embedded", *options))
        try:
            cluster.start()
            assert cluster.run(job(f"j{len(options)}", "true"))["state"] == "SUCCEEDED"
            if "--virtual-cluster" in options:
                shown = cluster.get("/api/v2/virtual-clusters").json()["lab"]["resourcesTotal"]
                assert (shown["gpu"], shown["cpu"], shown["memory"]) == (2, 16, 64000)
        finally:
            cluster.close()
    for words in others:
        done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done


@pytest.mark.parametrize("text", blocks("yaml"))
def test_the_extras_of_the_page_are_understood(text: str) -> None:
    additions = read_job(yaml.safe_dump(job("a", "true")) + text).additions
    assert (additions.array_limit, additions.time_limit_s) == (4, 3600)
    assert [(one.job, one.success) for one in additions.after] == [("prepare", True)]


def test_every_option_of_the_page_is_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paicluster", "serve", "--help"], capture_output=True, text=True
    )
    told = done.stdout + "--with-files --help"
    assert set(re.findall(r"--[a-z-]+", PAGE)) <= set(re.findall(r"--[a-z-]+", told))
