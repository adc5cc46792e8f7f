"""`pai job-outputs`, `pai job-metrics` and `pai logs --level`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cli_user import CliUser, CommandResult

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
    """The user of other tests, too: names of jobs begin with `outputs_`."""

    def __init__(self, person: CliUser, folder: Path):
        self._person = person
        self.folder = folder

    def pai(self, *words: str) -> CommandResult:
        return self._person.pai(*words, cwd=self.folder, env={"COLUMNS": "80"})


@pytest.fixture(scope="module")
def user(shared_user: CliUser, tmp_path_factory: pytest.TempPathFactory) -> JobOwner:
    someone = JobOwner(shared_user, tmp_path_factory.mktemp("outputs"))
    (someone.folder / "program.py").write_text(PROGRAM)
    line = ("sub", "--wait", "-j", "outputs_trained", "--capture-logging", "--", "python", "program.py")
    done = someone.pai(*line)
    assert done.status == 0, done
    return someone


def test_outputs_are_listed_printed_and_downloaded(user: JobOwner) -> None:
    assert user.pai("job-outputs", "outputs_trained").out.split() == ["FILE", "BYTES", "scores.txt", "3"]
    listed = json.loads(user.pai("job-outputs", "-o", "json", "outputs_trained").out)
    assert listed == [{"name": "scores.txt", "size": 3}]
    assert user.pai("job-outputs", "outputs_trained", "peek", "scores.txt").out == "0.5\n"
    assert user.pai("job-outputs", "outputs_trained", "get", "--to", "here").status == 0
    assert (user.folder / "here" / "scores.txt").read_text() == "0.5"


def test_unknown_output_file_is_named(user: JobOwner) -> None:
    done = user.pai("job-outputs", "outputs_trained", "get", "nothing.txt")
    assert done.status != 0
    assert "has no output file nothing.txt" in done.err


def test_metrics_are_plotted_and_printed_as_json(user: JobOwner) -> None:
    drawn = user.pai("job-metrics", "outputs_trained").out
    assert drawn.startswith("loss: 0.05 at step 19\n")
    assert "█" in drawn or "▀" in drawn
    values = json.loads(user.pai("job-metrics", "-o", "json", "outputs_trained").out)["loss"]["values"]
    assert values[:2] == [1.0, 0.5]
    missing = user.pai("job-metrics", "outputs_trained", "speed")
    assert missing.status == 2
    assert "metrics are loss" in missing.err


def test_logs_are_filtered_by_level_with_tracebacks(user: JobOwner) -> None:
    warnings = user.pai("logs", "--level", "warning", "outputs_trained").out
    assert "slow" in warnings and "ValueError: too hot" in warnings
    assert "plain words" not in warnings and "all is well" not in warnings
    assert "slow" not in user.pai("logs", "--level", "ERROR", "outputs_trained").out


def test_fetch_downloads_outputs_of_failed_job_too(user: JobOwner) -> None:
    command = 'echo half > "$PAI_OUTPUT_DIR/half.txt"; exit 3'
    done = user.pai("sub", "--no-sources", "--fetch=back", "-j", "outputs_failing", command)
    assert done.status == 3
    assert (user.folder / "back" / "half.txt").read_text() == "half\n"
    assert "Downloaded 1 file to back: half.txt" in done.err


def test_existing_files_are_not_overwritten(user: JobOwner) -> None:
    keeps = 'echo {} > "$PAI_OUTPUT_DIR/x"; echo 2 > "$PAI_OUTPUT_DIR/y"'
    assert user.pai("sub", "--no-sources", "--fetch", "-j", "outputs_first", keeps.format(1)).status == 0
    assert (user.folder / "outputs_first_output" / "x").read_text() == "1\n"
    (user.folder / "outputs_first_output" / "y").unlink()
    done = user.pai(
        "sub", "--no-sources", "--fetch=outputs_first_output", "-j", "outputs_second", keeps.format(3)
    )
    assert done.status == 1 and "were not overwritten: x." in done.err, done
    assert (user.folder / "outputs_first_output" / "x").read_text() == "1\n"
    assert (user.folder / "outputs_first_output" / "y").read_text() == "2\n", "the others came"
    assert user.pai("job-outputs", "outputs_first", "get").status == 0, "what is the same is no trouble"
    assert user.pai("job-outputs", "outputs_second", "get", "--to", "outputs_first_output").status == 1


@pytest.mark.parametrize("folder", ["", "$PAI_DEFAULT_FS_URI/user/$PAI_USER_NAME/of_$PAI_JOB_NAME"])
def test_outputs_of_version_1_are_what_its_tasks_put_into_the_output_folder(
    user: JobOwner, folder: str
) -> None:
    name = "outputs_v1_named" if folder else "outputs_v1_default"
    line = (
        "mkdir -p out/deep && echo r > out/r.txt && echo d > out/deep/d.txt && "
        "hdfs dfs -put out/r.txt $PAI_OUTPUT_DIR/ && hdfs dfs -copyFromLocal out/deep $PAI_OUTPUT_DIR"
    )
    role = {"name": "main", "command": line, "memoryMB": 64}
    job = {"jobName": name, "image": "host", "taskRoles": [role], **({"outputDir": folder} if folder else {})}
    (user.folder / "v1.json").write_text(json.dumps(job))
    done = user.pai("submit", "--wait", "v1.json")
    assert done.status == 0, done
    listed = json.loads(user.pai("job-outputs", name, "-o", "json").out)
    assert listed == [{"name": "deep/d.txt", "size": 2}, {"name": "r.txt", "size": 2}]
    assert user.pai("job-outputs", name, "peek", "deep/d.txt").out == "d\n"
    assert user.pai("job-outputs", name, "get").status == 0
    assert (user.folder / f"{name}_output/deep/d.txt").read_text() == "d\n"


def test_outputs_on_another_storage_are_named(user: JobOwner) -> None:
    role = {"name": "main", "command": "true", "memoryMB": 64}
    address = "hdfs://namenode.example:9000/out"
    job = {"jobName": "outputs_v1_away", "image": "host", "taskRoles": [role], "outputDir": address}
    (user.folder / "away.json").write_text(json.dumps(job))
    assert user.pai("submit", "--wait", "away.json").status == 0
    done = user.pai("job-outputs", "outputs_v1_away")
    assert done.status == 0 and f"pai listdir {address} lists them" in done.err, done
