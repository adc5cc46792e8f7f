"""Which storages a cluster has, and how each is reached from here."""

from __future__ import annotations

import json
import os

from openpaisdk.client import Endpoint
from openpaisdk.errors import ConfigError, NotFound, PaiError, Unauthorized, UsageError
from openpaisdk.storage.location import HDFS, LOCAL, PAI, SELECTED, USER_NAME, Location, clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client import ClusterClient
    from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry
    from openpaisdk.storage.backends.base import Backend

OWN = "hdfs"
"""What a cluster's own storage is called where the cluster says nothing about storages."""
WEBHDFS_PORT = 50070
FS_URI = "PAI_DEFAULT_FS_URI"
MOUNTS = "/proc/self/mounts"


class StorageEntry:
    """One storage as a cluster, or an entry of the clusters file, describes it."""

    __slots__ = (
        "address",
        "is_default",
        "kind",
        "mount_point",
        "name",
        "path",
        "permission",
        "user",
        "webhdfs",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        address: str = "",
        webhdfs: str = "",
        path: str = "",
        mount_point: str = "",
        permission: str = "rw",
        is_default: bool = False,
        user: str = "",
    ):
        self.name = name
        self.kind = kind
        self.address = address
        self.webhdfs = webhdfs
        self.path = path
        self.mount_point = mount_point
        self.permission = permission
        self.is_default = is_default
        self.user = user

    def as_mapping(self) -> dict[str, object]:
        return {
            "name": self.name,
            "mountPoint": self.mount_point,
            "type": self.kind,
            "server": self.webhdfs or self.address,
            "path": self.path,
            "permission": self.permission,
            "default": self.is_default,
        }

    def serves(self, host: str) -> bool:
        """Whether ``hdfs://host`` means this storage."""
        if self.kind != HDFS:
            return False
        mine = {_authority(self.address), _authority(self.webhdfs)}
        if host in mine:
            return True
        name, _, port = host.partition(":")
        return not port and name in {each.partition(":")[0] for each in mine if each}


def storages_of(cluster: ClusterClient) -> list[StorageEntry]:
    """What the cluster says it has; one that says nothing has one, behind its front door."""
    own = StorageEntry(OWN, HDFS, webhdfs=f"{cluster.uri}/webhdfs", is_default=True)
    try:
        configs = _list(cluster, "/api/v2/storage/config")
        servers = {str(each.get("spn")): each for each in _list(cluster, "/api/v2/storage/server")}
    except Unauthorized:
        raise
    except PaiError:
        return [own]
    found = []
    for config in configs:
        mounts = config.get("mountInfos")
        infos = [each for each in mounts if isinstance(each, dict)] if isinstance(mounts, list) else []
        for i, info in enumerate(infos):
            name = str(config.get("name")) if len(infos) == 1 else f"{config.get('name')}~{i}"
            entry = _merge_entry(name, info, servers.get(str(info.get("server")), {}))
            entry.is_default = config.get("default") is True
            found.append(entry)
    return found or [own]


def _list(cluster: ClusterClient, path: str) -> list[dict[str, object]]:
    found = json.loads(cluster.transport.request("GET", path).read())
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _merge_entry(name: str, info: dict[str, object], server: dict[str, object]) -> StorageEntry:
    said, more = server.get("data"), server.get("extension")
    data: dict[str, object] = said if isinstance(said, dict) else {}
    extension: dict[str, object] = more if isinstance(more, dict) else {}
    address = str(data.get("address") or data.get("namenode") or "")
    kind = str(server.get("type") or "").lower()
    path = str(info.get("path") or "")
    if kind != HDFS:
        path = "/".join(
            part.strip("/") for part in ("", str(data.get("rootPath") or ""), path) if part or not path
        )
    return StorageEntry(
        name,
        kind,
        address=address,
        webhdfs=str(data.get("webhdfs") or "") or (webhdfs_of(address, extension) if kind == HDFS else ""),
        path=path,
        mount_point=str(info.get("mountPoint") or ""),
        permission=str(info.get("permission") or "rw"),
    )


def webhdfs_of(address: str, extension: dict[str, object]) -> str:
    """Where the WebHDFS of a name node is: said, or at the port it has by custom."""
    if address.startswith(("http://", "https://")):
        return address.rstrip("/")
    host = address.partition("://")[2] or address
    name = host.partition("/")[0].partition(":")[0]
    said = str(extension.get("webhdfs") or "")
    if said.startswith(("http://", "https://")):
        return said.rstrip("/")
    return f"http://{name}:{said or WEBHDFS_PORT}" if name else ""


def added_storages(entry: ClusterEntry) -> list[StorageEntry]:
    """Those of an entry made with ``pai add-storage-cluster``."""
    kept = entry.raw.get("storages")
    found: list[StorageEntry] = []
    for raw in kept if isinstance(kept, list) else []:
        if isinstance(raw, dict):
            found.append(
                StorageEntry(
                    str(raw.get("name") or len(found)),
                    str(raw.get("type") or ""),
                    address=str(raw.get("address") or ""),
                    webhdfs=str(raw.get("webhdfs") or ""),
                    path=str(raw.get("path") or ""),
                    mount_point=str(raw.get("mountPoint") or ""),
                    permission=str(raw.get("permission") or "rw"),
                    is_default=not found,
                    user=entry.text("user"),
                )
            )
    return found


def choose(entries: list[StorageEntry], name: str, selected: str, alias: str) -> StorageEntry:
    """The storage of that name; ``0`` is the selected one, else the cluster's default, else the first."""
    wanted = selected if name == SELECTED and selected else name
    for entry in entries:
        if entry.name == wanted:
            return entry
    if name == SELECTED and not selected:
        chosen = next((entry for entry in entries if entry.is_default), entries[0] if entries else None)
        if chosen is not None:
            return chosen
    names = ", ".join(entry.name for entry in entries) or "none"
    raise UsageError(
        f"The cluster {alias} has no storage called {wanted!r}; it has {names}.",
        hint=f"pai list-storages {alias} shows them; pai select-storage chooses one.",
    )


class StorageOpener:
    """Opens what addresses lead to; one cluster and one storage only once."""

    def __init__(self, tell: Callable[[str], None] | None = None, *, over_http: bool = False):
        self._tell = tell
        self._over_http = over_http or bool(os.environ.get("PAI_STORAGE_HTTP"))
        self._book: ClusterRegistry | None = None
        self._clusters: dict[str, ClusterClient] = {}
        self._backends: dict[tuple[str, str], Backend] = {}
        self._local: Backend | None = None

    @property
    def book(self) -> ClusterRegistry:
        if self._book is None:
            from openpaisdk.config.clusters import ClusterRegistry

            self._book = ClusterRegistry.load()
        return self._book

    def open(self, place: Location) -> tuple[Backend, str]:
        """The storage of a place, and the path on it."""
        if place.kind == LOCAL:
            if self._local is None:
                from openpaisdk.storage.backends.local import LocalBackend

                self._local = LocalBackend()
            return self._local, os.path.abspath(place.path)
        if place.kind == HDFS:
            alias, storage = self._claimed(place)
        elif place.kind == PAI:
            alias, storage = place.cluster, place.storage
        else:
            raise UsageError("'-' means standard input or output, and only pai copy knows it.")
        backend = self._backends.get((alias, storage))
        if backend is None:
            backend = self._backends[(alias, storage)] = self._opened(alias, storage)
        return backend, clean(place.path.replace(USER_NAME, self.user_of(alias)), place.text)

    def user_of(self, alias: str) -> str:
        entry = self.book.find(alias)
        if entry is not None and entry.is_storage:
            return entry.text("user") or local_user()
        return self.cluster(alias).user

    def cluster(self, alias: str) -> ClusterClient:
        found = self._clusters.get(alias)
        if found is None:
            from openpaisdk.connect import open_cluster

            found = self._clusters[alias] = open_cluster(alias, book=self.book, tell=self._tell)
        return found

    def entries(self, alias: str) -> list[StorageEntry]:
        entry = self.book.find(alias)
        if entry is not None and entry.is_storage:
            return added_storages(entry)
        return storages_of(self.cluster(alias))

    def selected(self, alias: str) -> str:
        entry = self.book.find(alias)
        return (entry.text("storage_name") if entry else "") or self.book.defaults.text("storage-alias")

    def _opened(self, alias: str, name: str) -> Backend:
        entry = self.book.find(alias)
        if entry is not None and entry.is_storage:
            chosen = choose(added_storages(entry), name, entry.text("storage_name"), alias)
            return external(chosen, alias)
        cluster = self.cluster(alias)
        return backend_of(cluster, name, self.selected(alias), over_http=self._over_http)

    def _claimed(self, place: Location) -> tuple[str, str]:
        """The cluster and storage whose ``hdfs://`` address this is."""
        for entry in self.book.entries:
            if entry.is_storage:
                for storage in added_storages(entry):
                    if storage.serves(place.host):
                        return entry.alias, storage.name
        ours = os.environ.get(FS_URI, "")
        if ours and _authority(ours) == place.host:
            return self.book.resolve().alias, SELECTED
        for entry in self.book.entries:
            if entry.is_storage:
                continue
            near = (
                entry.is_embedded
                or _authority(entry.text("pai_uri")).partition(":")[0] == place.host.partition(":")[0]
            )
            if near:
                for storage in self.entries(entry.alias):
                    if storage.serves(place.host):
                        return entry.alias, storage.name
        raise UsageError(
            f"No storage you know claims hdfs://{place.host}.",
            hint=f"Add it: pai add-storage-cluster -a NAME --type hdfs --address {place.host} --path /",
        )


def backend_of(cluster: ClusterClient, name: str, selected: str = "", *, over_http: bool = False) -> Backend:
    """A storage of a cluster that can be asked, by name."""
    entries = storages_of(cluster)
    entry = choose(entries, name, selected, cluster.alias)
    where = f"pai://{cluster.alias}/{entry.name}"
    root = clean(entry.path.replace(USER_NAME, cluster.user)).rstrip("/") if entry.kind == HDFS else ""
    if entry.kind != HDFS:
        return external(entry, cluster.alias, cluster.user)
    offer = _offer(cluster)
    if offer is None and _authority(entry.webhdfs) != _authority(cluster.uri):
        return external(entry, cluster.alias, cluster.user)
    if offer is not None and offer.get("url") != entry.webhdfs and entry.webhdfs != f"{cluster.uri}/webhdfs":
        return external(entry, cluster.alias, cluster.user)
    from openpaisdk.storage.backends.connection_pool import ConnectionPool

    there = cluster.transport.endpoint
    at_root = Endpoint(
        str(there.address),
        there.user,
        there.token,
        rest_path="",
        verify=there.verify,
        authority_file=there.authority_file,
    )
    lines = ConnectionPool(cluster.alias, at_root, cluster.transport.renew)
    if offer is not None:
        from openpaisdk.storage.backends.cluster import ClusterBackend

        return ClusterBackend(
            lines,
            offer,
            where=where,
            user=cluster.user,
            root=root,
            rest_path=there.rest_path,
            over_http=over_http,
        )
    from openpaisdk.storage.backends.webhdfs import WebHdfs

    # OpenPAI's front door keeps WebHDFS here.
    return WebHdfs(lines, where=where, user=cluster.user, base="/webhdfs/api/v1", root=root)


def _offer(cluster: ClusterClient) -> dict[str, object] | None:
    """What the cluster can do beyond WebHDFS; None for every cluster but ours."""
    try:
        found = json.loads(cluster.transport.request("GET", "/api/v2/transfer").read())
    except (NotFound, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("version") == 1 else None


def external(entry: StorageEntry, alias: str, user: str = "") -> Backend:
    """A storage that is not the cluster's own: somebody's HDFS, or a path that is mounted here."""
    where = f"pai://{alias}/{entry.name}"
    user = entry.user or user or local_user()
    path = clean(entry.path.replace(USER_NAME, user))
    if entry.kind == HDFS:
        if not entry.webhdfs:
            raise ConfigError(f"The storage {where} has no WebHDFS address.")
        from openpaisdk.storage.backends.connection_pool import ConnectionPool
        from openpaisdk.storage.backends.webhdfs import BASE, WebHdfs

        base = BASE
        url = entry.webhdfs
        return WebHdfs(
            ConnectionPool(where, Endpoint(url, user, rest_path="")),
            where=where,
            user=user,
            base=base,
            root=path.rstrip("/"),
        )
    if entry.kind in ("nfs", "mount", "local", "samba"):
        from openpaisdk.storage.backends.local import LocalBackend

        return LocalBackend(_mounted_at(entry, where, path), where)
    raise UsageError(f"The storage {where} is of a kind pai cannot reach yet: {entry.kind or 'unknown'}.")


def _mounted_at(entry: StorageEntry, where: str, path: str) -> str:
    if not entry.address or entry.kind in ("mount", "local"):
        if os.path.isdir(path):
            return path
        raise ConfigError(
            f"The storage {where} is the folder {path}, which is not on this machine.",
            hint="Mount it here, or run this command where it is mounted.",
        )
    wanted = f"{entry.address}:{path}".rstrip("/")
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as f:
            lines = f.read().splitlines()
    except OSError:
        lines = []
    for line in lines:
        source, point = [*line.split(" "), ""][:2]
        source = source.rstrip("/")
        if source and (wanted == source or wanted.startswith(source + "/")):
            return point.replace("\\040", " ") + wanted[len(source) :]
    if os.path.isdir(entry.mount_point):
        return entry.mount_point
    raise ConfigError(
        f"The storage {where} is {wanted}, which is not mounted on this machine.",
        hint=f"Mount it: mount {wanted} SOMEWHERE",
    )


def local_user() -> str:
    """Who we are where nobody gave us a name."""
    from getpass import getuser

    try:
        return os.environ.get("HADOOP_USER_NAME") or getuser()
    except (ImportError, KeyError, OSError):  # in a container an account may be a number alone
        return "user"


def _authority(uri: str) -> str:
    rest = uri.partition("://")[2] or uri
    return rest.partition("/")[0].lower()
