"""Filters of runs: a small grammar, never a program."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openpaisdk.jobs.run_filter import RunFilter, compare, number_of
from paiprotocol.errors import UsageError

RUN: dict[str, float | str | None] = {
    "lr": 0.01,
    "opt": "adam",
    "loss": 0.5,
    "loss.min": 0.25,
    "broken": float("nan"),
    "state": "SUCCEEDED",
    "a b": 3,
    "text": "0.5",
}


def fits(text: str) -> bool:
    return RunFilter(text).matches(RUN.get)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lr<0.1", True),
        ("lr < 1e-2", False),
        ("lr<=1e-2", True),
        ("lr>=0.01 and lr<=.01", True),
        ("loss.min=0.25", True),
        ("loss == 0.50", True),
        ("text=.5", True),
        ("opt=adam", True),
        ("opt='adam'", True),
        ('opt!="sgd"', True),
        ("opt~da", True),
        ("opt<0.5", False),
        ("opt>0.5", False),
        ("opt>aaa", True),
        ("lr<abc", False),
        ("lr!=abc", True),
        ('"a b"=3', True),
        ("not opt=adam", False),
        ("NOT (opt=adam AND lr>1)", True),
        ("opt=sgd or lr<1 and loss<1", True),
        ("(opt=sgd or lr<1) and loss>1", False),
        ("missing<1", False),
        ("missing!=1", False),
        ("not missing<1", True),
        ("broken=nan", True),
        ("broken!=nan", False),
        ("broken<1", False),
        ("broken>1", False),
        ("broken!=1", True),
        ("lr<inf", True),
    ],
)
def test_what_fits(text: str, expected: bool) -> None:
    assert fits(text) is expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a name is expected at character 1, not the end"),
        ("lr", "a comparison like <, = or ~ is expected at character 3, not the end"),
        ("lr<", "a value is expected at character 4, not the end"),
        ("lr<1 lr<2", "and, or, or the end is expected at character 6, not 'lr'"),
        ("lr<1 and", "a name is expected at character 9, not the end"),
        ("(lr<1", "a closing parenthesis is expected at character 6, not the end"),
        ("lr<1)", "and, or, or the end is expected at character 5, not ')'"),
        ("<1", "a name is expected at character 1, not '<'"),
        ("lr<'1", "a quote that is not closed cannot be read"),
        ("lr<!1", "'!1' cannot be read"),
        ("__import__('os').system('x')", "a comparison like <, = or ~ is expected at character 11, not '('"),
    ],
)
def test_what_is_no_filter_is_one_sentence(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        RunFilter(text)
    assert problem in caught.value.message
    assert "lr<0.01" in (caught.value.hint or "")


def test_bounds() -> None:
    with pytest.raises(UsageError, match="50 deep"):
        RunFilter("(" * 60 + "lr<1" + ")" * 60)
    with pytest.raises(UsageError, match="50 deep"):
        RunFilter("not " * 60 + "lr<1")
    with pytest.raises(UsageError, match="10000 characters"):
        RunFilter("lr<1 or " * 2000 + "lr<1")


_NUMBERS = st.floats(allow_nan=False)


@given(_NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "=", "==", "!="]), _NUMBERS)
def test_numbers_compare_as_in_python(left: float, operator: str, right: float) -> None:
    expected = {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "=": left == right,
        "==": left == right,
        "!=": left != right,
    }[operator]
    assert RunFilter(f"x {operator} {right!r}").matches({"x": left}.get) is expected


_NAMES = st.sampled_from(["a", "b", "c"])
_CONDITIONS = st.recursive(
    st.tuples(_NAMES, st.sampled_from(["<", ">", "="]), st.integers(0, 3)),
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner),
    max_leaves=8,
)


def _written(condition: tuple[object, ...]) -> str:
    if condition[0] == "not":
        return f"not ({_written(condition[1])})"  # type: ignore[arg-type]
    if condition[0] in ("and", "or"):
        return f"({_written(condition[1])}) {condition[0]} ({_written(condition[2])})"  # type: ignore[arg-type]
    return "".join(map(str, condition))


def _holds(condition: tuple[object, ...], run: dict[str, float]) -> bool:
    match condition:
        case ("not", inner):
            return not _holds(inner, run)  # type: ignore[arg-type]
        case ("and", left, right):
            return _holds(left, run) and _holds(right, run)  # type: ignore[arg-type]
        case ("or", left, right):
            return _holds(left, run) or _holds(right, run)  # type: ignore[arg-type]
        case (str(name), str(operator), int(value)):
            return {"<": run[name] < value, ">": run[name] > value, "=": run[name] == value}[operator]
    raise AssertionError(condition)


@given(_CONDITIONS, st.fixed_dictionaries(dict.fromkeys("abc", st.integers(0, 3))))
def test_nested_conditions_mean_what_they_say(condition: tuple[object, ...], run: dict[str, float]) -> None:
    assert RunFilter(_written(condition)).matches(run.get) is _holds(condition, run)


@settings(max_examples=60)
@given(st.text(max_size=40))
def test_any_text_is_a_filter_or_one_sentence(text: str) -> None:
    try:
        chosen = RunFilter(text)
    except UsageError as error:
        assert error.message.endswith(".") and error.hint
    else:
        assert isinstance(chosen.matches(RUN.get), bool)


@given(st.text(max_size=20), st.sampled_from(["<", "~", "=", "!="]), st.text(max_size=20))
def test_any_values_compare(value: str, operator: str, expected: str) -> None:
    assert isinstance(compare(value, operator, expected), bool)


def test_numbers() -> None:
    texts = {"1": 1, "-1.5": -1.5, "1e-3": 0.001, ".5": 0.5, "5.": 5, "inf": float("inf")}
    assert {text: number_of(text) for text in texts} == texts
    assert [number_of(text) for text in ("", "1_0", "0x1", "one", "1 2", "--1", "e5")] == [None] * 7
