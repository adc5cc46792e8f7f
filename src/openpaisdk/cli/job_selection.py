"""Which jobs a command means: names, patterns, or all of them; and a yes where much is at stake."""

from __future__ import annotations

from openpaisdk.cli.parser import on_terminal
from openpaisdk.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from openpaisdk.cli.parser import Parser
    from openpaisdk.client import ClusterClient

UNFINISHED = "WAITING,RUNNING,STOPPING"
OVER = "SUCCEEDED,FAILED,STOPPED"


def selection_options(parser: Parser, what: str) -> None:
    """Names, ``--all``, ``--yes`` and ``--user``."""
    parser.add_argument("--all", action="store_true", help=f"{what}; asks first")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--user", default="", metavar="USER", help="whose jobs, if not yours")
    parser.add_argument("jobs", nargs="*", metavar="job", help="names, or patterns like 'train_*'")


def is_pattern(name: str) -> bool:
    return any(c in name for c in "*?[")


def resolve_jobs(
    cluster: ClusterClient, names: Iterable[str], user: str, state: str, everything: bool
) -> list[str]:
    """The names, each pattern replaced by what it matches among the jobs in these states; or all of those."""
    known: list[str] | None = None

    def jobs() -> list[str]:
        nonlocal known
        if known is None:
            known = [job.name for job in cluster.all_jobs(user=user or cluster.user, state=state)]
        return known

    if everything:
        return jobs()
    found: list[str] = []
    for name in names:
        if not is_pattern(name):
            found.append(name)
            continue
        from fnmatch import fnmatchcase

        hits = [job for job in jobs() if fnmatchcase(job, name)]
        if not hits:
            raise UsageError(f"No job matches {name!r}.", hint="pai list-jobs shows yours.")
        found += hits
    return list(dict.fromkeys(found))


def confirm(question: str, yes: bool) -> bool:
    """Ask at a terminal; elsewhere ``--yes`` must have been given."""
    if yes:
        return True
    if not on_terminal():
        raise UsageError(f"{question} There is no terminal to ask at: add --yes to say so.")
    import sys

    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
