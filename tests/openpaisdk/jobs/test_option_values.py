"""Values of options, as the command line and Python programs give them."""

from datetime import timedelta
from pathlib import Path

import pytest

from openpaisdk.jobs.option_values import (
    dependency,
    items_of,
    memory_mb,
    port_counts,
    seconds,
    whole_number,
)
from paiprotocol.errors import UsageError


@pytest.mark.parametrize(
    ("text", "mb"), [("512m", 512), ("4g", 4096), ("4GB", 4096), ("1.5g", 1536), ("300 MB", 300)]
)
def test_memory_units_are_parsed(text: str, mb: int) -> None:
    assert memory_mb(text) == mb


@pytest.mark.parametrize("value", ["4", "512", 4, 4.5, "4b"])
def test_memory_without_unit_is_rejected_with_both_readings(value: str | float) -> None:
    number = str(value).removesuffix("b")
    with pytest.raises(UsageError, match=f"may mean {number} MB or {number} GB") as caught:
        memory_mb(value)
    assert f"{number}m for megabytes" in caught.value.hint and f"{number}g" in caught.value.hint


@pytest.mark.parametrize("value", ["", "g", "-1", "-1g", "lots", "0", "0g", True])
def test_invalid_memory_is_rejected(value: str) -> None:
    with pytest.raises(UsageError, match="not an amount of memory"):
        memory_mb(value)


@pytest.mark.parametrize(
    ("value", "total"),
    [("90", 90), ("2h", 7200), ("1d12h", 129600), (90, 90), (90.5, 90), (timedelta(hours=2), 7200)],
)
def test_durations_are_parsed(value: object, total: int) -> None:
    assert seconds(value) == total


@pytest.mark.parametrize("value", ["", "soon", "h", 0, -1, True, None, [5], timedelta(0)])
def test_invalid_duration_is_rejected(value: object) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        seconds(value)


@pytest.mark.parametrize(
    ("value", "items"),
    [
        (None, []),
        ("", []),
        ([], []),
        ("numpy", ["numpy"]),
        (Path("a/b"), ["a/b"]),
        (["a", Path("b")], ["a", "b"]),
        ((x for x in "ab"), ["a", "b"]),
    ],
)
def test_text_is_one_item(value: object, items: list[str]) -> None:
    assert items_of(value, "pip_installs") == items


@pytest.mark.parametrize("value", [5, b"numpy", ["numpy", 5], {"numpy": 1}, [["numpy"]], [None]])
def test_items_of_other_types_are_rejected(value: object) -> None:
    with pytest.raises(UsageError, match=r"pip_installs takes text, or a list of texts, not"):
        items_of(value, "pip_installs")


@pytest.mark.parametrize("requests", ["http=1", ["http=1"], {"http": 1}])
def test_ports_are_text_list_or_mapping(requests: object) -> None:
    assert port_counts(requests) == {"http": 1}


def test_hyphen_in_a_port_label_becomes_underscore() -> None:
    assert port_counts(["tensor-board=1", "ssh=2"]) == {"tensor_board": 1, "ssh": 2}
    with pytest.raises(UsageError, match="tensor_board is given twice"):
        port_counts(["tensor-board=1", "tensor_board=1"])


@pytest.mark.parametrize("requests", ["http=8080", {"http": 8080}])
def test_port_number_is_rejected_with_the_right_request(requests: object) -> None:
    with pytest.raises(UsageError, match="how many ports") as caught:
        port_counts(requests)
    assert "Write http=1" in caught.value.hint and "$PAI_CONTAINER_HOST_http_PORT_LIST" in caught.value.hint


@pytest.mark.parametrize(
    "requests", ["http", "http=", "=1", "1http=1", "a b=1", {"http": 0}, {"http": None}, {"ü": 1}]
)
def test_invalid_port_request_is_rejected(requests: object) -> None:
    with pytest.raises(UsageError, match="is not a valid port request"):
        port_counts(requests)


@pytest.mark.parametrize("value", ["x", "", 0, -1, 1.5, True, None])
def test_invalid_whole_number_is_rejected_with_the_option(value: object) -> None:
    with pytest.raises(UsageError, match=r"^instances: .* is not a whole number of at least 1"):
        whole_number(value, 1, "instances")


def test_dependencies() -> None:
    assert dependency("a") == {"job": "a"} and dependency("a:end") == {"job": "a", "on": "end"}
