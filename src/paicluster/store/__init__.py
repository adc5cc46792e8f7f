"""The cluster's database: tables, migrations, one writer, a few readers, the change feed.

Nothing else in the cluster speaks SQL. Functions over a connection live in :mod:`.jobs` and
:mod:`.users`; :class:`Store` runs them (``await store.write(fn)``, ``await store.read(fn)``).
SQLite's own ways are all in :mod:`.sqlite`; the rest is portable SQL.
"""

from paicluster.store.change_feed import ChangeFeed, JobWatch
from paicluster.store.database import Store
from paicluster.store.writer import BatchOp, touch

__all__ = ["BatchOp", "ChangeFeed", "JobWatch", "Store", "touch"]
