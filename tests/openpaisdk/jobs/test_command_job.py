"""Jobs built from command lines."""

import json
import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpaisdk.config import ClusterEntry, Defaults
from openpaisdk.jobs.command import shell_line
from openpaisdk.jobs.command_job import caller_environment, command_job
from openpaisdk.jobs.job_names import expand_name, generate_name
from openpaisdk.jobs.job_options import EMBEDDED_RESOURCES, JobOptions
from paiprotocol.errors import UsageError

ARGUMENTS = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=2, max_size=6
)


@given(ARGUMENTS.filter(lambda arguments: any(w.strip() for w in arguments)))
def test_several_arguments_are_quoted_exactly(arguments: list[str]) -> None:
    assert shlex.split(shell_line(arguments)) == arguments


def test_shell_passes_each_argument_as_typed() -> None:
    arguments = [
        sys.executable,
        "-c",
        "import sys; print(sys.argv[1:])",
        "a b",
        "$HOME",
        "it's",
        '"',
        "\\",
        "*",
        "\n",
        "",
    ]
    out = subprocess.run(
        ["bash", "-c", shell_line(arguments)], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == repr(arguments[3:])


def test_single_argument_is_a_shell_line() -> None:
    assert shell_line(["make && ./run $X"]) == "make && ./run $X"


@pytest.mark.parametrize("arguments", [[], [""], ["  "], ["", " "]])
def test_empty_command_is_rejected(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="no command to run"):
        shell_line(arguments)


def test_job_is_valid_in_the_protocol() -> None:
    from paiprotocol.jobs import read_job

    options = JobOptions(
        "j",
        ["echo hi"],
        memory_mb=64,
        ports={"http": 2},
        virtual_cluster="default",
        inherited_env={"PATH": "/bin"},
        sources={"sha256": "0" * 64, "size": 10},
    )
    job = command_job(options, ClusterEntry.embedded(), Defaults([]))
    assert read_job(json.dumps(job)).name == "j"


def test_default_resources_fit_every_machine() -> None:
    smallest = EMBEDDED_RESOURCES
    assert (smallest.cpu, smallest.gpu) == (1, 0) and smallest.memory_mb <= 512


def test_callers_environment_is_passed_and_has_a_python(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/x:/y")
    monkeypatch.setenv("VIRTUAL_ENV", "/venv")
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setenv("SECRET", "no")
    kept = caller_environment()
    assert kept["PATH"].startswith("/x:/y:") and kept["VIRTUAL_ENV"] == "/venv"
    assert "CONDA_PREFIX" not in kept and "SECRET" not in kept


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("python train.py --lr 1", "train"),
        ("python3.11 -u src/fit_model.py", "fit_model"),
        ("bash -c 'echo hello'", "echo"),
        ("FOO=1 ./run.sh", "run"),
        ("true", "true"),
        ("'', &&", "job"),
        ("nvidia-smi", "nvidia-smi"),
    ],
)
def test_generated_name_contains_the_program(command: str, word: str) -> None:
    name = generate_name(command)
    assert name.rpartition("_")[0] == word
    assert expand_name(name) == name


@given(st.text())
def test_generated_name_is_always_valid(command: str) -> None:
    assert expand_name(generate_name(command))


def test_dollar_is_replaced_by_random_letters() -> None:
    first, second = expand_name("train_$"), expand_name("train_$")
    assert first != second and first.startswith("train_") and "$" not in first


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 256, "a~b"])
def test_invalid_name_is_rejected(name: str) -> None:
    with pytest.raises(UsageError):
        expand_name(name)
