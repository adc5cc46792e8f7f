"""Loggers of training frameworks, driven as the frameworks do: by the calls that the real packages made.

`support/training_programs/recorder.py` wrote the calls, of Keras 3.15.1 with PyTorch (`--batches`), Lightning
2.6.6 and Transformers 5.23.0. The base classes here are fakes; `tests/large/test_training_frameworks.py`
trains with the real packages, and compares their calls with the recorded ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paicluster.engines.common import runtime_install

RECORDED = Path(__file__).with_name("recorded")

_LOGGERS = """
class Logger:
    def log_graph(self, model, input_array=None): pass
    def after_save_checkpoint(self, checkpoint_callback): pass
    def save(self): pass
    def finalize(self, status): self.save()
"""
_RANK_ZERO_ONLY = """
import functools, os

def rank_zero_only(function):
    @functools.wraps(function)
    def call(*arguments, **named):
        if int(os.environ.get("RANK", "0")) == 0:
            return function(*arguments, **named)
    return call
"""
_KERAS_HOOKS = [
    f"on_{part}{what}_{end}"
    for part in ("", "train_")
    for what in ("batch", "epoch")
    for end in ("begin", "end")
]
_KERAS_HOOKS += [f"on_test_{what}" for what in ("begin", "end", "batch_begin", "batch_end")]
_KERAS_HOOKS += ["on_train_begin", "on_train_end"]
FAKES = {
    "keras/__init__.py": "",
    "keras/backend.py": "import os\ndef backend(): return os.environ['BACKEND']\n",
    "keras/callbacks.py": "class Callback:\n"
    + "".join(f"    def {name}(self, *arguments, logs=None): pass\n" for name in _KERAS_HOOKS),
    "lightning/__init__.py": "",
    "lightning/pytorch/__init__.py": "",
    "lightning/pytorch/loggers.py": _LOGGERS,
    "lightning/pytorch/utilities.py": _RANK_ZERO_ONLY,
    "transformers/__init__.py": "class TrainerCallback:\n"
    "    def __getattr__(self, name):\n"
    "        if not name.startswith('on_'): raise AttributeError(name)\n"
    "        return lambda args, state, control, **named: None\n",
    "torch/__init__.py": "",
    "torch/distributed.py": "import os\n"
    "def is_available(): return True\n"
    "def is_initialized(): return 'RANK' in os.environ\n"
    "def get_rank(): return int(os.environ['RANK'])\n",
    "jax.py": "import os\ndef process_index(): return int(os.environ.get('RANK', '0'))\n",
}
REPLAY = """
import json, sys, types

def restored(value):
    if isinstance(value, dict) and "state" in value:
        return types.SimpleNamespace(**value["state"])
    return value

def replay(target, file):
    for name, arguments, named in json.load(open(file)):
        getattr(target, name)(*map(restored, arguments), **named)
"""


@pytest.fixture(name="fakes", scope="module")
def fakes_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fakes")
    for name, text in FAKES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(name="task_packages", scope="module")
def task_packages_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a task has where the SDK is not installed."""
    return runtime_install.install(tmp_path_factory.mktemp("runtimes")).parent / "lib"


def run(program: str, *folders: Path, bare: bool = False, **variables: str) -> str:
    """Standard error of a program with these folders on its path; ``bare``: without our own environment."""
    path = os.pathsep.join(str(folder) for folder in folders)
    environment: Mapping[str, str] = {**os.environ, "BACKEND": "tensorflow", **variables, "PYTHONPATH": path}
    options = ["-S"] if bare else []
    done = subprocess.run(
        [sys.executable, *options, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr


def logged(file: Path) -> list[tuple[int, dict[str, Any]]]:
    if not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [(line["step"], line["values"]) for line in lines]


def replayed(made: str, recording: str, fakes: Path, file: Path, **variables: str) -> list[Any]:
    name = made.partition("(")[0]
    program = (
        f"{REPLAY}\nfrom openpaisdk.runtime import {name}\nreplay({made}, {str(RECORDED / recording)!r})"
    )
    assert run(program, fakes, PAI_METRICS_FILE=str(file), **variables) == ""
    return logged(file)


def calls_of(recording: str, method: str) -> list[Any]:
    return [call for call in json.loads((RECORDED / recording).read_text()) if call[0] == method]


def test_keras_logs_each_epoch(fakes: Path, tmp_path: Path) -> None:
    found = replayed("KerasCallback()", "keras.json", fakes, tmp_path / "metrics.jsonl")

    epochs = [arguments[1] for _, arguments, _ in calls_of("keras.json", "on_epoch_end")]
    assert len(epochs) == 2
    assert found == [
        (
            epoch,
            {
                "train/loss": logs["loss"],
                "train/mae": logs["mae"],
                "val/loss": logs["val_loss"],
                "val/mae": logs["val_mae"],
            },
        )
        for epoch, logs in enumerate(epochs)
    ]


def test_keras_logs_after_some_batches(fakes: Path, tmp_path: Path) -> None:
    found = replayed("KerasCallback(every_batches=2)", "keras.json", fakes, tmp_path / "metrics.jsonl")

    train, both = {"train/loss", "train/mae"}, {"train/loss", "train/mae", "val/loss", "val/mae"}
    assert [(step, set(values)) for step, values in found] == [
        (2, train),
        (3, both),
        (4, train),
        (6, train),
        (6, both),
    ]
    assert found[2][1]["train/loss"] == calls_of("keras.json", "on_train_batch_end")[3][2]["logs"]["loss"]


def test_lightning_logs_what_the_module_logs(fakes: Path, tmp_path: Path) -> None:
    found = replayed("LightningLogger()", "lightning.json", fakes, tmp_path / "metrics.jsonl")

    calls = [named for _, _, named in calls_of("lightning.json", "log_metrics")]
    assert found == [(named["step"], named["metrics"]) for named in calls]
    names = ["train/loss", "train/loss", "val/loss"]
    assert [next(iter(values)) for _, values in found] == names + names
    assert [step for step, _ in found] == [1, 3, 3, 5, 7, 7]


def test_transformers_logs_in_groups(fakes: Path, tmp_path: Path) -> None:
    found = replayed("TransformersCallback()", "transformers.json", fakes, tmp_path / "metrics.jsonl")

    assert [step for step, _ in found] == [2, 4, 4, 6, 8, 8, 8]
    calls = [named["logs"] for _, _, named in calls_of("transformers.json", "on_log")]
    assert found[0][1]["train/loss"] == calls[0]["loss"]
    assert set(found[0][1]) == {"train/loss", "train/grad_norm", "train/learning_rate", "train/epoch"}
    assert found[2][1]["eval/loss"] == calls[2]["eval_loss"]
    assert found[6][1]["train/train_loss"] == calls[6]["train_loss"]


def test_transformers_names_tests(fakes: Path, tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    program = """
from types import SimpleNamespace
from openpaisdk.runtime import TransformersCallback

state = SimpleNamespace(global_step=3, is_world_process_zero=True)
TransformersCallback().on_log(None, state, None, logs={"test_loss": 1, "testing": 2}, model=None)
TransformersCallback().on_log(None, state, None)
"""
    assert run(program, fakes, PAI_METRICS_FILE=str(file)) == ""

    assert logged(file) == [(3, {"test/loss": 1.0, "train/testing": 2.0})]


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize(
    ("made", "recording", "keras_backend"),
    [
        ("KerasCallback()", "keras.json", "torch"),
        ("KerasCallback()", "keras.json", "jax"),
        ("LightningLogger()", "lightning.json", ""),
    ],
)
def test_only_rank_0_logs(
    fakes: Path, tmp_path: Path, made: str, recording: str, keras_backend: str, rank: str
) -> None:
    file = tmp_path / "metrics.jsonl"
    found = replayed(made, recording, fakes, file, BACKEND=keras_backend, RANK=rank)

    assert bool(found) == (rank == "0")


def test_only_the_first_process_of_a_trainer_logs(fakes: Path, tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    program = """
from types import SimpleNamespace
from openpaisdk.runtime import TransformersCallback

state = SimpleNamespace(global_step=3, is_world_process_zero=False)
TransformersCallback().on_log(None, state, None, logs={"loss": 1})
"""
    assert run(program, fakes, PAI_METRICS_FILE=str(file)) == ""

    assert logged(file) == []


MADE = {"KerasCallback": "keras", "LightningLogger": "lightning", "TransformersCallback": "transformers"}


@pytest.mark.parametrize("has_sdk", [True, False])
def test_nothing_is_imported_where_none_is_used(task_packages: Path, has_sdk: bool) -> None:
    program = """
import sys
from openpaisdk.runtime import *
from openpaisdk.runtime import log_metrics
import openpaisdk.runtime
assert not {"pairuntime.callbacks", "keras", "lightning", "transformers", "torch"} & set(sys.modules)
assert not hasattr(openpaisdk.runtime, "OtherLogger")
"""
    assert run(program, *([] if has_sdk else [task_packages]), bare=not has_sdk) == ""


@pytest.mark.parametrize("name", MADE)
def test_a_missing_framework_is_named(task_packages: Path, name: str) -> None:
    error = run(f"from openpaisdk.runtime import {name}", task_packages, bare=True).splitlines()[-1]

    package = MADE[name]
    message = f"{name} needs the package {package}, which is not installed: pip install {package}."
    assert error == f"ImportError: {message}"


def test_a_framework_that_lacks_something_says_so_itself(tmp_path: Path) -> None:
    (tmp_path / "keras.py").write_text("import tensorflow_that_is_not_there")
    error = run("from openpaisdk.runtime import KerasCallback", tmp_path).splitlines()[-1]

    assert error == "ModuleNotFoundError: No module named 'tensorflow_that_is_not_there'"


def test_without_the_sdk_steps_are_counted_on(fakes: Path, task_packages: Path, tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    program = """
from openpaisdk.runtime import LightningLogger, log_metrics
LightningLogger().log_metrics({"a": 1}, 7)
log_metrics(b=2)
LightningLogger().log_metrics({"c": 3})
"""
    assert run(program, fakes, task_packages, bare=True, PAI_METRICS_FILE=str(file)) == ""

    assert logged(file) == [(7, {"a": 1.0}), (8, {"b": 2.0}), (9, {"c": 3.0})]


def test_values_that_are_no_numbers_are_left_out(fakes: Path, tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    program = """
from openpaisdk.runtime import LightningLogger

class Tensor:
    def __init__(self, *items): self.items = items
    def item(self):
        if len(self.items) > 1: raise RuntimeError("several")
        return self.items[0]

logger = LightningLogger()
others = {"b": Tensor(1, 2), "c": "text", "d": None, "e": [1]}
logger.log_metrics({"a": Tensor(0.5), "f": float("nan"), **others}, 1)
logger.log_metrics({"c": "text"}, 2)
"""
    assert run(program, fakes, PAI_METRICS_FILE=str(file)) == ""

    assert logged(file) == [(1, {"a": 0.5, "f": "NaN"})]


def test_checkpoints_of_lightning_are_in_a_folder_of_the_task(fakes: Path, tmp_path: Path) -> None:
    program = """
import pickle
from openpaisdk.runtime import LightningLogger

logger = pickle.loads(pickle.dumps(LightningLogger()))
assert (logger.name, logger.version) == (%r, %r), (logger.name, logger.version)
logger.log_hyperparams({"rate": 0.1}, {})
logger.finalize("success")
"""
    assert run(program % ("local", "main-0"), fakes) == ""
    variables = {"PAI_JOB_NAME": "alice~lab", "PAI_CURRENT_TASK_ROLE_NAME": "worker", "PAI_TASK_INDEX": "2"}
    assert run(program % ("lab", "worker-2"), fakes, **variables) == ""


def test_lightning_under_its_other_name(fakes: Path, tmp_path: Path) -> None:
    (tmp_path / "pytorch_lightning").symlink_to(fakes / "lightning/pytorch")
    program = """
import sys
%s
from openpaisdk.runtime import LightningLogger
assert LightningLogger.__mro__[1].__module__ == "pytorch_lightning.loggers"
assert "lightning" not in sys.modules
"""
    assert run(program % "import pytorch_lightning", tmp_path, fakes) == ""
    assert run(program % "", tmp_path) == ""
