"""Samples: the same values for the same seed everywhere, within their space."""

import decimal
import sys

import pytest

from openpaisdk.jobs.array_sample import read_sample, sample_array
from paiprotocol.errors import UsageError

SPACE = ["lr=log(1e-5,1e-1)", "layers=1..8", "drop=0.1..0.5", "opt=adam|sgd"]


def test_values_of_a_seed_are_these_on_every_platform() -> None:
    """Another value breaks a sweep that is to be repeated."""
    assert sample_array(SPACE, 3, 7).variables == {
        "lr": ["0.000259764", "0.0121792", "0.00140338"],
        "layers": ["8", "5", "3"],
        "drop": ["0.316189", "0.111437", "0.294316"],
        "opt": ["adam", "adam", "adam"],
    }


def test_values_do_not_depend_on_the_caller_s_decimals() -> None:
    with decimal.localcontext(prec=3, rounding=decimal.ROUND_UP):
        changed = sample_array(SPACE, 20, 7).variables
    assert changed == sample_array(SPACE, 20, 7).variables


def test_values_are_the_same_without_the_c_library_of_decimals(monkeypatch) -> None:
    import _pydecimal

    expected = sample_array(SPACE, 50, 7).variables
    monkeypatch.setitem(sys.modules, "decimal", _pydecimal)
    assert sample_array(SPACE, 50, 7).variables == expected


def test_larger_sample_begins_with_the_smaller_and_variables_are_independent() -> None:
    few, many = sample_array(SPACE, 5, 1).variables, sample_array(SPACE, 50, 1).variables
    assert {name: values[:5] for name, values in many.items()} == few
    assert sample_array(SPACE[:1], 5, 1).variables == {"lr": few["lr"]}
    assert sample_array(SPACE, 5, 2).variables["lr"] != few["lr"]


def test_values_are_in_their_space_and_fill_it() -> None:
    found = sample_array([*SPACE, "seed=1-3", "q='1..8'|\"a|b\"", "n=-2..2"], 400, 0).variables
    rates = [float(value) for value in found["lr"]]
    assert all(1e-5 <= rate <= 1e-1 for rate in rates)
    assert 60 < sum(rate < 1e-4 for rate in rates) < 140  # one of four orders of magnitude
    assert {*found["layers"]} == {str(i) for i in range(1, 9)} and {*found["opt"]} == {"adam", "sgd"}
    drops = [float(value) for value in found["drop"]]
    assert all(0.1 <= drop <= 0.5 for drop in drops) and 160 < sum(drop < 0.3 for drop in drops) < 240
    assert {*found["seed"]} == {"1", "2", "3"} and {*found["q"]} == {"1..8", "a|b"}
    assert {*found["n"]} == {"-2", "-1", "0", "1", "2"}


def test_space_of_a_program() -> None:
    space = {"lr": "log(1e-5,1e-1)", "opt": ["adam", "sgd"], "layers": range(1, 9)}
    assert sample_array(space, 3, 7).variables == {
        "lr": ["0.000259764", "0.0121792", "0.00140338"],
        "opt": ["adam", "adam", "adam"],
        "layers": ["8", "5", "3"],
    }


def test_ends_with_many_digits_stay_within_the_range() -> None:
    values = sample_array({"x": "0.12345678..0.12345679"}, 50, 0).variables["x"]
    assert all(0.12345678 <= float(value) <= 0.12345679 for value in values)


def test_limits() -> None:
    assert sample_array(["a=1..3%2"], 5, 0).limit == sample_array(["a=1..3"], "5%2", 0).limit == 2
    with pytest.raises(UsageError, match="contradict"):
        sample_array(["a=1..3%2"], "5%3", 0)


@pytest.mark.parametrize("value", ["0", "x", "-1", "10001", "", True, "1.5", "9" * 5000])
def test_invalid_number_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="use the number of tasks, from 1 to 10000"):
        read_sample(value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a=8..1", "no number between 8 and 1"),
        ("a=0.5..0.5", "no number between"),
        ("a=log(0,1)", "above 0"),
        ("a=log(1,1)", "no number between"),
        ("a=log(1)", "this is no range of numbers"),
        ("a=log(x,1)", "this is no range of numbers"),
        ("a=1..1e999", "too large"),
        (f"a=1..{'9' * 5000}", "too large, or too long"),
        ("a=log(1e-999,1)", "above 0"),
        ("a=", "a value is missing"),
        ("a=x||y", "a value is missing"),
        ("10", "contradict"),
        ("PAI_X=1", "the cluster's own"),
    ],
)
def test_invalid_space_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        sample_array([text], 3, 0)
