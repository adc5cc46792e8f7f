"""SQL of PostgreSQL: the search for keywords, the order of joins, ids of jobs.

Keywords are searched by a trigram index (pg_trgm) over names, users and virtual clusters, which the database
maintains itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, bindparam, func, literal_column, or_, select
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.sql.selectable import GenerativeSelect, Select

from paicluster.store.compiled_statements import execute
from paicluster.store.dialect_sql import DialectSql, KeywordMatch
from paicluster.store.tables import jobs

# The expression of the index; a keyword with a line break is searched in each column by itself.
_TEXT = "(name || chr(10) || username || chr(10) || vc)"

OWNER_TABLE = "store_owner"
"""Table with one row: the server that has opened the database last."""


class PostgresqlSql(DialectSql):
    """SQL of PostgreSQL."""

    create_index: Sequence[str] = (
        f"CREATE INDEX jobs_by_text ON jobs USING gin ({_TEXT} gin_trgm_ops)",
        f"CREATE TABLE {OWNER_TABLE} (owner TEXT NOT NULL)",
        f"INSERT INTO {OWNER_TABLE} VALUES ('')",
    )

    place = ("submission_ms", "id")

    def next_job_ids(self, conn: Connection, count: int) -> Sequence[int]:
        # Ids of a transaction that is rolled back are not used again.
        text = "SELECT nextval('jobs_id_seq') FROM generate_series(1, ?)"
        return [job_id for (job_id,) in execute(conn, text, (count,)).fetchall()]

    def contains(self, text: ColumnElement[str], part: str) -> ColumnElement[bool]:
        return func.strpos(text, part) > 0

    def keyword_match(self, keyword: str) -> KeywordMatch:
        return KeywordMatch.SCAN if "\n" in keyword else KeywordMatch.INDEX

    def keyword_values(self, keyword: str) -> dict[str, str]:
        if "\n" in keyword:
            return {"keyword": keyword}
        escaped = keyword.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return {"pattern": f"%{escaped}%"}

    def find(self, match: KeywordMatch) -> GenerativeSelect:
        found = select(jobs.c.id, jobs.c.submission_ms)
        if match is KeywordMatch.INDEX:
            text: ColumnElement[str] = literal_column(_TEXT)
            return found.where(text.like(bindparam("pattern")))
        keyword: ColumnElement[str] = bindparam("keyword")
        columns = (jobs.c.name, jobs.c.username, jobs.c.vc)
        zero: ColumnElement[int] = literal_column("0")
        return found.where(or_(*(func.strpos(column, keyword) > zero for column in columns)))

    def index_jobs(self, conn: Connection, first_id: int, last_id: int) -> None:
        pass

    def forget_jobs(self, conn: Connection, job_ids: Sequence[int]) -> None:
        pass

    def in_order_of(self, joined: Select[Any], keys: Sequence[Any]) -> Select[Any]:
        return joined.order_by(*keys)

    def summaries_of(self, ids: GenerativeSelect) -> Select[Any]:
        array = func.array(select(ids.subquery("ids").c.id).scalar_subquery(), type_=BigInteger)
        page = func.unnest(array).table_valued("id", with_ordinality="place", name="page").render_derived()
        in_order: ColumnElement[str] = aggregate_order_by(literal_column("','"), page.c.place)
        return select(func.string_agg(jobs.c.summary, in_order)).select_from(
            page.join(jobs, jobs.c.id == page.c.id)
        )
