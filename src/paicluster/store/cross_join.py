"""``CROSS JOIN``, which SQLAlchemy does not have.

SQLite executes it from left to right: the rows come in the order of the left side. For other databases it is
an inner join with the condition of the WHERE clause.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import FromClause, true
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.selectable import Join


class _CrossJoin(Join):
    inherit_cache = True


@compiles(_CrossJoin)
def _compile(join: _CrossJoin, compiler: SQLCompiler, **options: Any) -> str:
    options["asfrom"] = True
    left, right = compiler.process(join.left, **options), compiler.process(join.right, **options)
    return f"{left} CROSS JOIN {right}"


def cross_join(left: FromClause, right: FromClause) -> Join:
    return _CrossJoin(left, right, true())
