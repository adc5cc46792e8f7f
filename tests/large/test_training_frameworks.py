"""Loggers of training frameworks in real trainings: `make test-large`. Installs about 300 MB, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.paths import REPOSITORY
from support.third_party_clients import torch, training_frameworks

pytestmark = pytest.mark.slow

PROGRAMS = REPOSITORY / "tests/support/training_programs"
RECORDED = REPOSITORY / "tests/pairuntime/callbacks/recorded"
TIMEOUT_S = 300
TRAINED = "train/loss", "train/mae"
SEVERAL = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"


def train(folder: Path, *words: object) -> list[tuple[int, dict[str, float]]]:
    """Steps and values that a program logged."""
    file = folder / "metrics.jsonl"
    path = (training_frameworks(), torch(), REPOSITORY / "src", REPOSITORY / "tests")
    variables = {
        "KERAS_BACKEND": "torch",
        "KERAS_HOME": str(folder),
        "PAI_METRICS_FILE": str(file),
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [(line["step"], line["values"]) for line in lines]


def names(logged: list[tuple[int, dict[str, float]]]) -> list[tuple[int, set[str]]]:
    return [(step, set(values)) for step, values in logged]


def structure(call: list[Any]) -> Any:
    """A call without the values, which differ from run to run: times, speeds, random numbers."""
    name, arguments, named = call
    return (
        name,
        [sorted(value) if isinstance(value, dict) else value for value in arguments],
        {key: sorted(value) if isinstance(value, dict) else value for key, value in named.items()},
    )


@pytest.mark.parametrize(
    ("class_name", "program", "recording"),
    [
        ("KerasCallback", ["keras_program.py", "--batches"], "keras.json"),
        ("LightningLogger", ["lightning_program.py", 1], "lightning.json"),
        ("TransformersCallback", ["transformers_program.py"], "transformers.json"),
    ],
)
def test_calls_are_those_that_other_tests_repeat(
    tmp_path: Path, class_name: str, program: list[Any], recording: str
) -> None:
    calls = tmp_path / "calls.json"
    script, *arguments = program
    assert train(tmp_path, PROGRAMS / "recorder.py", class_name, calls, PROGRAMS / script, *arguments)
    recorded = json.loads((RECORDED / recording).read_text())
    assert [structure(call) for call in json.loads(calls.read_text())] == [
        structure(call) for call in recorded
    ]


def test_keras_logs_epochs_or_batches(tmp_path: Path) -> None:
    epochs = train(tmp_path, PROGRAMS / "keras_program.py")
    both = {*TRAINED, "val/loss", "val/mae"}
    assert names(epochs) == [(0, both), (1, both)]
    (tmp_path / "metrics.jsonl").unlink()

    batches = train(tmp_path, PROGRAMS / "keras_program.py", "--batches")
    assert names(batches) == [(2, {*TRAINED}), (3, both), (4, {*TRAINED}), (6, {*TRAINED}), (6, both)]


def test_only_rank_0_of_keras_logs(tmp_path: Path) -> None:
    assert [step for step, _ in train(tmp_path, *SEVERAL, PROGRAMS / "keras_program.py", "--ranks")] == [0, 1]


def test_only_rank_0_of_lightning_logs(tmp_path: Path) -> None:
    logged = names(train(tmp_path, PROGRAMS / "lightning_program.py", 2))

    trained, validated = {"train/loss", "epoch"}, {"val/loss", "epoch"}
    assert logged == [(1, trained), (3, trained), (3, validated), (5, trained), (7, trained), (7, validated)]
    assert len(list((tmp_path / "local/main-0/checkpoints").iterdir())) == 1


def test_only_rank_0_of_a_trainer_logs(tmp_path: Path) -> None:
    logged = train(tmp_path, *SEVERAL, PROGRAMS / "transformers_program.py")

    # Two processes share the 16 examples: four steps.
    assert [step for step, _ in logged] == [2, 2, 4, 4, 4]
    assert ["eval/loss" in values for _, values in logged] == [False, True, False, True, False]
