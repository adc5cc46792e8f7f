"""What differs between the databases in SQL; all other statements are the same on each of them.

A dialect is an object that builds statements and runs none, but for a few that are needed with a connection.
:func:`dialect_of` gives that of a connection. :mod:`.sqlite_sql` and :mod:`.postgresql.sql` implement it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

from sqlalchemy import ColumnElement, Connection
from sqlalchemy.sql.selectable import GenerativeSelect, Select


class KeywordMatch(Enum):
    """How a keyword is matched."""

    INDEX = auto()
    # By reading all jobs: the index has nothing for it.
    SCAN = auto()


class DialectSql(ABC):
    """SQL of one database."""

    # Statements that create the index of texts, and what else the tables do not declare.
    create_index: Sequence[str]
    # The columns of `find` by which jobs are in the order of the listing.
    place: tuple[str, ...]

    @abstractmethod
    def next_job_ids(self, conn: Connection, count: int) -> Sequence[int]:
        """Ids for new jobs, ascending; none was ever used, also not by a deleted job."""

    @abstractmethod
    def contains(self, text: ColumnElement[str], part: str) -> ColumnElement[bool]:
        """Whether a text contains another one, compared byte by byte."""

    @abstractmethod
    def keyword_match(self, keyword: str) -> KeywordMatch:
        """How `find` is to match this keyword."""

    @abstractmethod
    def keyword_values(self, keyword: str) -> dict[str, str]:
        """Values of the parameters of `find`."""

    @abstractmethod
    def find(self, match: KeywordMatch) -> GenerativeSelect:
        """Query for ``id`` and `place` of jobs whose name, user or virtual cluster contains the keyword.

        The comparison is exact.
        """

    @abstractmethod
    def index_jobs(self, conn: Connection, first_id: int, last_id: int) -> None:
        """Called when the jobs from ``first_id`` to ``last_id`` were inserted."""

    @abstractmethod
    def forget_jobs(self, conn: Connection, job_ids: Sequence[int]) -> None:
        """Remove jobs from the index of texts, before they are deleted."""

    @abstractmethod
    def in_order_of(self, joined: Select[Any], keys: Sequence[Any]) -> Select[Any]:
        """A cross join whose left side has the order of these keys: in that order."""

    @abstractmethod
    def summaries_of(self, ids: GenerativeSelect) -> Select[Any]:
        """Query for one value: the summaries of the jobs with these ids, in their order, comma separated."""


_dialects: dict[str, DialectSql] = {}


def register(name: str, dialect: DialectSql) -> None:
    """Register the dialect of the databases that SQLAlchemy calls by this name."""
    _dialects[name] = dialect


def dialect_of(conn: Connection) -> DialectSql:
    return _dialects[conn.dialect.name]
