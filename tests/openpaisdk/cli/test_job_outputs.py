"""`pai job-outputs`, `pai job-metrics` and `pai logs --level`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = """\
import logging, os
from openpaisdk.runtime import log_metrics
for step in range(20):
    log_metrics(step, loss=1 / (step + 1))
print("plain words")
logging.info("all is well")
try:
    raise ValueError("too hot")
except ValueError:
    logging.exception("it went wrong")
logging.warning("slow")
with open(os.path.join(os.environ["PAI_OUTPUT_DIR"], "scores.txt"), "w") as f:
    f.write("0.5")
"""


class JobOwner:
    def __init__(self, home: Path):
        self.home = home
        self.folder = home / "project"
        self.folder.mkdir(parents=True)
        (self.folder / "program.py").write_text(PROGRAM)

    def pai(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(self.home), "COLUMNS": "80"}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        return subprocess.run(
            ["pai", *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobOwner]:
    someone = JobOwner(tmp_path_factory.mktemp("someone"))
    line = ("sub", "--wait", "-j", "trained", "--capture-logging", "--", "python", "program.py")
    done = someone.pai(*line)
    assert done.returncode == 0, done.stderr
    yield someone
    someone.pai("stop-cluster", "--now")


def test_outputs_are_listed_printed_and_downloaded(user: JobOwner) -> None:
    assert user.pai("job-outputs", "trained").stdout.split() == ["FILE", "BYTES", "scores.txt", "3"]
    listed = json.loads(user.pai("job-outputs", "-o", "json", "trained").stdout)
    assert listed == [{"name": "scores.txt", "size": 3}]
    assert user.pai("job-outputs", "trained", "peek", "scores.txt").stdout == "0.5\n"
    assert user.pai("job-outputs", "trained", "get", "--to", "here").returncode == 0
    assert (user.folder / "here" / "scores.txt").read_text() == "0.5"


def test_unknown_output_file_is_named(user: JobOwner) -> None:
    done = user.pai("job-outputs", "trained", "get", "nothing.txt")
    assert done.returncode != 0
    assert "has no output file nothing.txt" in done.stderr


def test_metrics_are_plotted_and_printed_as_json(user: JobOwner) -> None:
    drawn = user.pai("job-metrics", "trained").stdout
    assert drawn.startswith("loss: 0.05 at step 19\n")
    assert "█" in drawn or "▀" in drawn
    values = json.loads(user.pai("job-metrics", "-o", "json", "trained").stdout)["loss"]["values"]
    assert values[:2] == [1.0, 0.5]
    missing = user.pai("job-metrics", "trained", "speed")
    assert missing.returncode == 2
    assert "it has loss" in missing.stderr


def test_logs_are_filtered_by_level_with_tracebacks(user: JobOwner) -> None:
    warnings = user.pai("logs", "--level", "warning", "trained").stdout
    assert "slow" in warnings and "ValueError: too hot" in warnings
    assert "plain words" not in warnings and "all is well" not in warnings
    assert "slow" not in user.pai("logs", "--level", "ERROR", "trained").stdout


def test_fetch_downloads_outputs_of_failed_job_too(user: JobOwner) -> None:
    command = 'echo half > "$PAI_OUTPUT_DIR/half.txt"; exit 3'
    done = user.pai("sub", "--no-sources", "--fetch=back", "-j", "failing", command)
    assert done.returncode == 3
    assert (user.folder / "back" / "half.txt").read_text() == "half\n"
    assert "Downloaded 1 file to back: half.txt" in done.stderr


def test_existing_files_are_not_overwritten(user: JobOwner) -> None:
    keeps = 'echo {} > "$PAI_OUTPUT_DIR/x"; echo 2 > "$PAI_OUTPUT_DIR/y"'
    assert user.pai("sub", "--no-sources", "--fetch", "-j", "first", keeps.format(1)).returncode == 0
    assert (user.folder / "first_output" / "x").read_text() == "1\n"
    (user.folder / "first_output" / "y").unlink()
    done = user.pai("sub", "--no-sources", "--fetch=first_output", "-j", "second", keeps.format(3))
    assert done.returncode == 1 and "were not overwritten: x." in done.stderr, done.stderr
    assert (user.folder / "first_output" / "x").read_text() == "1\n"
    assert (user.folder / "first_output" / "y").read_text() == "2\n", "the others came"
    assert user.pai("job-outputs", "first", "get").returncode == 0, "what is the same is no trouble"
    assert user.pai("job-outputs", "second", "get", "--to", "first_output").returncode == 1
