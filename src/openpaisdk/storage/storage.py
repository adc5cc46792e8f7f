"""Python API of a storage: upload, download, list, status, delete."""

from __future__ import annotations

import os

from openpaisdk.storage.backends.base import not_found_error
from openpaisdk.storage.catalog import StorageOpener, open_backend, open_job_storage
from openpaisdk.storage.location import (
    LOCAL,
    PAI,
    SELECTED,
    USER_NAME,
    Location,
    normalize_path,
    parse_location,
)
from paiprotocol.errors import UsageError

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
        """A cluster's storage by its name; without one, the selected storage, else the cluster's default."""
        selected = "" if name else _selected(cluster.alias)
        backend = open_backend(cluster, name or SELECTED, selected, over_http=over_http)
        return cls(backend, cluster.user)

    @classmethod
    def of_jobs(cls, cluster: ClusterClient) -> Storage:
        """The storage that has the files of a cluster's jobs, whichever storage is selected."""
        return cls(open_job_storage(cluster), cluster.user)

    @classmethod
    def open(cls, url: str, *, over_http: bool = False) -> Storage:
        """The storage of a ``pai://`` or ``hdfs://`` address; the path of the address is ignored."""
        opener = StorageOpener(over_http=over_http)
        location = parse_location(url)
        backend, _ = opener.open(location)
        return cls(backend, opener.user_of(location.cluster) if location.kind == PAI else "")

    def __repr__(self) -> str:
        return f"<Storage {self.backend.display_path('/')}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>storage <code>{escape(self.backend.display_path('/'))}</code></p>"

    def path(self, path: Path) -> str:
        return normalize_path(os.fspath(path).replace(USER_NAME, self.user))

    def upload(
        self,
        source: Path,
        target: Path,
        *,
        overwrite: bool = True,
        use_ignore_files: bool = True,
        watch: Callable[[TransferProgress], None] | None = None,
    ) -> dict[str, object]:
        """Copy a local file or folder, like ``cp -r``; unchanged files are not copied again.

        Without ``overwrite`` an existing target file is an error.
        """
        source, target = os.fspath(source), os.fspath(target)
        location = Location(PAI, target, self.path(target), is_folder=target.endswith("/"))
        return self._copy(parse_location(source), location, overwrite, use_ignore_files, watch)

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
        location = parse_location(target)
        if location.kind != LOCAL:
            raise UsageError(f"{target} is not a path on this machine.")
        return self._copy(Location(PAI, source, self.path(source)), location, overwrite, False, watch)

    def list(self, path: Path = "/") -> list[dict[str, object]]:
        """Entries of a folder; a file is listed as itself."""
        path = self.path(path)
        info = self.backend.status(path)
        if info is None:
            raise not_found_error(self.backend.display_path(path))
        if not info.is_folder:
            return [info.as_mapping(path)]
        return [
            entry.as_mapping(f"{path.rstrip('/')}/{entry.name}") for entry in self.backend.list_folder(path)
        ]

    def status(self, path: Path) -> dict[str, object]:
        path = self.path(path)
        info = self.backend.status(path)
        if info is None:
            raise not_found_error(self.backend.display_path(path))
        return info.as_mapping(path)

    def exists(self, path: Path) -> bool:
        return self.backend.status(self.path(path)) is not None

    def makedirs(self, path: Path) -> None:
        self.backend.make_folder(self.path(path))

    def delete(self, path: Path) -> None:
        """Delete a file, or a folder with its contents; never the root."""
        path = self.path(path)
        if path == "/":
            raise UsageError("The root of a storage cannot be removed.")
        if self.backend.status(path) is None:
            raise not_found_error(self.backend.display_path(path))
        self.backend.delete(path)

    def close(self) -> None:
        self.backend.close()

    def _copy(
        self,
        source: Location,
        target: Location,
        overwrite: bool,
        use_ignore_files: bool,
        watch: Callable[[TransferProgress], None] | None,
    ) -> dict[str, object]:
        from openpaisdk.storage.transfer.copy import CopyOperation

        opener = _SingleStorageOpener(self.backend)
        copy = CopyOperation.plan(opener, source, target, use_ignore_files=use_ignore_files)
        target_path = copy.transfer_plan.target
        if not overwrite and not copy.is_folder and copy.target.status(target_path) is not None:
            raise UsageError(f"{copy.target.display_path(target_path)} already exists.")
        copy.run(watch)
        return copy.transfer_plan.as_mapping()


class _SingleStorageOpener(StorageOpener):
    """Opener of local files and of one storage that is already open."""

    def __init__(self, backend: Backend):
        super().__init__()
        self._backend = backend

    def open(self, location: Location) -> tuple[Backend, str]:
        return super().open(location) if location.kind == LOCAL else (self._backend, location.path)


def _selected(alias: str) -> str:
    from openpaisdk.config.clusters import ClusterRegistry

    return ClusterRegistry.load().selected_storage(alias)
