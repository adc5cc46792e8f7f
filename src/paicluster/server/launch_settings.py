"""Settings of launches, from those of the server: environment, storages and credentials of tasks."""

from __future__ import annotations

import getpass
import itertools
import logging
import os
import pwd
from importlib.util import find_spec
from urllib.parse import urlsplit

from paicluster.auth.sealing import Sealer
from paicluster.auth.tokens import Tokens
from paicluster.config.settings import Settings
from paicluster.controller.launch_spec import LaunchSettings
from paicluster.controller.mountable_storages import MountableStorage
from paicluster.controller.storage_credentials import CloudStorage
from paicluster.files.ownership import HOMES
from paicluster.remote_storages import storages

log = logging.getLogger("paicluster")

_ALLOWED_VARIABLES = ("HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def launch_settings(settings: Settings, external_url: str, sealer: Sealer, tokens: Tokens) -> LaunchSettings:
    """``external_url``: where tasks reach the server."""
    return LaunchSettings(
        base_environment=_base_environment(),
        rest_server_uri=external_url,
        sources=settings.home / "sources",
        keep_submitted_environment=settings.embedded,
        unseal=sealer.unseal,
        job_token=tokens.of_job,
        default_fs_uri=f"hdfs://{urlsplit(external_url).netloc}",
        folders=_mountable_storages(settings),
        cloud_storages=_cloud_storages(settings),
        serves_ssh=settings.ssh_port is not None and find_spec("asyncssh") is not None,
    )


def _mountable_storages(settings: Settings) -> tuple[MountableStorage, ...]:
    """The storages that can be mounted. The first is the default of a job, unless it is limited to groups."""
    # Of the cluster's own storage a task sees what its user may see: all of it on the embedded cluster,
    # elsewhere the user's home folder.
    homes = "" if settings.embedded else HOMES
    own = settings.home / "storage"
    if not settings.storages:
        return (MountableStorage(storages.OWN, own, default=True, own=True, homes=homes),)
    return tuple(
        MountableStorage(
            storage.name,
            own if storage.path is None else storage.path,
            storage.share,
            storage.read_only,
            default=number == 0 and not storage.groups,
            own=storage.kind == "own",
            homes=homes if storage.kind == "own" else "",
        )
        for number, storage in enumerate(settings.storages)
        if storage.kind == "own" or (storage.kind == "mount" and storage.path is not None)
    )


def warn_exchangeable_folders(settings: Settings) -> None:
    """Log a warning for each storage whose users' folders jobs can exchange for links.

    A container program follows the links of what it mounts, as its own account, and no check before its start
    helps: it takes paths, and the kernel binds no folder that another mount namespace has opened.
    """
    if not any(engine.kind == "container" for engine in settings.engines):
        return
    folders = _mountable_storages(settings)
    by_user = [folder for folder in folders if folder.homes or not folder.shared]
    whole = [folder for folder in folders if folder not in by_user and not folder.read_only]
    for inner, outer in itertools.product(by_user, whole):
        if inner.path.resolve().is_relative_to(outer.path.resolve()):
            log.warning(
                "The storage %s mounts folders of users below %s, which jobs can write to as the storage %s: "
                "a job can put a link there, and get any folder of this machine. "
                "Move one of them, or set `read-only: true` for %s.",
                *(inner.name, outer.path, outer.name, outer.name),
            )


def _cloud_storages(settings: Settings) -> tuple[CloudStorage, ...]:
    """The storages of other servers. Credentials that cannot be read are an error of the settings."""
    reachable = []
    for number, storage in enumerate(settings.storages):
        remote = storages.remote_of(storage)
        if remote is not None:
            remote.secrets()
            reachable.append(
                CloudStorage(
                    storage.name,
                    remote.url,
                    remote.task_environment,
                    storage.share,
                    storage.kind,
                    remote.data_with_secrets,
                    remote.has_credentials,
                    storage.read_only,
                    mounted=storage.mount,
                    default=number == 0 and not storage.groups,
                )
            )
    return tuple(reachable)


def _base_environment() -> dict[str, str]:
    """Variables a task gets from its account: an allow-list, so that none of the server's leak into it."""
    environment = {name: os.environ[name] for name in _ALLOWED_VARIABLES if name in os.environ}
    home, shell = "/", "/bin/sh"
    try:
        account = pwd.getpwuid(os.getuid())
        home, shell = account.pw_dir, account.pw_shell or shell
    except KeyError:
        pass  # in a container a uid may have no account
    environment.setdefault("HOME", home)
    environment.setdefault("USER", account_name())
    environment.setdefault("LOGNAME", environment["USER"])
    environment.setdefault("SHELL", shell)
    environment.setdefault("LANG", "C.UTF-8")
    environment["PATH"] = _DEFAULT_PATH
    return environment


def account_name() -> str:
    """Name of the account that the server runs as."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the uid has no account
        return f"user{os.getuid()}"
