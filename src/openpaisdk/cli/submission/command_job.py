"""Submission of a command job with its files, shared by ``sub`` and by ``submit`` of short job files."""

from __future__ import annotations

from openpaisdk.cli.submission.submission_steps import preview, print_preflight, submit_and_follow
from openpaisdk.connect import open_cluster, open_entry
from openpaisdk.jobs import job_names
from openpaisdk.jobs.command_job import caller_environment
from openpaisdk.jobs.command_submission import (
    CommandSubmission,
    check_features,
    check_image,
    select_sources,
)
from openpaisdk.output import print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from openpaisdk.cli.submission.submission_steps import OnEnd, OnInterrupt, OnSubmit
    from openpaisdk.client import ClusterClient
    from openpaisdk.config.clusters import ClusterRegistry
    from openpaisdk.jobs.job_options import JobOptions
    from openpaisdk.jobs.sources import SourceArchive

LARGE_UPLOAD_BYTES = 4 << 20
"""From this size on, the upload is announced."""


class CommandJob:
    """A command job as the user gave it.

    ``folder``: that of the files to upload, by default the current one. ``command`` is searched for files
    where the whole folder cannot be meant. Without ``has_name`` the name was generated, and is generated
    again (``generate_name``) if it is in use.
    """

    __slots__ = ("command", "folder", "generate_name", "has_name", "options")

    def __init__(
        self,
        options: JobOptions,
        command: Sequence[str],
        *,
        has_name: bool,
        folder: str = "",
        generate_name: Callable[[], str] | None = None,
    ):
        self.options = options
        self.command = command
        self.has_name = has_name
        self.folder = folder
        self.generate_name = generate_name or (lambda: job_names.generate_name(options.commands[0]))


def submit_command_job(
    command_job: CommandJob,
    args: argparse.Namespace,
    registry: ClusterRegistry,
    on_end: OnEnd | None = None,
    on_submit: OnSubmit | None = None,
    on_interrupt: OnInterrupt | None = None,
) -> int:
    """Build the job for the cluster, upload its files and submit it; or only print it (``--preview``).

    ``on_end``, ``on_submit`` and ``on_interrupt``: as in `submit_and_follow`.
    """
    options, defaults = command_job.options, registry.defaults
    entry = registry.resolve(args.cluster_alias)
    if entry.shares_machine:
        options.inherited_env = caller_environment()
    check_features(options, entry)
    if options.array:
        for word, name in options.array.misspelt_placeholders(options.commands).items():
            print_notice(
                f"The array has no {word}, so {{{word}}} stays in the command. Did you mean {{{name}}}?"
            )
    check_image(options, entry, defaults, lambda: open_entry(entry))

    def connect() -> ClusterClient:
        return open_cluster(args.cluster_alias, registry=registry, notify=print_notice)

    sources = select_sources(
        options.sources,
        command_job.command,
        entry,
        defaults,
        print_notice,
        command_job.folder,
        connect=connect,
        needed=options.needed_files,
    )
    submission = CommandSubmission(options, entry, defaults, sources, lambda: open_entry(entry))
    name = options.name
    job = submission.build(name)
    if args.preview:
        return preview(job, args.output)
    cluster = connect()
    warned = print_preflight(entry, cluster, job, args)
    submission.upload(name, lambda archive: send_sources(cluster, archive))

    def rename() -> str:
        new_name = command_job.generate_name()
        if submission.is_stored_by_name:
            submission.upload(new_name, lambda archive: send_sources(cluster, archive))
        job.update(submission.build(new_name))
        return new_name

    new_name = None if command_job.has_name else rename
    return submit_and_follow(cluster, job, args, new_name, warned, on_end, on_submit, on_interrupt)


def send_sources(cluster: ClusterClient, sources: SourceArchive) -> None:
    """Upload the sources, unless the cluster still has them from an earlier job."""
    from openpaisdk.jobs.sources import megabytes, send
    from openpaisdk.output.progress import Progress

    with Progress("Sending", sources.size) as progress:

        def announce(size: int) -> None:
            progress.total = size
            if size > LARGE_UPLOAD_BYTES:
                files = "1 file" if sources.count == 1 else f"{sources.count} files"
                print_notice(f"Sending {megabytes(size)} of {files}.")

        sources.on_progress = progress.advance
        send(cluster, sources, announce)
    if sources.ignored:
        few = ", ".join(sources.ignored[:3]) + (", ..." if len(sources.ignored) > 3 else "")
        print_notice(f"Not uploaded, because of the ignore file: {few}")
