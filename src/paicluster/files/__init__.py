"""The cluster's own storage: a folder of the server, with homes, team folders and permissions.

`Storage` is what others use: paths and people in, entries and open files out. Nothing that comes in leaves
the folder, and a file appears whole or not at all. Every call blocks on the disk: call it from a thread.
"""

from paicluster.files.namespace import Entry
from paicluster.files.ownership import Ownership
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.staging import Staged
from paicluster.files.storage import Storage

__all__ = ["Access", "Entry", "Ownership", "Staged", "Storage", "StorageUser"]
