"""``pai notebook-job``: run a notebook as a job, and bring back the executed notebook."""

from __future__ import annotations

import os

from openpaisdk.cli.parser import command_parser
from openpaisdk.cli.submission.command_job import CommandJob, submit_command_job
from openpaisdk.cli.submission.job_flags import add_job_options, given_options
from openpaisdk.config.clusters import ClusterRegistry
from openpaisdk.jobs.job_names import expand_name
from openpaisdk.jobs.job_options import JobOptions
from openpaisdk.jobs.notebook_job import Notebook, open_notebook
from openpaisdk.output import print_notice
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from openpaisdk.client import ClusterClient


def notebook_job(argv: list[str]) -> int:
    """``pai notebook-job [options] notebook``"""
    parser = command_parser(
        "notebook-job",
        "pai notebook-job train.ipynb\npai notebook-job --gpu 1 -p lr=0.1 -p epochs=3 train.ipynb\n"
        "pai notebook-job --interactive train.ipynb",
        "Runs all cells of the notebook in a job, and waits for it. Then the executed notebook\n"
        "(train.executed.ipynb) and a page of it (train.html) are downloaded to the current folder, and the\n"
        "page is opened in the browser. If a cell fails, the job fails, and both come as they are.\n\n"
        "With --interactive a Jupyter server runs in the job until you stop it, and the notebook is opened\n"
        "there. Edits are in the job's outputs when it ends.\n\n"
        "Options and files are those of pai sub; the notebook itself is always uploaded. The job uses the\n"
        "Jupyter of its environment, and installs one if there is none.",
    )
    parser.usage = "pai notebook-job [options] notebook"
    add_job_options(parser, "<notebook>_<random letters>", opens_page=True)
    notebook_options = parser.add_argument_group("Notebook")
    notebook_options.add_argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable that is set after the cell with the tag parameters, or else before the first cell "
        "(default: none); may be repeated",
    )
    notebook_options.add_argument(
        "--no-wait", action="store_true", help="print the job's name and do not wait for the job"
    )
    notebook_options.add_argument(
        "--interactive",
        action="store_true",
        help="start a Jupyter server in the job and open the notebook in it, instead of running its cells",
    )
    notebook_options.add_argument(
        "--token",
        default="",
        metavar="TOKEN",
        help="the token of the Jupyter server (default: notebook-token of pai set, else abcd on the embedded "
        "cluster and a random one on others)",
    )
    parser.add_argument("notebook", help="the notebook, an .ipynb file")
    args = parser.parse(argv)
    _check_mode(args)
    notebook = open_notebook(args.notebook)
    name = expand_name(args.job_name) if args.job_name else notebook.generate_job_name()
    line = notebook.server_command() if args.interactive else notebook.command(args.parameter)
    options = notebook.add_to(JobOptions.read(name, [line], given_options(args)))
    job = CommandJob(
        options,
        [notebook.name],
        has_name=bool(args.job_name),
        folder=notebook.folder,
        generate_name=notebook.generate_job_name,
    )
    registry = ClusterRegistry.load()
    if args.interactive:
        from openpaisdk.cli.interactive.interactive_notebook import InteractiveNotebook

        interactive = InteractiveNotebook(options, registry, args)
        return submit_command_job(job, args, registry, on_submit=interactive.open)
    args.wait = not args.no_wait
    results = NotebookResults(notebook, args, is_single=options.task_count == 1)
    return submit_command_job(job, args, registry, results.bring, on_interrupt=results.report_interrupt)


def _check_mode(args: argparse.Namespace) -> None:
    """Reject options of the other mode, and those that contradict each other."""
    waits = (args.wait, "--wait"), (args.follow, "--follow"), (args.fetch is not None, "--fetch")
    if args.no_wait and (waiting := next((option for value, option in waits if value), "")):
        raise UsageError(f"--no-wait and {waiting} contradict each other.")
    if args.interactive:
        batch = (args.parameter, "-p"), *waits
        unused = next((option for value, option in batch if value), "")
        if unused:
            raise UsageError(
                f"{unused} does not go together with --interactive, which runs no cells by itself."
            )
        if (args.instances or 1) > 1 or args.array:
            raise UsageError("An interactive notebook has one task: leave --instances and --array out.")
    elif args.token:
        raise UsageError("--token is for a Jupyter server: add --interactive.")


class NotebookResults:
    """Results of a notebook's job: downloaded to the current folder, the page is opened."""

    def __init__(self, notebook: Notebook, args: argparse.Namespace, *, is_single: bool):
        self._notebook = notebook
        self._opens_page = not args.no_browser
        self._is_single = is_single

    def bring(self, cluster: ClusterClient, name: str, result: dict[str, object]) -> None:
        from openpaisdk.config.clusters import alias_option
        from openpaisdk.jobs.outputs import JobOutputs

        outputs = JobOutputs(cluster, name)
        existing = outputs.files()
        wanted = [file for file in self._notebook.results if file in existing]
        for file in wanted:
            outputs.storage.download(outputs.path(file), file)
        result["results"] = wanted
        if wanted:
            print_notice(f"Downloaded {' and '.join(wanted)}.")
        elif not self._is_single and existing:
            command = f"pai job-outputs {alias_option(cluster.alias)}{name} get"
            print_notice(f"Each task has results of its own; download them with: {command}")
        else:
            print_notice(f"{name} has left no results.")
        page = self._notebook.results[0]
        if page in wanted and self._opens_page:
            self._open(page)

    @staticmethod
    def report_interrupt(cluster: ClusterClient, name: str) -> None:
        """After Ctrl-C: how to get the results later."""
        from openpaisdk.cli.jobs.job_selection import job_argument

        command = f"pai job-outputs {job_argument(cluster, name)} get --to ."
        print_notice(f"When it has finished, download its results with: {command}")

    @staticmethod
    def _open(page: str) -> None:
        from pathlib import Path

        from openpaisdk.output.browser import has_display, open_page

        if has_display() and not open_page(Path(os.path.abspath(page)).as_uri()):
            print_notice(f"The web browser could not be opened: open {page} yourself.")
