"""`openpaisdk.map` with named arguments: combinations, rows, samples."""

import pytest

import openpaisdk
from openpaisdk.functions.named_arguments import calls_with
from paiprotocol.errors import UsageError


def train(lr: float, seed: int = 0, opt: str = "adam") -> tuple[float, int, str]:
    return lr, seed, opt


def rows_of(arguments: object, sample: int = 0, seed: int = 0) -> list[dict]:
    return [kwargs for _, kwargs in calls_with(train, arguments, sample, seed)]


def test_calls_of_rows_and_combinations(here) -> None:
    def train(lr: float, seed: int = 0, opt: str = "adam") -> tuple[float, int, str]:
        return lr, seed, opt

    grid = openpaisdk.map(train, arguments={"lr": [0.1, 0.2], "seed": range(2)}, limit=2)
    rows = openpaisdk.remote(train).map(arguments=[{"lr": 1.5}, {"lr": 2.5, "opt": "sgd"}])
    assert grid.results() == [(0.1, 0, "adam"), (0.1, 1, "adam"), (0.2, 0, "adam"), (0.2, 1, "adam")]
    assert rows.results() == [(1.5, 0, "adam"), (2.5, 0, "sgd")]
    assert openpaisdk.map(train, arguments=[]) == []


def test_sample_has_the_values_of_the_command_as_numbers() -> None:
    rows = rows_of({"lr": "log(1e-5,1e-1)", "seed": range(1, 9), "opt": ["adam", "sgd"]}, 3, 7)
    assert [row["lr"] for row in rows] == [0.000259764, 0.0121792, 0.00140338]
    assert {type(row["seed"]) for row in rows} == {int} and {row["opt"] for row in rows} <= {"adam", "sgd"}


@pytest.mark.parametrize(
    ("arguments", "sample", "seed", "says"),
    [
        ({"lr": "0.1,0.2"}, 0, 0, "The values of lr are '0.1,0.2'"),
        ({"lr": []}, 0, 0, "one of them at least"),
        ({"lr": 3}, 0, 0, "The values of lr are 3"),
        ({"rate": [1]}, 0, 0, "cannot be called like this"),
        ([{"lr": 1}, {"seed": 1}], 0, 0, "cannot be called like this"),
        ([{"lr": 1}, 5], 0, 0, "Row 2 of arguments is 5"),
        ([{"lr": 1}], 3, 0, "rows already"),
        ({"lr": [1]}, 0, 3, "there is no sample"),
        ({"lr": "8..1"}, 3, 0, "no number between 8 and 1"),
    ],
)
def test_wrong_arguments_are_refused(arguments: object, sample: int, seed: int, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        rows_of(arguments, sample, seed)


def test_items_and_arguments_exclude_each_other(here) -> None:
    for words in ({}, {"arguments": {"lr": [1]}, "items": [1]}):
        with pytest.raises(UsageError, match="either items or arguments"):
            openpaisdk.map(train, **words)
    with pytest.raises(UsageError, match="give arguments instead of items"):
        openpaisdk.map(train, [1], sample=3)
