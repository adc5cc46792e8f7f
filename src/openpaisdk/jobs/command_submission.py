"""Command job of ``pai sub`` and ``Job.one_liner`` for one cluster: image, features, files, defaults.

Everything here depends on the target cluster, so it happens when the target is known: at submission.
"""

from __future__ import annotations

import os

from openpaisdk.jobs.command_job import command_job, resolve_image, resolve_workspace
from paiprotocol.errors import PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from openpaisdk.client import ClusterClient
    from openpaisdk.config.clusters import ClusterEntry
    from openpaisdk.config.defaults import Defaults
    from openpaisdk.jobs.job_options import JobOptions
    from openpaisdk.jobs.sources import SourceArchive

    Connect = Callable[[], ClusterClient]
    Notify = Callable[[str], None]


class CommandSubmission:
    """A command job with its files, for one cluster."""

    def __init__(
        self,
        options: JobOptions,
        entry: ClusterEntry,
        defaults: Defaults,
        sources: SourceArchive | None,
        connect: Connect,
    ):
        self.options = options
        self.entry = entry
        self.defaults = defaults
        self.sources = sources
        self._uploader = None
        options.source_archive = None
        if not entry.is_paicluster and (sources or options.outputs):
            from openpaisdk.jobs.storage_upload import StorageUploader

            self._uploader = StorageUploader(connect(), resolve_workspace(options, entry, defaults))
        elif sources:
            options.source_archive = {"sha256": sources.sha256, "size": sources.size}

    def build(self, name: str) -> dict[str, object]:
        """The job under this name, which is also part of the path of its files."""
        self.options.name = name
        if self._uploader is not None:
            self.options.transfer_commands = self._uploader.job_commands(
                name, sources=self.sources is not None, outputs=self.options.outputs
            )
        else:
            self.options.transfer_commands = []
        job = command_job(self.options, self.entry, self.defaults)
        if self.options.array:
            from openpaisdk.jobs.sweep import check_size

            check_size(self.options.array, job)
        return job

    @property
    def is_stored_by_name(self) -> bool:
        """Whether the files are uploaded under the job's name, so that another name needs another upload."""
        return self._uploader is not None

    def upload(self, name: str, send: Callable[[SourceArchive], object]) -> None:
        """Upload the files of the job; ``send`` uploads an archive to the cluster's source store."""
        if self._uploader is not None:
            self._uploader.upload(name, self.sources)
        elif self.sources is not None:
            send(self.sources)


def check_features(options: JobOptions, entry: ClusterEntry) -> None:
    """Reject options that OpenPAI's own server would ignore."""
    if entry.is_paicluster:
        return
    unsupported = (
        (options.after, "--after"),
        (options.array and options.array.limit, "--array ...%M"),
        (options.time_limit_s, "--timeout"),
    )
    for value, option in unsupported:
        if value:
            raise UsageError(
                f"The cluster {entry.alias} does not support {option}.",
                hint="OpenPAI's own server has no such feature; leave the option out.",
            )


def check_image(options: JobOptions, entry: ClusterEntry, defaults: Defaults, connect: Connect) -> None:
    """Reject a job without an image on a cluster that runs every job in a container."""
    if resolve_image(options, defaults) or entry.shares_machine:
        return
    containers = connect().info().get("containers")
    if containers is not False:
        # OpenPAI's own server does not say, and has no jobs without a container.
        on_host = "-i host runs the job on the node itself. " if containers else ""
        raise UsageError(
            f"The cluster {entry.alias} runs jobs in containers: name an image with -i.",
            hint=f'In Python: image="...". {on_host}Set a default with: pai set -g image=<image>',
        )


def select_sources(
    given: Sequence[str] | None,
    command: Sequence[str],
    entry: ClusterEntry,
    defaults: Defaults,
    notify: Notify,
    folder: str = "",
    connect: Connect | None = None,
    needed: Sequence[str] = (),
) -> SourceArchive | None:
    """The files to upload: those given or set as default, else the folder (by default the current one).

    ``given`` is None for the folder, and empty for no files. ``needed`` files are uploaded in any case.
    Through ``connect`` the cluster is asked how much it takes, if a lot is given.
    """
    named = [*(given or ())]
    if given is None or given:
        named += (s for s in defaults.values("sources") if s not in named)
    is_folder = given is None and not named and entry.is_paicluster
    paths = named if is_folder else [*named, *needed]
    if not paths and given is not None:
        return None
    if not paths and not entry.is_paicluster:
        notify(f"No files are uploaded to {entry.alias}; --sources . uploads those of this folder.")
        return None
    from openpaisdk.jobs.sources import collect

    folder = folder or current_folder()
    if not paths and _contains_home(folder):
        # A whole home folder is never meant to be uploaded; the files that the command names are.
        paths = _named_files(command, folder) or [*needed]
        what = (
            f"only {', '.join(paths)} is uploaded, which the command names"
            if paths
            else "nothing is uploaded"
        )
        is_home = os.path.realpath(folder) == os.path.realpath(os.path.expanduser("~"))
        place = "This is your home folder" if is_home else "This folder contains your home folder"
        notify(f"{place}: {what}. --sources selects other files; --sources . uploads everything.")
        if not paths:
            return None
    return collect(folder, paths, always=needed, connect=connect)


def current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise PaiError(
            "The folder you are in no longer exists.", hint="Go to another one, or use --no-sources."
        ) from None


def _contains_home(folder: str) -> bool:
    """Whether a folder is the home folder or contains it."""
    home = os.path.realpath(os.path.expanduser("~"))
    folder = os.path.realpath(folder)
    return home == folder or home.startswith(folder.rstrip(os.sep) + os.sep)


def _named_files(command: Sequence[str], folder: str) -> list[str]:
    """Existing files below a folder that the command names."""
    pieces = command[0].split() if len(command) == 1 else command
    plain = [p.strip("'\";&|()") for p in pieces if not p.startswith(("-", "/", "~", "."))]
    return list(
        dict.fromkeys(p for p in plain if p and ".." not in p and os.path.exists(os.path.join(folder, p)))
    )
