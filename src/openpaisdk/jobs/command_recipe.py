"""Recipe of a job made by ``Job.one_liner``: the job itself is built for the cluster it is submitted to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry
from openpaisdk.config.defaults import Defaults
from openpaisdk.jobs.caller_notice import warn_caller
from openpaisdk.jobs.command_job import command_job
from openpaisdk.jobs.command_submission import (
    CommandSubmission,
    check_features,
    check_image,
    current_folder,
    select_sources,
)
from paiprotocol.errors import UsageError

if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient
    from openpaisdk.jobs.job_options import JobOptions

    Upload = Callable[[ClusterClient], None]


class CommandRecipe:
    """Options and files of a command job. ``folder``: that of the files, by default the current one."""

    def __init__(self, options: JobOptions, cluster_alias: str = "", folder: str = ""):
        self.options = options
        self.cluster_alias = cluster_alias
        self.folder = folder or (current_folder() if options.sources != [] else "")
        self._built: dict[str, Any] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # In a job that was pickled before version 0.6, the files are not among the options.
        if "sources" in state:
            state["options"].sources, state["options"].source_archive = state.pop("sources"), None
        self.__dict__.update(state)

    def preview(self) -> dict[str, Any]:
        """The job for the cluster that commands use, or for an unknown one if none is selected."""
        registry = ClusterRegistry.load()
        try:
            entry = registry.resolve(self.cluster_alias)
        except UsageError:
            if self.cluster_alias:
                raise
            entry = ClusterEntry({"cluster_alias": ""})
        self._built = command_job(self.options, entry, registry.defaults)
        return deepcopy(self._built)

    def build(
        self, client: ClusterClient, entry: ClusterEntry, config: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Upload]:
        """The job for a cluster, and the function that uploads its files.

        ``config`` is the job as the program has it: what the program changed in it stays.
        """
        from openpaisdk.jobs.sources import send

        defaults, options = Defaults.load(), self.options
        check_features(options, entry)
        check_image(options, entry, defaults, lambda: client)
        sources = select_sources(
            options.sources,
            [" ".join(options.commands)],
            entry,
            defaults,
            warn_caller,
            self.folder,
            connect=lambda: client,
            needed=options.needed_files,
        )
        submission = CommandSubmission(options, entry, defaults, sources, lambda: client)
        name = str(config.get("name") or options.name)
        built = submission.build(name)
        merged = merge_changes(self._built, config, deepcopy(built))
        self._built = built
        return merged, lambda client: submission.upload(name, lambda archive: send(client, archive))


def merge_changes(
    base: Mapping[str, Any], changed: Mapping[str, Any], rebuilt: Mapping[str, Any]
) -> dict[str, Any]:
    """``rebuilt``, with the changes that lead from ``base`` to ``changed``."""
    merged: dict[str, Any] = {}
    for key in dict.fromkeys([*rebuilt, *changed]):
        is_unchanged = (key in base) == (key in changed) and base.get(key) == changed.get(key)
        if is_unchanged and key in rebuilt:
            merged[key] = rebuilt[key]
        elif isinstance(changed.get(key), dict) and isinstance(rebuilt.get(key), dict):
            before = base.get(key)
            merged[key] = merge_changes(
                before if isinstance(before, dict) else {}, changed[key], rebuilt[key]
            )
        elif key in changed and not is_unchanged:
            merged[key] = changed[key]
    return merged
