"""Finding jobs by a piece of their name, user or virtual cluster.

An index of three-letter pieces (SQLite's FTS5) answers in a few milliseconds where looking at every job would
take tens. What is searched never changes after the submission, so jobs enter the index by the hundred, which
costs a fraction of doing it one by one; the newest, not yet in it, are looked at directly.

A job's place in the index is made of its submission's second and its id: the index gives its hits in the
list's own order, and can stop when the page is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from paicluster.store.compiled_statements import execute

# Jobs enter the index when an id passes a multiple of this.
STRIDE = 512

# Ids take the low bits of a place, seconds the rest of 63: enough for 500 million jobs and 500 years.
_ID_BITS = 29
_ID_MASK = (1 << _ID_BITS) - 1
_PLACE = f"((submission_ms / 1000) << {_ID_BITS} | id)"

_TEXT = "name || char(10) || username || char(10) || vc"

# The tokenizer cuts into threes: it has nothing to say about less.
_SHORTEST = 3


@dataclass(frozen=True, slots=True)
class Hits:
    """A query for ``id`` and ``place`` of the jobs found; by ``place`` they are in the list's order."""

    text: str
    values: tuple[Any, ...]


def index_jobs(conn: Connection, last_id: int) -> None:
    """Take every job up to ``last_id`` that is not in the index yet into it."""
    execute(
        conn,
        "INSERT INTO job_search (rowid, text)"
        f" SELECT {_PLACE}, {_TEXT} FROM jobs"
        " WHERE id > (SELECT upto FROM job_search_progress) AND id <= ?",
        (last_id,),
    ).close()
    execute(conn, "UPDATE job_search_progress SET upto = ?", (last_id,)).close()


def find(keyword: str) -> Hits:
    """The jobs whose name, user or virtual cluster contains ``keyword``, exactly as it is written."""
    contains = "(instr(name, ?) > 0 OR instr(username, ?) > 0 OR instr(vc, ?) > 0)"
    direct = f"SELECT id, {_PLACE} AS place FROM jobs WHERE {contains}"
    if len(keyword) < _SHORTEST or "\n" in keyword or "\0" in keyword:
        return Hits(direct, (keyword,) * 3)
    phrase = '"' + keyword.replace('"', '""') + '"'
    return Hits(
        f"SELECT rowid & {_ID_MASK} AS id, rowid AS place FROM job_search WHERE text MATCH ?"
        f" UNION ALL {direct} AND id > (SELECT upto FROM job_search_progress)",
        (phrase, keyword, keyword, keyword),
    )


def forget_jobs(conn: Connection, job_ids: Sequence[int]) -> None:
    """Take jobs out of the index; they must still be in the database.

    The index keeps no texts, so it must be told what it was told before; and it was told nothing yet of
    the newest.
    """
    marks = ", ".join("?" * len(job_ids))
    execute(
        conn,
        "INSERT INTO job_search (job_search, rowid, text)"
        f" SELECT 'delete', {_PLACE}, {_TEXT} FROM jobs"
        f" WHERE id IN ({marks}) AND id <= (SELECT upto FROM job_search_progress)",
        tuple(job_ids),
    ).close()
