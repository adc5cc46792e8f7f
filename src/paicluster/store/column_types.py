"""Types of columns that are the same on each database. Migrations use them as well."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, Text
from sqlalchemy.types import TypeEngine

# By its bytes, as SQLite orders and compares: the order of lists is a promise.
TEXT: TypeEngine[str] = Text().with_variant(Text(collation="C"), "postgresql")

# An integer of SQLite has 64 bits whatever its type.
INTEGER: TypeEngine[int] = Integer().with_variant(BigInteger(), "postgresql")

# SQLite generates ids only for a column of type INTEGER; other databases need BIGINT for 64 bits.
ID: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")
