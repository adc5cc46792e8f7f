"""Arrays: what `--array` accepts, the values of each task, and how they get into the command."""

import itertools
import json
import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openpaisdk.jobs.task_array import RowArray, TaskArray, array_of, array_of_job, read_arrays
from paiprotocol.errors import UsageError

VALUES = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=4
)


def test_number_of_tasks() -> None:
    for text, count, limit in (("100", 100, 0), ("100%8", 100, 8)):
        array = read_arrays([text])
        assert (array.count, array.limit, array.variables) == (count, limit, {})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=0.1,0.01", ["0.1", "0.01"]),
        ("lr=0.1, 0.01 ", ["0.1", "0.01"]),
        ("x=1-3", ["1", "2", "3"]),
        ("x=0-8:2", ["0", "2", "4", "6", "8"]),
        ("x=1-3,7,10-11", ["1", "2", "3", "7", "10", "11"]),
        ("x=5-5", ["5"]),
        ("x='1-3'", ["1-3"]),
        ('x="a,b",c d,\'e"f\'', ["a,b", "c d", 'e"f']),
        ('x="",a', ["", "a"]),
        ("x=a=b,c", ["a=b", "c"]),
        ("x=2026-11-15", ["2026-11-15"]),
        ("x=-1,1e-5,ü", ["-1", "1e-5", "ü"]),
        ("x='50%'", ["50%"]),
        ("x=it's", ["it's"]),
    ],
)
def test_values_of_a_variable(text: str, values: list[str]) -> None:
    array = read_arrays([text])
    assert list(array.variables.values()) == [values] and array.count == len(values) and array.limit == 0


def test_several_variables_are_combined() -> None:
    array = read_arrays(["lr=0.1,0.01", "seed=1-3%2"])
    assert (array.count, array.limit) == (6, 2)
    found = [tuple(array.values_of(i).values()) for i in range(6)]
    assert found == list(itertools.product(["0.1", "0.01"], ["1", "2", "3"]))


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["0"], "number of tasks"),
        (["x"], "number of tasks"),
        (["3%0"], "number of tasks"),
        (["1-10"], "need a name"),
        (["0.1,0.01"], "need a name"),
        (["3", "lr=1,2"], "contradict"),
        (["lr=1", "lr=2"], "twice"),
        (["a=1%2", "b=1%3"], "contradict"),
        (["a=1,2%0"], "at least one task"),
        (["my-lr=1"], "'my-lr' cannot be the name of an environment variable"),
        (["1x=1"], "cannot be the name"),
        (["=1"], "cannot be the name"),
        (["lür=1"], "cannot be the name"),
        (["PAI_TASK_INDEX=1"], "the cluster's own"),
        (["lr="], "a value is missing"),
        (["lr=1,,2"], "a value is missing"),
        (["lr=1,"], "a value is missing"),
        (["lr=9-1"], "the range 9-1 has no values"),
        (["lr=1-9:0"], "has no values"),
        (["lr='a"], "quoted value"),
        (["lr='a'b"], "quoted value"),
        (["lr=a\0b"], "NUL"),
        (["10001"], "10000 tasks at most; this one would have 10001"),
        (["x=1-10001"], "10000 tasks at most"),
        (["9" * 5000], "a number has 5000 digits"),
        (["3%" + "9" * 5000], "a number has 5000 digits"),
        (["x=1,2%" + "9" * 5000], "a number has 5000 digits"),
        (["x=1-" + "9" * 5000], "a number has 5000 digits"),
        (["x=1-999999999999"], "10000 tasks at most"),
        (["x=1-101", "y=1-100"], "10000 tasks at most; this one would have 10100"),
    ],
)
def test_invalid_array_is_rejected(texts: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_arrays(texts)
    assert says in caught.value.message, caught.value.message


@pytest.mark.parametrize(
    "option",
    [{"lr": [0.1, 0.01]}, {"lr": ("0.1", "0.01")}, {"lr": "0.1,0.01"}, "lr=0.1,0.01", ["lr=0.1,0.01"]],
)
def test_values_of_a_program(option: object) -> None:
    array = array_of(option)
    assert array.variables == {"lr": ["0.1", "0.01"]} and array.count == 2


def test_numbers_and_ranges_of_a_program() -> None:
    assert array_of(7).count == 7 and array_of("7%2").limit == 2
    fractions = (x / 2 for x in (1, 2))
    assert array_of({"f": fractions}).variables == {"f": ["0.5", "1.0"]}
    assert array_of({"seed": range(1, 4), "x": "1-2", "one": 5}).variables == {
        "seed": ["1", "2", "3"],
        "x": ["1", "2"],
        "one": ["5"],
    }


@pytest.mark.parametrize(
    "option", [0, True, {}, [], "", {"lr": []}, {"lr": [True]}, {"lr": [[1]]}, {"lr": None}]
)
def test_invalid_values_of_a_program_are_rejected(option: object) -> None:
    with pytest.raises(UsageError):
        array_of(option)


def shell(array: TaskArray, index: int, line: str) -> str:
    script = "\n".join([*array.export_commands(), line])
    done = subprocess.run(
        ["sh", "-c", script],
        env={"PAI_TASK_INDEX": str(index), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode()


@given(st.dictionaries(st.sampled_from(["a", "b", "long_name"]), VALUES, min_size=1), st.integers(0, 63))
def test_every_task_exports_its_values(variables: dict[str, list[str]], number: int) -> None:
    array = array_of(variables)
    index = number % array.count
    expected = "".join(f"{value}|" for value in array.values_of(index).values())
    references = " ".join(f'"${name}"' for name in variables)
    assert shell(array, index, f"printf '%s|' {references}") == expected


@pytest.mark.parametrize(
    ("line", "filled"),
    [
        ("train --lr {lr}", 'train --lr "$lr"'),
        ('echo "at {lr}" {lr}', 'echo "at ${lr}" "$lr"'),
        ("echo 'at {lr} now'", "echo 'at '\"$lr\"' now'"),
        ("echo '{lr}'", 'echo "$lr"'),
        ("echo '{lr}{lr}'", 'echo "$lr""$lr"'),
        ("echo ${lr} \\{lr} {other} {}", "echo ${lr} \\{lr} {other} {}"),
        ("echo \"'{lr}'\" \\'{lr}", 'echo "\'${lr}\'" \\\'"$lr"'),
    ],
)
def test_placeholder_suits_its_quotes(line: str, filled: str) -> None:
    assert TaskArray(1, 0, {"lr": ["x"]}).fill_placeholders(line) == filled


@pytest.mark.parametrize("value", ["a b", "it's", '"q"', "$HOME", "*", "", "new\nline"])
@pytest.mark.parametrize(
    "words", [["{v}"], ["--v={v}"], ["it's {v}"], ['"{v}"'], ["{v}{v}"], ["a{v}b", "c d", "$x", "${v}"]]
)
def test_placeholder_in_quoted_arguments(words: list[str], value: str) -> None:
    array = TaskArray(1, 0, {"v": [value]})
    line = array.fill_placeholders(shlex.join(["printf", "%s|", *words]))
    expected = [word.replace("${v}", "\0").replace("{v}", value).replace("\0", "${v}") for word in words]
    assert shell(array, 0, line) == "".join(f"{word}|" for word in expected)


def test_array_of_a_submitted_job() -> None:
    config = {"extras": {"openpaisdk": {"array": {"lr": ["0.1", "0.01"]}}}}
    array = array_of_job(json.loads(json.dumps(config)))
    assert array is not None and array.values_of(1) == {"lr": "0.01"}
    for other in ({}, {"extras": None}, {"extras": {"openpaisdk": {"array": []}}}):
        assert array_of_job(other) is None


def test_rows_of_a_program() -> None:
    array = array_of([{"lr": 0.1, "name": "it's"}, {"name": "a b", "lr": 1e-5}])
    assert isinstance(array, RowArray) and array.count == 2
    assert array.values_of(1) == {"lr": "1e-05", "name": "a b"} and array.label(0) == "lr=0.1 name=it's"
    assert array.values_of(2) == {}
    with pytest.raises(UsageError, match="row 2: there is no value of seed"):
        array_of([{"seed": 1}, {"lr": 2}])
    with pytest.raises(UsageError, match="row 2: there is a value of lr, which the first row does not have"):
        array_of([{"seed": 1}, {"seed": 1, "lr": 2}])
    for rows, says in (
        ([{"a": None}], "neither text nor a number"),
        ([{"a": True}], "neither text nor a number"),
        ([{}], "row 1 has no values"),
        ([{"a": 1}, "a=2"], "no row of values by name"),
        ([{"PAI_X": 1}], "the cluster's own"),
        ([{"a": 1}] * 10_001, "row 10001: each row is a task, and a job may have 10000 tasks"),
    ):
        with pytest.raises(UsageError, match=says):
            array_of(rows)


@settings(max_examples=25)
@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_every_task_exports_its_row(count: int, names: int, data: st.DataObject) -> None:
    text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
    row = st.fixed_dictionaries({f"v{i}": text for i in range(names)})
    rows = data.draw(st.lists(row, min_size=count, max_size=count))
    array = array_of(rows)
    for index in range(count):
        references = " ".join(f'"$v{i}"' for i in range(names))
        expected = "".join(f"{rows[index][f'v{i}']}|" for i in range(names))
        assert shell(array, index, f"printf '%s|' {references}") == expected


def test_rows_of_a_submitted_job() -> None:
    rows = {"lr": ["0.1", "0.01"], "seed": ["7", "8"]}
    array = array_of_job({"extras": {"openpaisdk": {"arrayRows": rows}}})
    assert array is not None and array.values_of(1) == {"lr": "0.01", "seed": "8"}
    assert array_of_job({"extras": {"openpaisdk": {"arrayRows": {"a": ["1"], "b": ["1", "2"]}}}}) is None
