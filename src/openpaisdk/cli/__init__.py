"""Command lines ``pai`` and ``opai``: parse, call, print. A command's module is imported when it is called.

May import every package of the SDK, but only inside the command that needs it: an import here costs time in
every ``pai`` command.
"""

from __future__ import annotations

import sys


def pai() -> int:
    """The command line ``pai <command> ...``."""
    from openpaisdk.cli.main import exit_at_once, run

    return exit_at_once(run(sys.argv[1:]))


def opai() -> int:
    """OpenPAI's command line ``opai <scene> <action> ...``, translated to ``pai``."""
    from openpaisdk.cli.main import exit_at_once, run
    from openpaisdk.cli.opai_compat import translate_opai

    return exit_at_once(run(sys.argv[1:], translate_opai))
