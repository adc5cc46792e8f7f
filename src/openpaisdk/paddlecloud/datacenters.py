"""Datacenters of ``~/.paddle/config``, in each of the three forms that this file has had.

A mapping from a datacenter's name to its settings; a list ``datacenters`` whose items are ``active`` or not;
and that list with ``current-datacenter`` beside it.
"""

from __future__ import annotations

import os

from openpaisdk.config.paths import display_path
from paiprotocol.errors import ConfigError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = ".paddle"
FILE = "config"
EMBEDDED = "local"
"""The datacenter of the embedded cluster. It needs no settings, unless the file gives the name to another."""
_KEYS = ("endpoint", "username", "password", "usercert", "userkey", "cacert")


class Datacenter:
    """One datacenter: its address, and how the user proves who they are there."""

    __slots__ = ("cacert", "endpoint", "name", "password", "usercert", "userkey", "username")

    def __init__(self, name: str, settings: Mapping[str, str]):
        self.name = name
        self.endpoint = settings["endpoint"]
        self.username = settings["username"]
        self.password = settings["password"]
        self.usercert = settings["usercert"]
        self.userkey = settings["userkey"]
        self.cacert = settings["cacert"]

    @property
    def certificate(self) -> tuple[str, str] | None:
        """Files of the user's certificate and its key."""
        return (self.usercert, self.userkey) if self.usercert else None

    @property
    def uri(self) -> str:
        """The address with a scheme. A bare host name means TLS if the user has a certificate."""
        if "://" in self.endpoint:
            return self.endpoint
        return f"{'https' if self.usercert else 'http'}://{self.endpoint}"


class DatacenterConfig:
    """All datacenters of the file, and the name of the current one; none if there is no file."""

    __slots__ = ("current", "datacenters", "path")

    def __init__(self, path: str, datacenters: list[Datacenter], current: str = ""):
        self.path = path
        self.datacenters = datacenters
        self.current = current

    @classmethod
    def load(cls) -> DatacenterConfig:
        from openpaisdk.config.yaml_files import read_yaml

        path = config_file()
        return _read(path, read_yaml(path))

    def select(self, name: str = "") -> Datacenter | None:
        """The datacenter of this name; else the current one, else the first.

        None without any datacenter, and for ``EMBEDDED`` if no datacenter is called so: a cluster of ``pai``.
        """
        if not self.datacenters:
            return None
        wanted = name or self.current
        if not wanted:
            return self.datacenters[0]
        datacenter = next((dc for dc in self.datacenters if dc.name == wanted), None)
        if datacenter is None and wanted != EMBEDDED:
            raise self.unknown(wanted, is_current=not name)
        return datacenter

    def unknown(self, name: str, *, is_current: bool = False) -> UsageError:
        where = display_path(self.path)
        known = ", ".join(dc.name for dc in self.datacenters)
        if is_current:
            return UsageError(
                f"{where}: current-datacenter is {name!r}, but there is no datacenter of that name.",
                hint=f"Set it to one of these: {known or EMBEDDED}",
            )
        if not self.datacenters:
            return UsageError(
                f"There is no datacenter {name!r}: {where} names none.",
                hint=f"Add it to that file, or use {EMBEDDED!r}, the cluster on this machine.",
            )
        return UsageError(
            f"{where} has no datacenter {name!r}; it has {known}.",
            hint="Use one of these names, or add the datacenter to that file.",
        )


def paddle_folder() -> str:
    """``~/.paddle``. On Windows, where HOME is rarely set, in the user's profile."""
    return os.path.join(os.path.expanduser("~"), FOLDER)


def config_file() -> str:
    return os.path.join(paddle_folder(), FILE)


def _read(path: str, value: object) -> DatacenterConfig:
    where = display_path(path)
    if value is None:
        return DatacenterConfig(path, [])
    if not isinstance(value, dict):
        raise ConfigError(
            f"{where} must map the names of datacenters to their settings.",
            hint="For example: {datacenter1: {username: user, endpoint: dc1.example.org}}",
        )
    if "datacenters" not in value:
        names = [key for key in value if key != "current-datacenter"]
        datacenters = [_datacenter(where, str(name), value[name]) for name in names]
        return DatacenterConfig(path, datacenters, str(value.get("current-datacenter") or ""))
    items = value["datacenters"]
    if not isinstance(items, list):
        raise ConfigError(f"{where}: datacenters must be a list.")
    for at, item in enumerate(items, 1):
        if not isinstance(item, dict) or not item.get("name"):
            raise ConfigError(f"{where}: item {at} of datacenters has no name.")
    active = next((str(item["name"]) for item in items if item.get("active") is True), "")
    return DatacenterConfig(
        path,
        [_datacenter(where, str(item["name"]), item) for item in items],
        str(value.get("current-datacenter") or "") or active,
    )


def _datacenter(where: str, name: str, settings: object) -> Datacenter:
    if not isinstance(settings, dict):
        raise ConfigError(
            f"{where}: the settings of {name!r} are not a mapping.",
            hint="Write its endpoint, username, and usercert and userkey or a password, one per line.",
        )
    texts: dict[str, str] = {}
    for key in _KEYS:
        value = settings.get(key)
        if isinstance(value, dict | list):
            raise ConfigError(f"{where}: {key} of {name!r} must be a text.")
        texts[key] = "" if value is None else str(value).strip()
    if not texts["endpoint"]:
        raise ConfigError(f"{where}: the datacenter {name!r} has no endpoint.")
    if bool(texts["usercert"]) != bool(texts["userkey"]):
        missing = "userkey" if texts["usercert"] else "usercert"
        raise ConfigError(f"{where}: the datacenter {name!r} has no {missing}; a certificate needs its key.")
    for key in ("usercert", "userkey", "cacert"):
        if texts[key]:
            texts[key] = os.path.expanduser(texts[key])
    return Datacenter(name, texts)
