"""PaddleCloud's command line ``paddlecloud`` and its client: datacenters, jobs, files under ``/pfs``.

``commands`` lists the commands; each is in the module of its name and is imported when it is called. May
import every package of the SDK; no other package imports this one.
"""

from __future__ import annotations

import sys


def paddlecloud() -> int:
    """The command line ``paddlecloud <command> ...``."""
    from openpaisdk.cli.main import run_program
    from openpaisdk.paddlecloud.commands import call

    return run_program("paddlecloud", sys.argv[1:], call)
