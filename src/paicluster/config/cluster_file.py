"""Reader of cluster.yaml: parses it into settings and reports all errors at once, with line numbers."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paicluster.config.schema import CLUSTER, seconds
from paicluster.config.sections import (
    Authentication,
    BackupSettings,
    BucketSettings,
    EngineSettings,
    RequestLimits,
    ShareSettings,
    StorageSettings,
    UsageSettings,
)
from paicluster.config.settings import DEFAULT, Settings
from paicluster.engines.registry import LOCAL_KINDS
from paicluster.scheduler.resource_requests import Resources
from paiprotocol.errors import ConfigError, ProtocolError, UsageError
from paiprotocol.jobs.document import Document, read
from paiprotocol.jobs.problems import MAX_PROBLEMS, Problem, did_you_mean
from paiprotocol.jobs.problems import Path as KeyPath

NAME = "cluster.yaml"
_CHECKED_PER_ITEM = ("virtual-clusters", "storages")


class ClusterFileError(ConfigError):
    """A cluster's file is invalid. ``problems`` lists all errors, not only the first."""

    def __init__(self, file: Path, problems: tuple[Problem, ...], total: int):
        self.problems = problems
        lines = [str(problem) for problem in problems]
        if total > len(problems):
            lines.append(f"and {total - len(problems)} more")
        if len(lines) > 1:
            lines = [f"{file} has {total} problems:", *(f"  {line}" for line in lines)]
        super().__init__("\n".join(lines))


def load(file: Path) -> dict[str, Any]:
    """The fields of `Settings` that the file sets.

    Paths are relative to the folder of the file. ``home`` is always set: by default to that folder.
    """
    file = file.expanduser().absolute()
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"The cluster's file {file} cannot be read: {error.strerror}.") from error
    try:
        is_empty = all(line.lstrip()[:1] in (b"", b"#") for line in data.splitlines())
        document = Document({}, "", str(file)) if is_empty else read(data, str(file))
    except ProtocolError as error:
        located = tuple(problem for problem in error.problems if isinstance(problem, Problem))
        raise ClusterFileError(file, located, len(located)) from None
    content = {} if document.data is None else document.data
    problems: list[Problem] = []
    CLUSTER.explain(content, (), problems)
    if isinstance(content, dict):
        more = [
            *_cross_checks(_valid_sections(content, problems), file.parent),
            *_check_unknown_engines(content, problems),
        ]
        problems.extend(more)
    if problems:
        shown = sorted(
            map(document.locate, problems[:MAX_PROBLEMS]), key=lambda problem: (problem.line, problem.column)
        )
        raise ClusterFileError(file, tuple(shown), len(problems))
    # A section in which everything is commented out is null.
    return _fields({key: value for key, value in content.items() if value is not None}, file.parent)


def of_options(home: str | None, config: str | None) -> dict[str, Any]:
    """The fields of the cluster that these options name: from its file, if it has one, and its home."""
    # An unset variable ("$UNSET") must not mean the current folder.
    if home == "" or (home is None and config is None):
        raise UsageError("The cluster is not specified: use --home DIR or --config FILE.")
    folder = None if home is None else Path(home).expanduser().absolute()
    file = None if config is None else Path(config)
    if file is None and folder is not None:
        try:
            file = folder / NAME if (folder / NAME).is_file() else None
        except OSError as error:  # a home of another account
            raise ConfigError(f"The home {folder} cannot be used: {error.strerror}.") from None
    fields = {} if file is None else load(file)
    return fields if folder is None else {**fields, "home": folder}


def settings_of(fields: Mapping[str, Any], embedded: bool = False) -> Settings:
    """The settings with these fields, and defaults for the others."""
    defaults: dict[str, Any] = {
        # The embedded cluster runs on a machine used for other things: its jobs are not limited.
        "enforce_limits": not embedded,
        # And it deletes nothing unless configured to.
        "keep_days": None if embedded else 30.0,
    }
    return Settings(**{**defaults, **fields, "embedded": embedded})


# -- checks across keys ----------------------------------------------------------------------------


def _valid_sections(content: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """The valid parts: single items of lists and virtual clusters, otherwise whole sections."""
    invalid = {
        problem.path[: 2 if problem.path[0] in _CHECKED_PER_ITEM else 1]
        for problem in problems
        if problem.path
    }
    valid: dict[str, Any] = {}
    for key, value in content.items():
        if (key,) in invalid or value is None:
            continue
        if key in _CHECKED_PER_ITEM and isinstance(value, dict):
            value = {name: item for name, item in value.items() if (key, name) not in invalid}
        elif key in _CHECKED_PER_ITEM and isinstance(value, list):
            value = [None if (key, index) in invalid else item for index, item in enumerate(value)]
        valid[key] = value
    if {("engine",), ("engines",)} & invalid:
        # What they need depends on the engines, which are not known.
        valid.pop("virtual-clusters", None)
        valid.pop("engine", None)
    return valid


def _cross_checks(content: Mapping[str, Any], folder: Path) -> Iterator[Problem]:
    yield from _check_listen(content.get("listen") or {}, folder)
    yield from _check_engines(content)
    yield from _check_names(content)
    yield from _check_accounts(content)
    yield from _check_database(content, folder)


def _check_database(content: Mapping[str, Any], folder: Path) -> Iterator[Problem]:
    database = content.get("database", "")
    file = content.get("database-password-file")
    is_url = "://" in database
    if file and not is_url:
        yield Problem(
            ("database-password-file",),
            "the database is a file, which needs no password",
            suggestion="set database: postgresql://USER@HOST/DATABASE",
        )
    elif file and not _under(folder, file).is_file():
        yield Problem(("database-password-file",), f"there is no file {_under(folder, file)}")
    if is_url:
        yield from database_url_problems(database)


def database_url_problems(url: str) -> Iterator[Problem]:
    """What is wrong with the address of a database."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield Problem(("database",), f"is no address: {error}")
        return
    example = "postgresql://USER@HOST:PORT/DATABASE?sslmode=verify-full"
    if parts.scheme not in ("postgresql", "postgres"):
        yield Problem(
            ("database",),
            f"databases of the kind {parts.scheme} are not supported",
            suggestion=f"write the path of a file, or {example}",
        )
    elif not parts.path.strip("/"):
        yield Problem(("database",), "the address names no database", suggestion=f"write {example}")
    elif ":" in parts.netloc.rpartition("@")[0] or "password=" in parts.query:
        yield Problem(
            ("database",),
            "the address contains a password, which everyone who may read this file would see",
            suggestion="set database-password-file, or the variable PAICLUSTER_DATABASE_PASSWORD",
        )


def _check_accounts(content: Mapping[str, Any]) -> Iterator[Problem]:
    if content.get("allow-shared-account"):
        return
    users: dict[str, str] = {}
    for user, account in (content.get("accounts") or {}).items():
        other = users.setdefault(str(account), user)
        if other != user:
            yield Problem(
                ("accounts", user),
                f"{other} has the same account, so they could read each other's files",
                suggestion='use a separate account for each, or set "allow-shared-account: true"',
            )


def _check_listen(listen: Mapping[str, Any], folder: Path) -> Iterator[Problem]:
    tls = listen.get("tls")
    for key, name in (tls or {}).items():
        if not _under(folder, name).is_file():
            yield Problem(("listen", "tls", key), f"there is no file {_under(folder, name)}")
    trusted = listen.get("external-ca")
    if trusted and not _under(folder, trusted).is_file():
        yield Problem(("listen", "external-ca"), f"there is no file {_under(folder, trusted)}")
    if "app-ports" in listen and listen["app-ports"] is not None and not _port_range(listen["app-ports"]):
        yield Problem(
            ("listen", "app-ports"),
            "is not a range of ports from 1 to 65535",
            suggestion="write the first and the last, as 9400-9499",
        )
    host = listen.get("host", "127.0.0.1")
    if not tls and not listen.get("allow-plain-http") and not is_loopback(host):
        yield Problem(
            ("listen", "host"),
            "other machines would send passwords in the clear",
            suggestion='set "tls", or "allow-plain-http: true" if a proxy in front terminates TLS',
        )


def _check_engines(content: Mapping[str, Any]) -> Iterator[Problem]:
    if "engine" in content and "engines" in content:
        yield Problem(("engine",), '"engines" is set as well', suggestion="keep one of them", at_key=True)
        return
    engines = _engines(content)
    kinds = {engine.name: engine.kind for engine in engines}
    for name, share in (content.get("virtual-clusters") or {}).items():
        share = share or {}
        kind = kinds.get(share.get("engine", engines[0].name), "")
        amounts = {"gpus", "cpus", "memory-mb"} & share.keys()
        if name == DEFAULT and amounts:
            yield Problem(
                ("virtual-clusters", name), "has the rest of the resources; it cannot have a share of its own"
            )
        elif name != DEFAULT and kind in LOCAL_KINDS and not amounts:
            yield Problem(("virtual-clusters", name), "has no share", expected="gpus, cpus and memory-mb")


def _check_unknown_engines(content: Mapping[str, Any], problems: Sequence[Problem]) -> Iterator[Problem]:
    """Virtual clusters with an unknown engine, reported even if the engines have other errors."""
    invalid = {problem.path for problem in problems}
    known = _engine_names(content, invalid)
    clusters = content.get("virtual-clusters")
    for name, share in clusters.items() if known and isinstance(clusters, dict) else ():
        path = ("virtual-clusters", name, "engine")
        engine = share.get("engine") if isinstance(share, dict) else None
        if isinstance(engine, str) and engine not in known and path not in invalid:
            hint = did_you_mean(engine, known)
            yield Problem(path, f'there is no engine "{engine}"', suggestion=hint)


def _engine_names(content: Mapping[str, Any], invalid: Set[KeyPath]) -> set[str]:
    """Names of all engines; empty if one is unknown, or if both `engine` and `engines` are set."""
    if content.get("engine") and content.get("engines"):
        return set()
    listed: dict[KeyPath, Any] = {("engine",): content.get("engine") or "process"}
    if isinstance(content.get("engines"), list):
        listed = {("engines", number): item for number, item in enumerate(content["engines"])}
    names = set()
    for path, item in listed.items():
        name = (item.get("name") or item.get("type")) if isinstance(item, dict) else item
        if not isinstance(name, str) or invalid & {path, (*path, "type"), (*path, "name")}:
            return set()
        names.add(name)
    return names


def _check_names(content: Mapping[str, Any]) -> Iterator[Problem]:
    for key in ("engines", "storages"):
        seen: set[str] = set()
        for index, item in enumerate(content.get(key) or ()):
            name = (item or {}).get("name") or (item or {}).get("type", "")
            if name and name in seen:
                yield Problem((key, index), f'the name "{name}" is used twice')
            seen.add(name)
    own = [
        index for index, item in enumerate(content.get("storages") or ()) if (item or {}).get("type") == "own"
    ]
    for index in own[1:]:
        yield Problem(
            ("storages", index, "type"), "the cluster has only one own storage, which is already defined"
        )


# -- conversion to fields --------------------------------------------------------------------------


def _fields(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    fields: dict[str, Any] = {"home": _under(folder, content.get("home", "."))}
    listen = content.get("listen") or {}
    _copy_keys(fields, listen, "host", "port", "ssh-port", "allow-plain-http")
    if "app-ports" in listen:
        fields["app_ports"] = _port_range(listen["app-ports"])
    if listen.get("external-url"):
        fields["external_url"] = listen["external-url"].rstrip("/")
    if listen.get("external-ca"):
        fields["external_ca"] = str(_under(folder, listen["external-ca"]))
    if listen.get("tls"):
        fields["tls_cert"] = str(_under(folder, listen["tls"]["certificate"]))
        fields["tls_key"] = str(_under(folder, listen["tls"]["key"]))
    if "cors-origins" in listen:
        fields["cors_origins"] = tuple(listen["cors-origins"])
    if "trusted-proxies" in listen:
        fields["trusted_proxies"] = tuple(listen["trusted-proxies"])
    if "database" in content:
        if "://" in content["database"]:
            fields["database_url"] = content["database"]
        else:
            fields["database"] = _under(folder, content["database"])
    if content.get("database-password-file"):
        fields["database_password_file"] = _under(folder, content["database-password-file"])
    fields.update(_engine_fields(content))
    if "storages" in content:
        fields["storages"] = tuple(_storage(item, folder) for item in content["storages"])
    if "authentication" in content:
        fields["authentication"] = Authentication(**_section(content["authentication"], _AUTHENTICATION))
    if "limits" in content:
        fields["limits"] = RequestLimits(**_section(content["limits"], _LIMITS))
    if "backups" in content:
        section = dict(content["backups"])
        if "folder" in section:
            section["folder"] = _under(folder, section["folder"])
        fields["backups"] = BackupSettings(**_section(section, _BACKUPS))
    if "usage" in content:
        fields["usage"] = UsageSettings(**_section(content["usage"], _USAGE))
    kept = {"days": "keep_days", "jobs": "keep_jobs", "files-mb": "keep_mb"}
    fields.update({kept[key]: value for key, value in (content.get("retention") or {}).items()})
    if "accounts" in content:
        fields["accounts"] = {user: str(account) for user, account in content["accounts"].items()}
    _copy_keys(fields, content, "allow-shared-account")
    return fields


def _engine_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    engines = _engines(content)
    if "engine" in content or "engines" in content:
        fields["engines"] = engines
    own = next((engine for engine in engines if engine.kind in LOCAL_KINDS), None)
    options = own.options if own is not None else {}
    _copy_keys(fields, options, "cpus", "memory-mb", "gpus")
    if "grace" in options:
        fields["grace_s"] = float(str(options["grace"]))
    if "limits" in options:
        fields["enforce_limits"] = options["limits"] == "enforce"
    clusters = {name: share or {} for name, share in (content.get("virtual-clusters") or {}).items()}
    if clusters:
        fields["virtual_clusters"] = {
            name: Resources(
                int(share.get("cpus", 0)), int(share.get("memory-mb", 0)), int(share.get("gpus", 0))
            )
            for name, share in clusters.items()
            if {"gpus", "cpus", "memory-mb"} & share.keys()
        }
        fields["engine_of"] = {name: share.get("engine", engines[0].name) for name, share in clusters.items()}
    return fields


def _engines(content: Mapping[str, Any]) -> tuple[EngineSettings, ...]:
    listed = content.get("engines") or [content.get("engine", "process")]
    engines = []
    for item in listed:
        section = {"type": item} if isinstance(item, str) else item
        options = {key: value for key, value in section.items() if key not in ("type", "name")}
        engines.append(EngineSettings(section.get("name", section["type"]), section["type"], options))
    return tuple(engines)


def _storage(item: Mapping[str, Any], folder: Path) -> StorageSettings:
    return StorageSettings(
        name=item["name"],
        kind=item["type"],
        path=_under(folder, item["path"]) if "path" in item and item["type"] != "nfs" else None,
        url=item.get("url"),
        share=item.get("share", True),
        read_only=item.get("read-only", False),
        groups=tuple(item.get("groups", ())),
        bucket=_bucket(item, folder) if item["type"] in ("s3", "azureblob") else None,
        network_share=_network_share(item, folder) if item["type"] in _SHARE_PATHS else None,
        mount=item.get("mount", True),
    )


# Which key of a share is its path.
_SHARE_PATHS = {"nfs": "path", "samba": "address", "azurefile": "share-name"}


def _network_share(item: Mapping[str, Any], folder: Path) -> ShareSettings:
    return ShareSettings(
        item[_SHARE_PATHS[item["type"]]],
        server=item.get("server", ""),
        account=item.get("account", ""),
        credentials=_under(folder, item["credentials"]) if "credentials" in item else None,
    )


def _bucket(item: Mapping[str, Any], folder: Path) -> BucketSettings:
    return BucketSettings(
        item["bucket"] if item["type"] == "s3" else item["container"],
        prefix=item.get("prefix", "").strip("/"),
        endpoint_url=item.get("endpoint-url", ""),
        region=item.get("region", ""),
        account=item.get("account", ""),
        credentials=_under(folder, item["credentials"]) if "credentials" in item else None,
    )


_AUTHENTICATION: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "anonymous-v1-reads": ("anonymous_v1_reads", bool),
    "trust-user-name": ("trust_user_name", bool),
    "open-root": ("open_root", bool),
    "session-lifetime": ("session_s", seconds),
    "failed-logins-per-account": ("logins_per_account", lambda value: value),
    "failed-logins-per-address": ("logins_per_address", lambda value: value),
}
_LIMITS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "body-mb": ("body_mb", int),
    "bodies-mb": ("bodies_mb", int),
    "sources-mb": ("sources_mb", int),
    "slow-client": ("slow_client_s", lambda value: float(seconds(value))),
    "connections-per-address": ("connections_per_address", lambda value: value),
    "connections-per-token": ("connections_per_token", lambda value: value),
    "requests-per-minute": ("requests_per_minute", lambda value: value),
    "lists-per-minute": ("lists_per_minute", lambda value: value),
    "submissions-per-hour": ("submissions_per_hour", lambda value: value),
    "submission-depth": ("submission_depth", lambda value: value),
    "submissions-per-job": ("submissions_per_job", lambda value: value),
    "parse-seconds-per-minute": ("parse_s_per_minute", lambda value: value),
}


_BACKUPS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "folder": ("folder", Path),
    "every": ("every_s", lambda value: None if value is None else float(seconds(value))),
    "keep": ("keep_s", lambda value: float(seconds(value))),
}


_USAGE: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "every": ("every_s", lambda value: None if value is None else float(seconds(value))),
    "keep-mb": ("keep_mb", int),
}


def _section(
    section: Mapping[str, Any], names: Mapping[str, tuple[str, Callable[[Any], Any]]]
) -> dict[str, Any]:
    return {names[key][0]: names[key][1](value) for key, value in section.items()}


def _copy_keys(fields: dict[str, Any], content: Mapping[str, Any], *keys: str) -> None:
    fields.update({key.replace("-", "_"): content[key] for key in keys if key in content})


def _port_range(text: str | None) -> range:
    """The ports ``FIRST-LAST``; empty without a range, and for an invalid one."""
    first, _, last = (text or "0-0").partition("-")
    return range(int(first), int(last) + 1) if 0 < int(first) <= int(last) <= 65535 else range(0)


def _under(folder: Path, name: str) -> Path:
    return folder / Path(name).expanduser()


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
