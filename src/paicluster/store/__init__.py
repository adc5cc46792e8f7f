"""Database of the cluster: tables, migrations, one writer, a few readers, the change feed.

No other package contains SQL. Functions over a connection are in :mod:`.jobs` and :mod:`.users`;
:class:`Store` runs them (``await store.write(fn)``, ``await store.read(fn)``). What is specific to SQLite is
in :mod:`.sqlite` and :mod:`.search`; the rest is portable SQL.
"""

from paicluster.store.change_feed import ChangeFeed, JobWatch
from paicluster.store.database import Store
from paicluster.store.writer import BatchOp, touch

__all__ = ["BatchOp", "ChangeFeed", "JobWatch", "Store", "touch"]
