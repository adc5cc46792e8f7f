"""Files with the values of an array: what is read from them, and what is refused with its line."""

from pathlib import Path

import pytest

from openpaisdk.jobs.array_file import MAX_BYTES, read_array_file
from paiprotocol.errors import UsageError


def columns_of(path: Path, content: str | bytes, limit: str = "") -> dict[str, list[str]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_array_file(f"{path}{limit}").variables


@pytest.mark.parametrize(
    "content",
    [
        'lr,name\n0.10,"a,b"\n2,it\'s\n',
        '\ufefflr, name\r\n0.10, "a,b"\r\n\r\n2, it\'s',
    ],
)
def test_rows_of_csv(tmp_path: Path, content: str) -> None:
    assert columns_of(tmp_path / "p.csv", content) == {"lr": ["0.10", "2"], "name": ["a,b", "it's"]}


@pytest.mark.parametrize("file", ["p.jsonl", "p.json", "p.ndjson", "p", "p.txt"])
def test_lines_of_json_keep_the_form_of_numbers(tmp_path: Path, file: str) -> None:
    lines = '{"lr": 0.10, "name": "a,b"}\n\n{"name": "é", "lr": 1e-5}\n'
    assert columns_of(tmp_path / file, lines) == {"lr": ["0.10", "1e-5"], "name": ["a,b", "é"]}


def test_values_may_be_empty_or_have_several_lines(tmp_path: Path) -> None:
    assert columns_of(tmp_path / "p.csv", 'a,b\n,"x\ny"\n"",\n') == {"a": ["", ""], "b": ["x\ny", ""]}


def test_limit_follows_the_name(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("a\n1\n2\n3\n")
    array = read_array_file(f"{path}%2")
    assert (array.count, array.limit) == (3, 2)
    with pytest.raises(UsageError, match="at least one task must run at a time"):
        read_array_file(f"{path}%0")


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("p.csv", "", "p.csv is empty"),
        ("p.csv", "\n\n", "p.csv is empty"),
        ("p.csv", "lr,seed\n", "no rows below the names"),
        ("p.csv", "0.1,3\n0.2,4\n", "line 1: '0.1' cannot be the name"),
        ("p.csv", "lr,seed,lr\n1,2,3\n", "line 1: the column lr is there twice"),
        ("p.csv", "lr,\n1,2\n", "line 1: column 2 has no name"),
        ("p.csv", "lr,my-seed\n1,2\n", "'my-seed' cannot be the name"),
        ("p.csv", "PAI_TASK_INDEX\n1\n", "the cluster's own"),
        ("p.csv", "a,b\n1,2\n3\n", "line 3: the row has 1 value, and there are 2 columns"),
        ("p.csv", "a,b\n1,2\n\n1,2,3\n", "line 4: the row has 3 values, and there are 2 columns"),
        ("p.csv", 'a,b\n1,2\n"x\n', "line 3: this is no row of CSV"),
        ("p.csv", b"a\n1\n\xff\n", "line 3: this is not UTF-8 text"),
        ("p.csv", "a\nx\0y\n", "line 2"),
        ("p.csv", "a\n" + "1\n" * 10_001, "line 10002: each row is a task, and a job may have 10000 tasks"),
        ("p.csv", "a" * (MAX_BYTES + 1), "larger than 4 MB"),
        ("p.jsonl", "\n", "p.jsonl is empty"),
        ("p.jsonl", '{"a": 1}\n{"b": 1}\n', "line 2: there is no value of a"),
        ("p.jsonl", '{"a": 1}\n{"a": 1, "b": 1}\n', "line 2: there is a value of b"),
        ("p.jsonl", '{"a": 1, "a": 2}\n', "line 1: a is there twice"),
        ("p.jsonl", '[{"a": 1}]\n', "line 1: this is no JSON object"),
        ("p.jsonl", '{"a": 1}\n{"a": \n', "line 2: this is no JSON object"),
        ("p.jsonl", '{"a": null}\n', "line 1, a: None is neither text nor a number"),
        ("p.jsonl", '{"a": true}\n', "line 1, a: True is neither text nor a number"),
        ("p.jsonl", "{}\n", "line 1: there are no names"),
        ("p.jsonl", '{"1a": 1}\n', "line 1: '1a' cannot be the name"),
    ],
)
def test_invalid_file_is_refused_with_its_line(tmp_path: Path, file: str, content: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        columns_of(tmp_path / file, content)
    assert says in caught.value.message, caught.value.message


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_array_file(str(path))
