"""Clients of remote storages for tests whose subject is not time: they wait for a machine that stalls."""

from __future__ import annotations

from pathlib import Path

from paicluster.remote_storages.remote_changes import RemoteChanges
from paicluster.remote_storages.remote_clients import ClientSettings, RemoteClients
from paicluster.remote_storages.remote_files import RemoteFiles

_TIMEOUT_S = 80.0


def patient_files() -> RemoteFiles:
    return RemoteFiles(RemoteClients(ClientSettings("read", _TIMEOUT_S, _TIMEOUT_S)))


def patient_changes(home: Path) -> RemoteChanges:
    changes = RemoteChanges(home)
    changes.clients.settings.call_timeout_s = _TIMEOUT_S
    changes.clients.settings.response_timeout_s = _TIMEOUT_S
    return changes
