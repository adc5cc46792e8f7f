"""``pai ssh-container``: connect with a running job by SSH."""

from __future__ import annotations

import os
import sys

from openpaisdk.cli.parser import add_task_options, command_parser
from openpaisdk.connect import open_cluster
from openpaisdk.output import print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient


def ssh_container(argv: list[str]) -> int:
    """``pai ssh-container [options] -j job``"""
    parser = command_parser(
        "ssh-container",
        "pai ssh-container -j dev\npai ssh-container -a lab -j train_k3v9xq --role worker --index 1",
        "Writes the job's private key to the current folder, prints the ssh command that uses it, and runs "
        "it if there is a terminal. Your own SSH configuration and known hosts are neither used nor changed.",
        output=False,
    )
    parser.add_argument("-j", "--job-name", required=True, metavar="NAME", help="the job's name")
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    add_task_options(parser, default_index=None)
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    return connect_by_ssh(cluster, args.job_name, args.user, args.role, args.index)


def connect_by_ssh(
    cluster: ClusterClient, job: str, user: str = "", role: str = "", index: int | None = None
) -> int:
    """Write the key, print the command, and run it at a terminal; returns its exit status."""
    from openpaisdk.jobs.ssh_access import find_ssh_access

    access = find_ssh_access(cluster, job, user)
    command = access.command(access.task(role, index))
    access.write_files(cluster)
    print_notice(f"The private key is in {access.key_file}. Connect from this folder with:")
    sys.stdout.write(" ".join(map(_quoted, command)) + "\n")
    sys.stdout.flush()
    if not (os.isatty(0) and os.isatty(1)):
        return 0
    from shutil import which

    if which("ssh") is None:
        print_notice(f"ssh is not installed here; pai exec -t {job} opens a shell without it.")
        return 0
    from subprocess import call

    return call(command)


def _quoted(word: str) -> str:
    """A word quoted for a shell where needed. A ~ within it needs none: full names of jobs stay readable."""
    import shlex

    others = word.replace("~", "")
    is_plain = word[:1] != "~" and "=~" not in word and ":~" not in word and shlex.quote(others) == others
    return word if is_plain else shlex.quote(word)
