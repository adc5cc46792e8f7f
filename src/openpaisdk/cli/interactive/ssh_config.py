"""``pai ssh-config``: print a block for an SSH configuration."""

from __future__ import annotations

import os
import sys

from openpaisdk.cli.parser import command_parser
from openpaisdk.connect import open_cluster
from openpaisdk.output import print_notice


def ssh_config(argv: list[str]) -> int:
    """``pai ssh-config [options] job``"""
    parser = command_parser(
        "ssh-config",
        "pai ssh-config dev > dev.conf && ssh -F dev.conf dev\n"
        "pai ssh-config train_k3v9xq > ~/.ssh/train.conf   # and in ~/.ssh/config: Include train.conf",
        "Writes the job's private key to the current folder and prints a block with a host for each running "
        "task: JOB-ROLE-INDEX, and JOB for the first one. Other programs use it, such as scp -F, rsync and "
        "editors. Your own SSH configuration is not changed.",
        output=False,
    )
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    from openpaisdk.jobs.ssh_access import find_ssh_access

    access = find_ssh_access(cluster, args.job, args.user)
    access.write_files(cluster)
    # A percent sign begins a token of ssh.
    options = access.options(os.getcwd().replace("%", "%%"))
    lines = []
    for number, task in enumerate(access.tasks):
        own_name = f"{access.job}-{task.name or number}"
        lines += [
            f"Host {access.job} {own_name}" if number == 0 else f"Host {own_name}",
            f"  HostName {task.host}",
            f"  Port {task.port}",
            f"  User {task.user}",
            *(f'  {name} "{value}"' if os.sep in value else f"  {name} {value}" for name, value in options),
        ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
