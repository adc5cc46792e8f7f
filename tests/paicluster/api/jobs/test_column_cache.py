"""Cache of the columns of finished jobs."""

from __future__ import annotations

from paicluster.api.jobs.column_cache import ColumnCache


def test_fields_are_found_by_summary_and_names() -> None:
    cache = ColumnCache()
    cache.put(b"job", (("loss",), ()), b"{1}")
    assert cache.get(b"job", (("loss",), ())) == b"{1}"
    assert cache.get(b"job", (("rate",), ())) is None
    assert cache.get(b"changed job", (("loss",), ())) is None


def test_size_is_bounded() -> None:
    cache = ColumnCache(max_bytes=100)
    for number in range(50):
        cache.put(b"%020d" % number, (), b"x" * 10)
    found = [number for number in range(50) if cache.get(b"%020d" % number, ()) is not None]
    assert found and found == list(range(50 - len(found), 50)) and len(found) * 30 <= 100


def test_names_of_columns_count() -> None:
    cache = ColumnCache(max_bytes=1000)
    for number in range(50):
        cache.put(b"job", ((f"{number:0100}",), ()), b"")
    assert sum(cache.get(b"job", ((f"{number:0100}",), ())) is not None for number in range(50)) < 10
