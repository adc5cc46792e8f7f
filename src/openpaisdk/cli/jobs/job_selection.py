"""Job selection of a command: names, patterns or ``--all``, and confirmation prompts."""

from __future__ import annotations

from openpaisdk.cli.parser import is_interactive
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from openpaisdk.cli.parser import Parser
    from openpaisdk.client import ClusterClient

UNFINISHED = "WAITING,RUNNING,STOPPING"
FINISHED = "SUCCEEDED,FAILED,STOPPED"


def add_selection_options(parser: Parser, all_help: str) -> None:
    """Add the job names, ``--all``, ``--yes`` and ``--user``."""
    parser.add_argument("--all", action="store_true", help=f"{all_help}; asks for confirmation")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--user", default="", metavar="USER", help="the jobs' owner (default: you)")
    parser.add_argument("jobs", nargs="*", metavar="job", help="job names, or patterns like 'train_*'")


def is_pattern(name: str) -> bool:
    return any(c in name for c in "*?[")


def resolve_jobs(
    cluster: ClusterClient, names: Iterable[str], user: str, state: str, select_all: bool
) -> list[str]:
    """The job names; patterns and ``select_all`` are matched against the jobs in these states."""
    known: list[str] | None = None

    def jobs() -> list[str]:
        nonlocal known
        if known is None:
            known = [job.name for job in cluster.all_jobs(user=user or cluster.user, state=state)]
        return known

    if select_all:
        return jobs()
    resolved: list[str] = []
    for name in names:
        if not is_pattern(name):
            resolved.append(name)
            continue
        from fnmatch import fnmatchcase

        hits = [job for job in jobs() if fnmatchcase(job, name)]
        if not hits:
            raise UsageError(f"No job matches {name!r}.", hint="pai list-jobs lists your jobs.")
        resolved += hits
    return list(dict.fromkeys(resolved))


def job_argument(cluster: ClusterClient, name: str, user: str = "") -> str:
    """Arguments that name a job in a command to copy, with ``-a`` where another cluster is selected."""
    from openpaisdk.config.clusters import alias_option

    return alias_option(cluster.alias) + (f"{user}~{name}" if user not in ("", cluster.user) else name)


def confirm(question: str, yes: bool) -> bool:
    """Ask for confirmation; without a terminal ``--yes`` is required."""
    if yes:
        return True
    if not is_interactive():
        raise UsageError(f"{question} There is no terminal to ask for confirmation: add --yes.")
    import sys

    from openpaisdk.output.untrusted_text import visible

    sys.stderr.write(visible(f"{question} [y/N] "))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
