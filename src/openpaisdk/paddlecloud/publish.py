"""``paddlecloud publish``: addresses of files that need no login."""

from __future__ import annotations

import sys

from openpaisdk.output import print_notice, table
from openpaisdk.paddlecloud.connection import open_datacenter
from openpaisdk.paddlecloud.flags import FlagCommand
from openpaisdk.paddlecloud.pfs_path import datacenter_of

PUBLISH = FlagCommand(
    "publish",
    "[path]",
    "give a file an address that needs no login",
    "paddlecloud publish /pfs/datacenter1/home/user1/model.tar\npaddlecloud publish",
    count=(0, 1),
    details="Without a path: lists your published files. An address is a secret: it is all one needs.",
)


def publish(argv: list[str]) -> int:
    """``paddlecloud publish [path]``"""
    args = PUBLISH.parse(argv)
    path = args.positional[0] if args.positional else ""
    client = open_datacenter(datacenter_of([path] if path else [], args.text("datacenter")), print_notice)
    if path:
        sys.stdout.write(client.publish(path) + "\n")
    else:
        sys.stdout.write(table(("FILE", "URL"), client.published()) + "\n")
    return 0
