"""Database of the cluster: tables, migrations, one writer, a few readers, the change feed.

No other package contains SQL. Functions over a connection are in :mod:`.jobs` and :mod:`.users`;
:class:`Store` runs them (``await store.write(fn)``, ``await store.read(fn)``). The file of SQLite
and its index of texts are in :mod:`.sqlite`, :mod:`.integrity`, :mod:`.backups` and :mod:`.search`.
"""

from paicluster.store.change_feed import ChangeFeed, JobWatch
from paicluster.store.database import Store
from paicluster.store.writer import BatchOp, touch

__all__ = ["BatchOp", "ChangeFeed", "JobWatch", "Store", "touch"]
