"""The cluster's built-in storage: a directory on the server with home folders, team folders and permissions.

`Storage` is the public interface: it takes client paths and users and returns entries and open files. No path
leads outside the directory, and a file appears complete or not at all. Every call blocks on the disk: call it
from a thread. Imports only `paiprotocol` and `pairuntime.local_files`.
"""

from paicluster.files.namespace import Entry
from paicluster.files.ownership import Ownership
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.staging import StagedFile
from paicluster.files.storage import Storage

__all__ = ["Access", "Entry", "Ownership", "StagedFile", "Storage", "StorageUser"]
