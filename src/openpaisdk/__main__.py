"""``python -m openpaisdk``: the command line ``pai``."""

from openpaisdk.cli import pai

raise SystemExit(pai())
