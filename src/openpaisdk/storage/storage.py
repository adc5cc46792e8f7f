"""A storage as Python sees it: upload, download, list, status, delete."""

from __future__ import annotations

import os

from openpaisdk.errors import UsageError
from openpaisdk.storage.backends.base import no_such
from openpaisdk.storage.catalog import StorageOpener, backend_of
from openpaisdk.storage.location import LOCAL, PAI, SELECTED, USER_NAME, Location, clean, parse_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client import ClusterClient
    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.transfer.executor import TransferProgress

    Path = str | os.PathLike[str]


class Storage:
    """One storage of one cluster.

    >>> storage = Storage.of(cluster)              # the cluster's default one
    >>> storage.upload("data", "/alice/data")      # a file or a folder, like cp -r
    >>> storage.list("/alice")
    """

    def __init__(self, backend: Backend, user: str = ""):
        self.backend = backend
        self.user = user

    @classmethod
    def of(cls, cluster: ClusterClient, name: str = "", *, over_http: bool = False) -> Storage:
        """A cluster's storage by its name; without one, the default."""
        selected = "" if name else _selected(cluster.alias)
        backend = backend_of(cluster, name or SELECTED, selected, over_http=over_http)
        return cls(backend, cluster.user)

    @classmethod
    def open(cls, url: str, *, over_http: bool = False) -> Storage:
        """The storage of a ``pai://`` or ``hdfs://`` address; its path is not looked at."""
        opener = StorageOpener(over_http=over_http)
        place = parse_location(url)
        backend, _ = opener.open(place)
        return cls(backend, opener.user_of(place.cluster) if place.kind == PAI else "")

    def path(self, path: Path) -> str:
        return clean(os.fspath(path).replace(USER_NAME, self.user))

    def upload(
        self,
        source: Path,
        target: Path,
        *,
        overwrite: bool = True,
        ignoring: bool = True,
        watch: Callable[[TransferProgress], None] | None = None,
    ) -> dict[str, object]:
        """Copy a file or a folder of this machine, like ``cp -r``; what is there unchanged stays.

        Without ``overwrite`` a file is refused where one is already.
        """
        source, target = os.fspath(source), os.fspath(target)
        place = Location(PAI, target, self.path(target), is_folder=target.endswith("/"))
        return self._copy(parse_location(source), place, overwrite, ignoring, watch)

    def download(
        self,
        source: Path,
        target: Path = ".",
        *,
        overwrite: bool = True,
        watch: Callable[[TransferProgress], None] | None = None,
    ) -> dict[str, object]:
        """Copy a file or a folder to this machine."""
        source, target = os.fspath(source), os.fspath(target)
        place = parse_location(target)
        if place.kind != LOCAL:
            raise UsageError(f"{target} is not a path on this machine.")
        return self._copy(Location(PAI, source, self.path(source)), place, overwrite, False, watch)

    def list(self, path: Path = "/") -> list[dict[str, object]]:
        """What a folder holds; a file is listed as itself."""
        path = self.path(path)
        found = self.backend.status(path)
        if found is None:
            raise no_such(self.backend.shown(path))
        if not found.is_folder:
            return [found.as_mapping(path)]
        return [entry.as_mapping(f"{path.rstrip('/')}/{entry.name}") for entry in self.backend.listing(path)]

    def status(self, path: Path) -> dict[str, object]:
        path = self.path(path)
        found = self.backend.status(path)
        if found is None:
            raise no_such(self.backend.shown(path))
        return found.as_mapping(path)

    def exists(self, path: Path) -> bool:
        return self.backend.status(self.path(path)) is not None

    def makedirs(self, path: Path) -> None:
        self.backend.make_folder(self.path(path))

    def delete(self, path: Path) -> None:
        """A file, or a folder with all that is in it; never the root."""
        path = self.path(path)
        if path == "/":
            raise UsageError("The root of a storage is never removed.")
        if self.backend.status(path) is None:
            raise no_such(self.backend.shown(path))
        self.backend.delete(path)

    def close(self) -> None:
        self.backend.close()

    def _copy(
        self,
        source: Location,
        target: Location,
        overwrite: bool,
        ignoring: bool,
        watch: Callable[[TransferProgress], None] | None,
    ) -> dict[str, object]:
        from openpaisdk.storage.transfer.copy import CopyOperation

        copy = CopyOperation(_Between(self.backend), source, target, ignoring=ignoring)
        landing = copy.plan.target
        if not overwrite and not copy.is_folder and copy.target.status(landing) is not None:
            raise UsageError(f"{copy.target.shown(landing)} is there already.")
        copy.run(watch)
        return copy.plan.as_mapping()


class _Between(StorageOpener):
    """Opens this machine's files and one storage that is open already."""

    def __init__(self, backend: Backend):
        super().__init__()
        self._backend = backend

    def open(self, place: Location) -> tuple[Backend, str]:
        return super().open(place) if place.kind == LOCAL else (self._backend, place.path)


def _selected(alias: str) -> str:
    from openpaisdk.config.clusters import ClusterRegistry

    entry = ClusterRegistry.load().find(alias)
    return entry.text("storage_name") if entry else ""
