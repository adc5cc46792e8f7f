"""``pai`` and ``opai``: parse, call, print. One file for each family of commands, loaded when used.

May use every room of the SDK, and only inside the command that needs it: what is imported here is paid for by
everybody who types ``pai``.
"""

from __future__ import annotations

import sys


def pai() -> int:
    """The command line ``pai <command> ...``."""
    from openpaisdk.cli.main import run

    return run(sys.argv[1:])


def opai() -> int:
    """The older command line ``opai <scene> <action> ...``, translated."""
    from openpaisdk.cli.main import run
    from openpaisdk.cli.opai_compat import translate_opai

    return run(sys.argv[1:], translate_opai)
