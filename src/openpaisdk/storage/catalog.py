"""Catalog of storages: which ones a cluster has, and the backend that opens each."""

from __future__ import annotations

import json
import os

from openpaisdk.storage.backends.base import not_found_error
from openpaisdk.storage.location import (
    AZURE,
    HDFS,
    LOCAL,
    PAI,
    S3,
    SELECTED,
    USER_NAME,
    Location,
    normalize_path,
)
from paiprotocol.errors import ConfigError, NotFound, PaiError, Unauthorized, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client import ClusterClient, Endpoint
    from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry
    from openpaisdk.storage.backends.base import Backend

DEFAULT_STORAGE = "hdfs"
"""Name of a cluster's own storage when the cluster does not list its storages."""
FS_URI = "PAI_DEFAULT_FS_URI"
MOUNTS = "/proc/self/mounts"
CLOUD_STORAGES = ("s3", "azureblob")
"""Types of storages in a cloud. OpenPAI knows ``azureblob``; ``s3`` is ours."""


class StorageEntry:
    """One storage as a cluster, or an entry of the clusters file, describes it."""

    __slots__ = (
        "address",
        "is_default",
        "kind",
        "mount_point",
        "name",
        "options",
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
        options: dict[str, str] | None = None,
    ):
        """``options``: of a storage in a cloud, with its credentials; never shown."""
        self.name = name
        self.kind = kind
        self.address = address
        self.webhdfs = webhdfs
        self.path = path
        self.mount_point = mount_point
        self.permission = permission
        self.is_default = is_default
        self.user = user
        self.options = options or {}

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
        netlocs = {_netloc(self.address), _netloc(self.webhdfs)}
        if host in netlocs:
            return True
        name, _, port = host.partition(":")
        return not port and name in {each.partition(":")[0] for each in netlocs if each}


def list_storages(cluster: ClusterClient) -> list[StorageEntry]:
    """Storages listed by the cluster; a cluster that lists none has one, at its own address."""
    own = StorageEntry(DEFAULT_STORAGE, HDFS, webhdfs=f"{cluster.uri}/webhdfs", is_default=True)
    try:
        configs = _list(cluster, "/api/v2/storage/config")
        servers = {str(each.get("spn")): each for each in _list(cluster, "/api/v2/storage/server")}
    except Unauthorized:
        raise
    except PaiError:
        return [own]
    storages = []
    for config in configs:
        mounts = config.get("mountInfos")
        infos = [each for each in mounts if isinstance(each, dict)] if isinstance(mounts, list) else []
        for i, info in enumerate(infos):
            name = str(config.get("name")) if len(infos) == 1 else f"{config.get('name')}~{i}"
            entry = _merge_entry(name, info, servers.get(str(info.get("server")), {}))
            entry.is_default = config.get("default") is True
            storages.append(entry)
    return storages or [own]


def _list(cluster: ClusterClient, path: str) -> list[dict[str, object]]:
    from openpaisdk.client.cluster_client import parse_json

    response = parse_json(cluster.transport.request("GET", path, whole=True).read(), cluster)
    return [each for each in response if isinstance(each, dict)] if isinstance(response, list) else []


def _merge_entry(name: str, info: dict[str, object], server: dict[str, object]) -> StorageEntry:
    raw_data, raw_extension = server.get("data"), server.get("extension")
    data: dict[str, object] = raw_data if isinstance(raw_data, dict) else {}
    extension: dict[str, object] = raw_extension if isinstance(raw_extension, dict) else {}
    address = str(data.get("address") or data.get("namenode") or "")
    kind = str(server.get("type") or "").lower()
    path = str(info.get("path") or "")
    if kind in CLOUD_STORAGES:
        return StorageEntry(
            name,
            kind,
            address=str(data.get("endpointUrl") or ""),
            path=bucket_path(data, path),
            mount_point=str(info.get("mountPoint") or ""),
            permission=str(info.get("permission") or "rw"),
            options={key: value for key, value in data.items() if isinstance(value, str)},
        )
    if kind != HDFS:
        path = "/".join(
            part.strip("/") for part in ("", str(data.get("rootPath") or ""), path) if part or not path
        )
    return StorageEntry(
        name,
        kind,
        address=address,
        webhdfs=str(data.get("webhdfs") or "") or (webhdfs_url(address, extension) if kind == HDFS else ""),
        path=path,
        mount_point=str(info.get("mountPoint") or ""),
        permission=str(info.get("permission") or "rw"),
    )


def bucket_path(data: dict[str, object], path: str = "") -> str:
    """Path of a storage in a cloud: the bucket or container, then the path within it."""
    parts = (data.get("bucket") or data.get("containerName"), data.get("rootPath"), path)
    return "/" + "/".join(str(part).strip("/") for part in parts if part)


def webhdfs_url(address: str, extension: dict[str, object]) -> str:
    """WebHDFS address of a name node: the ``webhdfs`` of its extension (a port, an address), else its own
    address if that is one of HTTP, else that of its host at the default port.
    """
    configured = str(extension.get("webhdfs") or "").rstrip("/")
    if configured and not configured.isdecimal():
        scheme = "https" if address.startswith("https://") else "http"
        return configured if "://" in configured else f"{scheme}://{configured}"
    if address.startswith(("http://", "https://")):
        return _with_port(address.rstrip("/"), configured) if configured else address.rstrip("/")
    host = address.partition("://")[2] or address
    name = host.partition("/")[0].partition(":")[0]
    from pairuntime.transport.webhdfs import WEB_PORT

    return f"http://{name}:{configured or WEB_PORT}" if name else ""


def _with_port(url: str, port: str) -> str:
    from openpaisdk.client.address import parse_uri

    address = parse_uri(url)
    address.port = int(port)
    return str(address)


def webhdfs_endpoint(url: str, user: str = "") -> Endpoint:
    """The endpoint of an HDFS; of ``hdfs://`` addresses that of its name node's WebHDFS."""
    from openpaisdk.client import Endpoint

    return Endpoint(webhdfs_url(url, {}), user, rest_path="")


def configured_storages(entry: ClusterEntry) -> list[StorageEntry]:
    """Storages of an entry made with ``pai add-storage-cluster``."""
    listed = entry.raw.get("storages")
    storages: list[StorageEntry] = []
    for raw in listed if isinstance(listed, list) else []:
        if isinstance(raw, dict):
            storages.append(
                StorageEntry(
                    str(raw.get("name") or len(storages)),
                    str(raw.get("type") or ""),
                    address=str(raw.get("address") or ""),
                    webhdfs=str(raw.get("webhdfs") or ""),
                    path=str(raw.get("path") or ""),
                    mount_point=str(raw.get("mountPoint") or ""),
                    permission=str(raw.get("permission") or "rw"),
                    is_default=not storages,
                    user=entry.text("user"),
                    options={key: str(value) for key, value in raw.items() if key in ("account", "region")},
                )
            )
    return storages


def select_storage(entries: list[StorageEntry], name: str, selected: str, alias: str) -> StorageEntry:
    """The storage of that name; ``0`` is the selected one, else the cluster's default, else the first."""
    resolved = selected if name == SELECTED and selected else name
    for entry in entries:
        if entry.name == resolved:
            return entry
    if name == SELECTED and not selected:
        default = next((entry for entry in entries if entry.is_default), entries[0] if entries else None)
        if default is not None:
            return default
    names = ", ".join(entry.name for entry in entries) or "none"
    raise UsageError(
        f"The cluster {alias} has no storage called {resolved!r}; it has {names}.",
        hint=f"pai list-storages {alias} shows them; pai select-storage chooses one.",
    )


class StorageOpener:
    """Opens the backend of a location; connections to clusters and storages are reused."""

    def __init__(self, tell: Callable[[str], None] | None = None, *, over_http: bool = False):
        self._notify = tell
        self._over_http = over_http or bool(os.environ.get("PAI_STORAGE_HTTP"))
        self._registry: ClusterRegistry | None = None
        self._clusters: dict[str, ClusterClient] = {}
        self._backends: dict[tuple[str, str], Backend] = {}
        self._job_folders: dict[tuple[str, str], str] = {}
        self._has_jobs_storage: dict[str, bool] = {}
        self._local: Backend | None = None

    @property
    def registry(self) -> ClusterRegistry:
        if self._registry is None:
            from openpaisdk.config.clusters import ClusterRegistry

            self._registry = ClusterRegistry.load()
        return self._registry

    def open(self, location: Location) -> tuple[Backend, str]:
        """Backend of a location, and the path on it."""
        if location.kind == LOCAL:
            if self._local is None:
                from openpaisdk.storage.backends.local import LocalBackend

                self._local = LocalBackend()
            return self._local, os.path.abspath(location.path)
        if location.kind in (S3, AZURE):
            cloud = self._backends.get((location.kind, location.host))
            if cloud is None:
                from openpaisdk.storage.cloud import open_bucket

                cloud = self._backends[(location.kind, location.host)] = open_bucket(location)
            return cloud, location.path
        if location.kind == HDFS:
            alias, storage = self._find_hdfs(location)
        elif location.kind == PAI:
            alias, storage = location.cluster, location.storage
        else:
            raise UsageError("'-' means standard input or output; only pai copy accepts it.")
        is_job_address = self.is_job_address(location)
        backend = self._backends.get((alias, storage))
        if backend is None:
            backend = self._backends[(alias, storage)] = (
                open_job_storage(self.cluster(alias), over_http=self._over_http)
                if is_job_address
                else self._open_backend(alias, storage)
            )
        if is_job_address:
            return backend, self._path_of_job_file(location)
        return backend, normalize_path(location.path.replace(USER_NAME, self.user_of(alias)), location.text)

    def open_for_writing(self, location: Location) -> tuple[Backend, str]:
        """As `open`, for a location that is written to or deleted."""
        backend, path = self.open(location)
        if self.is_job_address(location):
            from openpaisdk.storage.job_files import read_only_error

            raise read_only_error(location, backend.display_path(path))
        return backend, path

    def is_job_address(self, location: Location) -> bool:
        """Whether a location is ``pai://<cluster>/jobs/...``. A storage of that name keeps its meaning."""
        from openpaisdk.config.clusters import JOBS_STORAGE

        if location.kind != PAI or location.storage != JOBS_STORAGE:
            return False
        alias = location.cluster
        if alias not in self._has_jobs_storage:
            entry = self.registry.find(alias)
            is_storage = entry is not None and entry.is_storage  # has no jobs
            self._has_jobs_storage[alias] = is_storage or any(
                storage.name == JOBS_STORAGE for storage in self.entries(alias)
            )
        return not self._has_jobs_storage[alias]

    def not_found(self, location: Location) -> UsageError:
        """The error for a location at which nothing is."""
        if not self.is_job_address(location):
            return not_found_error(location.text)
        from openpaisdk.config.clusters import alias_option
        from openpaisdk.storage.job_files import missing_job_file

        return missing_job_file(location, alias_option(location.cluster))

    def job_names(self, location: Location) -> list[str] | None:
        """The user's jobs if the location is ``pai://<cluster>/jobs/``, which lists them; else None."""
        if not self.is_job_address(location) or location.path != "/":
            return None
        cluster = self.cluster(location.cluster)
        return sorted({job.name for job in cluster.all_jobs(user=cluster.user)})

    def _path_of_job_file(self, location: Location) -> str:
        from openpaisdk.storage.job_files import job_files_folder, no_job_named, split_job_path

        job, path = split_job_path(location)
        if not job:
            raise no_job_named(location)
        key = location.cluster, job
        if key not in self._job_folders:
            self._job_folders[key] = job_files_folder(self.cluster(location.cluster), job)
        return normalize_path(f"{self._job_folders[key]}/{path}", location.text)

    def user_of(self, alias: str) -> str:
        entry = self.registry.find(alias)
        if entry is not None and entry.is_storage:
            return entry.text("user") or local_user()
        return self.cluster(alias).user

    def cluster(self, alias: str) -> ClusterClient:
        client = self._clusters.get(alias)
        if client is None:
            from openpaisdk.connect import open_cluster

            client = self._clusters[alias] = open_cluster(alias, registry=self.registry, notify=self._notify)
        return client

    def entries(self, alias: str) -> list[StorageEntry]:
        entry = self.registry.find(alias)
        if entry is not None and entry.is_storage:
            return configured_storages(entry)
        return list_storages(self.cluster(alias))

    def selected(self, alias: str) -> str:
        return self.registry.selected_storage(alias)

    def _open_backend(self, alias: str, name: str) -> Backend:
        entry = self.registry.find(alias)
        if entry is not None and entry.is_storage:
            storage = select_storage(configured_storages(entry), name, entry.text("storage_name"), alias)
            return open_external(storage, alias)
        cluster = self.cluster(alias)
        return open_backend(cluster, name, self.selected(alias), over_http=self._over_http)

    def _find_hdfs(self, location: Location) -> tuple[str, str]:
        """The cluster and storage with this ``hdfs://`` address; in a task first those of its own cluster."""
        own = self.registry.own
        if own is not None:
            default_uri = os.environ.get(FS_URI, "") or own.text("pai_uri")
            if location.host in (_netloc(default_uri), _netloc(own.text("pai_uri"))):
                return own.alias, own_storage(self.cluster(own.alias)).name
            for storage in self.entries(own.alias):
                if storage.serves(location.host):
                    return own.alias, storage.name
        for entry in self.registry.entries:
            if entry.is_storage:
                for storage in configured_storages(entry):
                    if storage.serves(location.host):
                        return entry.alias, storage.name
        default_uri = os.environ.get(FS_URI, "")
        if default_uri and _netloc(default_uri) == location.host:
            return self.registry.resolve().alias, SELECTED
        for entry in self.registry.entries:
            if entry.is_storage or (entry.is_embedded and own is not None):
                continue
            has_same_host = (
                entry.is_embedded
                or _netloc(entry.text("pai_uri")).partition(":")[0] == location.host.partition(":")[0]
            )
            if has_same_host:
                for storage in self.entries(entry.alias):
                    if storage.serves(location.host):
                        return entry.alias, storage.name
        raise UsageError(
            f"No configured storage has the address hdfs://{location.host}.",
            hint=f"Add it: pai add-storage-cluster -a NAME --type hdfs --address {location.host} --path /",
        )


def open_backend(
    cluster: ClusterClient, name: str, selected: str = "", *, over_http: bool = False
) -> Backend:
    """Backend of a connected cluster's storage, by name."""
    entry = select_storage(list_storages(cluster), name, selected, cluster.alias)
    if entry.kind != HDFS:
        return open_external(entry, cluster.alias, cluster.user)
    capabilities = _fetch_capabilities(cluster)
    if not _is_own(entry, cluster, capabilities):
        return open_external(entry, cluster.alias, cluster.user)
    return _open_own(entry, cluster, capabilities, over_http=over_http)


def open_job_storage(cluster: ClusterClient, *, over_http: bool = False) -> Backend:
    """Backend of the storage that has the files of jobs, whichever storage is selected."""
    capabilities = _fetch_capabilities(cluster)
    entry = _own_entry(cluster, capabilities)
    if entry.kind != HDFS or not _is_own(entry, cluster, capabilities):
        return open_external(entry, cluster.alias, cluster.user)
    return _open_own(entry, cluster, capabilities, over_http=over_http)


def own_storage(cluster: ClusterClient) -> StorageEntry:
    """The storage that a cluster serves itself; of OpenPAI's clusters the default one."""
    return _own_entry(cluster, _fetch_capabilities(cluster))


def _own_entry(cluster: ClusterClient, capabilities: dict[str, object] | None) -> StorageEntry:
    entries = list_storages(cluster)
    if capabilities is None:
        return select_storage(entries, SELECTED, "", cluster.alias)
    for entry in entries:
        if entry.kind == HDFS and _is_own(entry, cluster, capabilities):
            return entry
    # Not among the storages of this user, but jobs leave their files there.
    return StorageEntry(DEFAULT_STORAGE, HDFS, webhdfs=f"{cluster.uri}/webhdfs")


def _is_own(entry: StorageEntry, cluster: ClusterClient, capabilities: dict[str, object] | None) -> bool:
    """Whether the cluster serves this storage at its own address."""
    if capabilities is None:
        return _netloc(entry.webhdfs) == _netloc(cluster.uri)
    return entry.webhdfs in (capabilities.get("url"), f"{cluster.uri}/webhdfs")


def _open_own(
    entry: StorageEntry, cluster: ClusterClient, capabilities: dict[str, object] | None, *, over_http: bool
) -> Backend:
    from openpaisdk.storage.backends.connection_pool import ConnectionPool

    url = f"pai://{cluster.alias}/{entry.name}"
    root = normalize_path(entry.path.replace(USER_NAME, cluster.user)).rstrip("/")
    endpoint = cluster.transport.endpoint
    pool = ConnectionPool(cluster.alias, endpoint.at_root(), cluster.transport.renew)
    if capabilities is not None:
        from openpaisdk.storage.backends.cluster import ClusterBackend

        return ClusterBackend(
            pool,
            capabilities,
            url=url,
            user=cluster.user,
            root=root,
            rest_path=endpoint.rest_path,
            over_http=over_http,
        )
    from openpaisdk.storage.backends.webhdfs import WebHdfs

    # OpenPAI's web server (pylon) serves WebHDFS here.
    return WebHdfs(pool, url=url, user=cluster.user, base="/webhdfs/api/v1", root=root)


def _fetch_capabilities(cluster: ClusterClient) -> dict[str, object] | None:
    """Capabilities of our transfer API; None for other clusters."""
    from openpaisdk.client.http_errors import Redirected

    try:
        response = cluster.transport.request("GET", "/api/v2/transfer", whole=True)
        capabilities = json.loads(response.read())
    except (NotFound, Redirected, ValueError, RecursionError):
        return None
    return capabilities if isinstance(capabilities, dict) and capabilities.get("version") == 1 else None


def open_external(entry: StorageEntry, alias: str, user: str = "") -> Backend:
    """Backend of a storage that is not the cluster's own: another HDFS, or a path mounted on this machine."""
    url = f"pai://{alias}/{entry.name}"
    user = entry.user or user or local_user()
    path = normalize_path(entry.path.replace(USER_NAME, user))
    if entry.kind == HDFS:
        if not entry.webhdfs:
            raise ConfigError(f"The storage {url} has no WebHDFS address.")
        from openpaisdk.storage.backends.connection_pool import ConnectionPool
        from openpaisdk.storage.backends.webhdfs import WebHdfs
        from pairuntime.transport.webhdfs import BASE

        return WebHdfs(
            ConnectionPool(url, webhdfs_endpoint(entry.webhdfs, user)),
            url=url,
            user=user,
            base=BASE,
            root=path.rstrip("/"),
        )
    if entry.kind in CLOUD_STORAGES:
        from openpaisdk.storage.cloud import open_storage

        return open_storage(
            entry.kind,
            url,
            path,
            endpoint_url=entry.address,
            options=entry.options,
            read_only=entry.permission == "ro",
        )
    if entry.kind in ("nfs", "mount", "local", "samba"):
        from openpaisdk.storage.backends.local import LocalBackend

        return LocalBackend(_mounted_at(entry, url, path), url)
    raise UsageError(f"The storage {url} is of an unsupported kind: {entry.kind or 'unknown'}.")


def _mounted_at(entry: StorageEntry, url: str, path: str) -> str:
    if not entry.address or entry.kind in ("mount", "local"):
        if os.path.isdir(path):
            return path
        raise ConfigError(
            f"The storage {url} is the folder {path}, which is not on this machine.",
            hint="Mount it here, or run this command where it is mounted.",
        )
    export = f"{entry.address}:{path}".rstrip("/")
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as f:
            mounts = f.read().splitlines()
    except OSError:
        mounts = []
    for mount in mounts:
        source, point = [*mount.split(" "), ""][:2]
        source = source.rstrip("/")
        if source and (export == source or export.startswith(source + "/")):
            return point.replace("\\040", " ") + export[len(source) :]
    if os.path.isdir(entry.mount_point):
        return entry.mount_point
    raise ConfigError(
        f"The storage {url} is {export}, which is not mounted on this machine.",
        hint=f"Mount it: mount {export} MOUNTPOINT",
    )


def local_user() -> str:
    """User name for storages that have none configured."""
    from getpass import getuser

    try:
        return os.environ.get("HADOOP_USER_NAME") or getuser()
    except (ImportError, KeyError, OSError):  # in a container an account may be a number alone
        return "user"


def _netloc(uri: str) -> str:
    rest = uri.partition("://")[2] or uri
    return rest.partition("/")[0].lower()
