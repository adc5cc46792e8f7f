"""Keyword search over names, users and virtual clusters of jobs.

A trigram index (SQLite's FTS5) takes a few milliseconds where reading every job would take tens. The searched
texts never change after the submission, so jobs are indexed in batches of hundreds, which costs a fraction of
indexing them one by one; the newest, not yet indexed, are scanned.

The row id in the index is made of the second of the submission and the job id: the index returns its matches
in the order of the listing, and can stop when the page is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    column,
    func,
    literal_column,
    or_,
    select,
    table,
    union_all,
)
from sqlalchemy.sql.selectable import GenerativeSelect

from paicluster.store.compiled_statements import execute
from paicluster.store.tables import jobs

# Jobs are indexed when an id passes a multiple of this.
BATCH = 512

# Row ids: job ids in the low bits, seconds in the rest of 63: enough for 500 million jobs and 500 years.
_ID_BITS = 29
_ID_MASK = (1 << _ID_BITS) - 1
_PLACE = f"((submission_ms / 1000) << {_ID_BITS} | id)"

_TEXT = "name || char(10) || username || char(10) || vc"

# The tokens are trigrams: shorter keywords have none.
_MIN_INDEXED = 3

# The index is SQLite's own; for PostgreSQL it is replaced.
CREATE_INDEX = (
    "CREATE VIRTUAL TABLE job_search USING fts5"
    "(text, content='', columnsize=0, tokenize='trigram case_sensitive 1')",
    "CREATE TABLE job_search_progress (upto INTEGER NOT NULL)",
    "INSERT INTO job_search_progress VALUES (0)",
)

_index = table("job_search", column("rowid"), column("text"))
_progress = table("job_search_progress", column("upto"))


class KeywordMatch(Enum):
    """How a keyword is matched."""

    INDEX = auto()
    # By reading all jobs: the tokenizer has no tokens for it.
    SCAN = auto()


def index_jobs(conn: Connection, last_id: int) -> None:
    """Index all jobs up to ``last_id`` that are not indexed yet."""
    execute(
        conn,
        "INSERT INTO job_search (rowid, text)"
        f" SELECT {_PLACE}, {_TEXT} FROM jobs"
        " WHERE id > (SELECT upto FROM job_search_progress) AND id <= ?",
        (last_id,),
    ).close()
    execute(conn, "UPDATE job_search_progress SET upto = ?", (last_id,)).close()


def match_of(keyword: str) -> KeywordMatch:
    scan = len(keyword) < _MIN_INDEXED or "\n" in keyword or "\0" in keyword
    return KeywordMatch.SCAN if scan else KeywordMatch.INDEX


def values_of(keyword: str) -> dict[str, str]:
    """Values of the parameters of `find`."""
    return {"keyword": keyword, "phrase": '"' + keyword.replace('"', '""') + '"'}


def find(match: KeywordMatch) -> GenerativeSelect:
    """Query for ``id`` and ``place`` of jobs whose name, user or virtual cluster contains the keyword.

    The comparison is exact. By ``place`` the jobs are in the order of the listing.
    """
    keyword: ColumnElement[str] = bindparam("keyword")
    zero: ColumnElement[int] = literal_column("0")
    columns = (jobs.c.name, jobs.c.username, jobs.c.vc)
    scan = select(jobs.c.id, literal_column(_PLACE).label("place")).where(
        or_(*(func.instr(column, keyword) > zero for column in columns))
    )
    if match is KeywordMatch.SCAN:
        return scan
    rowid = _index.c.rowid
    indexed = select(rowid.op("&")(literal_column(str(_ID_MASK))).label("id"), rowid.label("place")).where(
        _index.c.text.op("MATCH")(bindparam("phrase"))
    )
    return union_all(indexed, scan.where(jobs.c.id > select(_progress.c.upto).scalar_subquery()))


def forget_jobs(conn: Connection, job_ids: Sequence[int]) -> None:
    """Remove jobs from the index; they must still be in the database.

    The index stores no texts, so each deletion must repeat the indexed text; the newest are not indexed.
    """
    marks = ", ".join("?" * len(job_ids))
    execute(
        conn,
        "INSERT INTO job_search (job_search, rowid, text)"
        f" SELECT 'delete', {_PLACE}, {_TEXT} FROM jobs"
        f" WHERE id IN ({marks}) AND id <= (SELECT upto FROM job_search_progress)",
        tuple(job_ids),
    ).close()
