"""``~/.openpai``: which clusters there are, and the defaults of every option, in layers.

A setting is looked for on the command line, then in ``./.openpai``, then in ``~/.openpai``, then built in.
"""

from openpaisdk.config.clusters import EMBEDDED_ALIAS, ClusterEntry, ClusterRegistry
from openpaisdk.config.defaults import KEYS, Change, Defaults, change_defaults, read_change

__all__ = [
    "EMBEDDED_ALIAS",
    "KEYS",
    "Change",
    "ClusterEntry",
    "ClusterRegistry",
    "Defaults",
    "change_defaults",
    "read_change",
]
