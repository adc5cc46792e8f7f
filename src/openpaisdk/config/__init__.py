"""Settings in ``~/.openpai``: the clusters, and layered defaults of options.

Precedence: command line, ``./.openpai``, ``~/.openpai``, built-in value. Imports only ``errors``.
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
