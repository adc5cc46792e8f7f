"""How results print: for people, as JSON, as YAML. Nothing here knows what a job is.

Imported by every command, so it stays small: the YAML and JSON writers are loaded when asked for.
"""

from openpaisdk.output.colour import Palette, palette
from openpaisdk.output.show import FORMATS, print_notice, show, show_all
from openpaisdk.output.table import table
from openpaisdk.output.times import duration, moment

__all__ = [
    "FORMATS",
    "Palette",
    "duration",
    "moment",
    "palette",
    "print_notice",
    "show",
    "show_all",
    "table",
]
