"""A cluster's YAML file, read into settings; everything that is wrong with it is told at once, by line."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from openpaisdk.errors import ConfigError, ProtocolError, UsageError
from openpaisdk.protocol.document import Document, read
from openpaisdk.protocol.problems import MAX_PROBLEMS, Problem, did_you_mean
from openpaisdk.protocol.problems import Path as KeyPath
from paicluster.config.schema import CLUSTER, seconds
from paicluster.config.sections import Authentication, EngineSettings, RequestLimits, StorageSettings
from paicluster.config.settings import DEFAULT, Settings
from paicluster.engines.registry import LOCAL_KINDS
from paicluster.scheduler.resource_requests import Resources

NAME = "cluster.yaml"
_BY_ITEM = ("virtual-clusters", "storages")


class ClusterFileError(ConfigError):
    """A cluster's file is wrong. ``problems`` lists everything found, not only the first."""

    def __init__(self, file: Path, problems: tuple[Problem, ...], total: int):
        self.problems = problems
        lines = [str(problem) for problem in problems]
        if total > len(problems):
            lines.append(f"and {total - len(problems)} more")
        if len(lines) > 1:
            lines = [f"{file} has {total} problems:", *(f"  {line}" for line in lines)]
        super().__init__("\n".join(lines))


def load(file: Path) -> dict[str, Any]:
    """What the file says, as fields of `Settings`; what it does not say is not in it.

    Paths are taken from the folder of the file. ``home`` is always there: by default that folder.
    """
    file = file.expanduser().absolute()
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"The cluster's file {file} cannot be read: {error.strerror}.") from error
    try:
        nothing = all(line.lstrip()[:1] in (b"", b"#") for line in data.splitlines())
        document = Document({}, "", str(file)) if nothing else read(data, str(file))
    except ProtocolError as error:
        found = tuple(problem for problem in error.problems if isinstance(problem, Problem))
        raise ClusterFileError(file, found, len(found)) from None
    said = {} if document.data is None else document.data
    problems: list[Problem] = []
    CLUSTER.explain(said, (), problems)
    if isinstance(said, dict):
        more = [
            *_cross_checks(_valid_sections(said, problems), file.parent),
            *_check_unknown_engines(said, problems),
        ]
        problems.extend(more)
    if problems:
        shown = sorted(map(document.locate, problems[:MAX_PROBLEMS]), key=lambda one: (one.line, one.column))
        raise ClusterFileError(file, tuple(shown), len(problems))
    # A section of which everything is commented out says nothing.
    return _fields({key: value for key, value in said.items() if value is not None}, file.parent)


def of_options(home: str | None, config: str | None) -> dict[str, Any]:
    """The fields of the cluster that these options name: of its file, if it has one, and its home."""
    # "$UNSET" is no folder, least of all the one that somebody happens to be in.
    if home == "" or (home is None and config is None):
        raise UsageError("Say where the cluster is: --home DIR, or --config FILE.")
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
    """The settings with these fields, and else the usual ones."""
    usual: dict[str, Any] = {
        # One's own machine is shared with everything else one does there: its jobs are not fenced in.
        "enforce_limits": not embedded,
        # And there nothing goes away by itself, unless it was asked for.
        "keep_days": None if embedded else 30.0,
    }
    return Settings(**{**usual, **fields, "embedded": embedded})


# -- what no key can tell by itself ----------------------------------------------------------------


def _valid_sections(said: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """What is of the right shape: of lists and shares each by itself, of the rest whole sections."""
    broken = {problem.path[: 2 if problem.path[0] in _BY_ITEM else 1] for problem in problems if problem.path}
    sound: dict[str, Any] = {}
    for key, value in said.items():
        if (key,) in broken or value is None:
            continue
        if key in _BY_ITEM and isinstance(value, dict):
            value = {name: item for name, item in value.items() if (key, name) not in broken}
        elif key in _BY_ITEM and isinstance(value, list):
            value = [None if (key, index) in broken else item for index, item in enumerate(value)]
        sound[key] = value
    if {("engine",), ("engines",)} & broken:
        # Who knows what they need.
        sound.pop("virtual-clusters", None)
        sound.pop("engine", None)
    return sound


def _cross_checks(said: Mapping[str, Any], folder: Path) -> Iterator[Problem]:
    yield from _check_listen(said.get("listen") or {}, folder)
    yield from _check_engines(said)
    yield from _check_names(said)
    yield from _check_accounts(said)
    database = said.get("database")
    if isinstance(database, str) and "://" in database:
        yield Problem(("database",), "only a database in a file can be used", suggestion="write a path")


def _check_accounts(said: Mapping[str, Any]) -> Iterator[Problem]:
    if said.get("allow-shared-account"):
        return
    users: dict[str, str] = {}
    for user, account in (said.get("accounts") or {}).items():
        other = users.setdefault(str(account), user)
        if other != user:
            yield Problem(
                ("accounts", user),
                f"{other} has this account too, and they could read each other's files",
                suggestion='give each one of his own, or say "allow-shared-account: true"',
            )


def _check_listen(listen: Mapping[str, Any], folder: Path) -> Iterator[Problem]:
    tls = listen.get("tls")
    for key, name in (tls or {}).items():
        if not _under(folder, name).is_file():
            yield Problem(("listen", "tls", key), f"there is no file {_under(folder, name)}")
    trusted = listen.get("external-ca")
    if trusted and not _under(folder, trusted).is_file():
        yield Problem(("listen", "external-ca"), f"there is no file {_under(folder, trusted)}")
    host = listen.get("host", "127.0.0.1")
    if not tls and not listen.get("allow-plain-http") and not is_loopback(host):
        yield Problem(
            ("listen", "host"),
            "other machines would send passwords in the clear",
            suggestion='give "tls", or say "allow-plain-http: true" if something in front does TLS',
        )


def _check_engines(said: Mapping[str, Any]) -> Iterator[Problem]:
    if "engine" in said and "engines" in said:
        yield Problem(("engine",), 'there is "engines" too', suggestion="keep one of them", at_key=True)
        return
    engines = _engines(said)
    kinds = {engine.name: engine.kind for engine in engines}
    for name, share in (said.get("virtual-clusters") or {}).items():
        share = share or {}
        kind = kinds.get(share.get("engine", engines[0].name), "")
        amounts = {"gpus", "cpus", "memory-mb"} & share.keys()
        if name == DEFAULT and amounts:
            yield Problem(("virtual-clusters", name), "has what the others leave; it cannot be given a share")
        elif name != DEFAULT and kind in LOCAL_KINDS and not amounts:
            yield Problem(("virtual-clusters", name), "has no share", expected="gpus, cpus and memory-mb")


def _check_unknown_engines(said: Mapping[str, Any], problems: Sequence[Problem]) -> Iterator[Problem]:
    """Also where something else is wrong with the engines, as long as it is known what they are called."""
    wrong = {problem.path for problem in problems}
    known = _names_of_engines(said, wrong)
    clusters = said.get("virtual-clusters")
    for name, share in clusters.items() if known and isinstance(clusters, dict) else ():
        path = ("virtual-clusters", name, "engine")
        chosen = share.get("engine") if isinstance(share, dict) else None
        if isinstance(chosen, str) and chosen not in known and path not in wrong:
            hint = did_you_mean(chosen, known)
            yield Problem(path, f'there is no engine "{chosen}"', suggestion=hint)


def _names_of_engines(said: Mapping[str, Any], wrong: Set[KeyPath]) -> set[str]:
    """None of them where one is not known, or it is not known which of two lists holds."""
    if said.get("engine") and said.get("engines"):
        return set()
    listed: dict[KeyPath, Any] = {("engine",): said.get("engine") or "process"}
    if isinstance(said.get("engines"), list):
        listed = {("engines", number): item for number, item in enumerate(said["engines"])}
    found = set()
    for path, item in listed.items():
        name = (item.get("name") or item.get("type")) if isinstance(item, dict) else item
        if not isinstance(name, str) or wrong & {path, (*path, "type"), (*path, "name")}:
            return set()
        found.add(name)
    return found


def _check_names(said: Mapping[str, Any]) -> Iterator[Problem]:
    for key in ("engines", "storages"):
        seen: set[str] = set()
        for index, item in enumerate(said.get(key) or ()):
            name = (item or {}).get("name") or (item or {}).get("type", "")
            if name and name in seen:
                yield Problem((key, index), f'the name "{name}" is there twice')
            seen.add(name)
    own = [
        index for index, item in enumerate(said.get("storages") or ()) if (item or {}).get("type") == "own"
    ]
    for index in own[1:]:
        yield Problem(
            ("storages", index, "type"), "the cluster has one storage of its own, and it is there already"
        )


# -- from the file's words to fields ---------------------------------------------------------------


def _fields(said: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    fields: dict[str, Any] = {"home": _under(folder, said.get("home", "."))}
    listen = said.get("listen") or {}
    _take(fields, listen, "host", "port", "allow-plain-http")
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
    if "database" in said:
        fields["database"] = _under(folder, said["database"])
    fields.update(_engine_fields(said))
    if "storages" in said:
        fields["storages"] = tuple(_storage(item, folder) for item in said["storages"])
    if "authentication" in said:
        fields["authentication"] = Authentication(**_section(said["authentication"], _AUTHENTICATION))
    if "limits" in said:
        fields["limits"] = RequestLimits(**_section(said["limits"], _LIMITS))
    kept = {"days": "keep_days", "jobs": "keep_jobs", "files-mb": "keep_mb"}
    fields.update({kept[key]: value for key, value in (said.get("retention") or {}).items()})
    if "accounts" in said:
        fields["accounts"] = {user: str(account) for user, account in said["accounts"].items()}
    _take(fields, said, "allow-shared-account")
    return fields


def _engine_fields(said: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    engines = _engines(said)
    if "engine" in said or "engines" in said:
        fields["engines"] = engines
    own = next((engine for engine in engines if engine.kind in LOCAL_KINDS), None)
    options = own.options if own is not None else {}
    _take(fields, options, "cpus", "memory-mb", "gpus")
    if "grace" in options:
        fields["grace_s"] = float(str(options["grace"]))
    if "limits" in options:
        fields["enforce_limits"] = options["limits"] == "enforce"
    clusters = {name: share or {} for name, share in (said.get("virtual-clusters") or {}).items()}
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


def _engines(said: Mapping[str, Any]) -> tuple[EngineSettings, ...]:
    listed = said.get("engines") or [said.get("engine", "process")]
    found = []
    for item in listed:
        whole = {"type": item} if isinstance(item, str) else item
        options = {key: value for key, value in whole.items() if key not in ("type", "name")}
        found.append(EngineSettings(whole.get("name", whole["type"]), whole["type"], options))
    return tuple(found)


def _storage(item: Mapping[str, Any], folder: Path) -> StorageSettings:
    return StorageSettings(
        name=item["name"],
        kind=item["type"],
        path=_under(folder, item["path"]) if "path" in item else None,
        url=item.get("url"),
        share=item.get("share", True),
        read_only=item.get("read-only", False),
        groups=tuple(item.get("groups", ())),
    )


_AUTHENTICATION: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "anonymous-v1-reads": ("anonymous_v1_reads", bool),
    "trust-user-name": ("trust_user_name", bool),
    "session-lifetime": ("session_s", seconds),
    "failed-logins-per-account": ("logins_per_account", lambda value: value),
    "failed-logins-per-address": ("logins_per_address", lambda value: value),
}
_LIMITS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "body-mb": ("body_mb", int),
    "sources-mb": ("sources_mb", int),
    "slow-client": ("slow_client_s", lambda value: float(seconds(value))),
    "requests-per-minute": ("requests_per_minute", lambda value: value),
    "lists-per-minute": ("lists_per_minute", lambda value: value),
    "submissions-per-hour": ("submissions_per_hour", lambda value: value),
}


def _section(
    said: Mapping[str, Any], names: Mapping[str, tuple[str, Callable[[Any], Any]]]
) -> dict[str, Any]:
    return {names[key][0]: names[key][1](value) for key, value in said.items()}


def _take(fields: dict[str, Any], said: Mapping[str, Any], *keys: str) -> None:
    fields.update({key.replace("-", "_"): said[key] for key in keys if key in said})


def _under(folder: Path, name: str) -> Path:
    return folder / Path(name).expanduser()


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
