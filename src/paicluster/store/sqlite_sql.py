"""SQL of SQLite: the search for keywords, the order of joins, ids of jobs.

Keywords are searched in names, users and virtual clusters of jobs. A trigram index (SQLite's FTS5) takes a
few milliseconds where reading every job would take tens. The searched texts never change after the
submission, so jobs are indexed in batches of hundreds, which costs a fraction of indexing them one by one;
the newest, not yet indexed, are scanned.

The row id in the index is made of the second of the submission and the job id: the index returns its matches
in the order of the listing, and can stop when the page is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from sqlalchemy.sql.selectable import GenerativeSelect, Select

from paicluster.store.compiled_statements import execute
from paicluster.store.cross_join import cross_join
from paicluster.store.dialect_sql import DialectSql, KeywordMatch
from paicluster.store.tables import jobs

# Jobs are indexed when an id passes a multiple of this.
INDEX_BATCH = 512

# Row ids: job ids in the low bits, seconds in the rest of 63: enough for 500 million jobs and 500 years.
_ID_BITS = 29
_ID_MASK = (1 << _ID_BITS) - 1
_PLACE = f"((submission_ms / 1000) << {_ID_BITS} | id)"

_TEXT = "name || char(10) || username || char(10) || vc"

# The tokens are trigrams: shorter keywords have none.
_MIN_INDEXED = 3

_CREATE_INDEX = (
    "CREATE VIRTUAL TABLE job_search USING fts5"
    "(text, content='', columnsize=0, tokenize='trigram case_sensitive 1')",
    "CREATE TABLE job_search_progress (upto INTEGER NOT NULL)",
    "INSERT INTO job_search_progress VALUES (0)",
)

_index = table("job_search", column("rowid"), column("text"))
_progress = table("job_search_progress", column("upto"))

# The column "summary" of all rows as one byte string; a text would be copied twice more.
_CONCATENATED = "CAST(group_concat(summary, ',') AS BLOB)"


class SqliteSql(DialectSql):
    """SQL of SQLite."""

    create_index: Sequence[str] = _CREATE_INDEX
    place = ("place",)

    def next_job_ids(self, conn: Connection, count: int) -> Sequence[int]:
        # There is only one writer, so ids are assigned here: no statement has to return them.
        row = execute(conn, "SELECT seq FROM sqlite_sequence WHERE name = 'jobs'").fetchone()
        first = 1 if row is None else int(row[0]) + 1
        return range(first, first + count)

    def contains(self, text: ColumnElement[str], part: str) -> ColumnElement[bool]:
        return func.instr(text, part) > 0

    def keyword_match(self, keyword: str) -> KeywordMatch:
        scan = len(keyword) < _MIN_INDEXED or "\n" in keyword or "\0" in keyword
        return KeywordMatch.SCAN if scan else KeywordMatch.INDEX

    def keyword_values(self, keyword: str) -> dict[str, str]:
        return {"keyword": keyword, "phrase": '"' + keyword.replace('"', '""') + '"'}

    def find(self, match: KeywordMatch) -> GenerativeSelect:
        keyword: ColumnElement[str] = bindparam("keyword")
        zero: ColumnElement[int] = literal_column("0")
        columns = (jobs.c.name, jobs.c.username, jobs.c.vc)
        scan = select(jobs.c.id, literal_column(_PLACE).label("place")).where(
            or_(*(func.instr(column, keyword) > zero for column in columns))
        )
        if match is KeywordMatch.SCAN:
            return scan
        rowid = _index.c.rowid
        indexed = select(
            rowid.op("&")(literal_column(str(_ID_MASK))).label("id"), rowid.label("place")
        ).where(_index.c.text.op("MATCH")(bindparam("phrase")))
        return union_all(indexed, scan.where(jobs.c.id > select(_progress.c.upto).scalar_subquery()))

    def index_jobs(self, conn: Connection, first_id: int, last_id: int) -> None:
        """Index all jobs that are not indexed yet, if the ids have passed a multiple of the batch."""
        if (first_id - 1) // INDEX_BATCH == last_id // INDEX_BATCH:
            return
        execute(
            conn,
            "INSERT INTO job_search (rowid, text)"
            f" SELECT {_PLACE}, {_TEXT} FROM jobs"
            " WHERE id > (SELECT upto FROM job_search_progress) AND id <= ?",
            (last_id,),
        ).close()
        execute(conn, "UPDATE job_search_progress SET upto = ?", (last_id,)).close()

    def forget_jobs(self, conn: Connection, job_ids: Sequence[int]) -> None:
        # The index stores no texts: each deletion must repeat the indexed text. The newest are not indexed.
        marks = ", ".join("?" * len(job_ids))
        execute(
            conn,
            "INSERT INTO job_search (job_search, rowid, text)"
            f" SELECT 'delete', {_PLACE}, {_TEXT} FROM jobs"
            f" WHERE id IN ({marks}) AND id <= (SELECT upto FROM job_search_progress)",
            tuple(job_ids),
        ).close()

    def in_order_of(self, joined: Select[Any], keys: Sequence[Any]) -> Select[Any]:
        # SQLite executes a CROSS JOIN from left to right: the rows come in that order without a sort.
        return joined

    def summaries_of(self, ids: GenerativeSelect) -> Select[Any]:
        # The ids come from indexes alone; then the join goes through them in their order and concatenates.
        page = ids.subquery("page")
        summaries = select(jobs.c.summary).select_from(cross_join(page, jobs)).where(jobs.c.id == page.c.id)
        return select(literal_column(_CONCATENATED)).select_from(summaries.subquery("summaries"))
