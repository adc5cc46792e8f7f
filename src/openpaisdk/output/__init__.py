"""Output of results as table, JSON, YAML or CSV. Knows nothing about jobs.

Imported by every command, so it stays small: the YAML and JSON writers are imported when they are used.
"""

from openpaisdk.output.colour import Palette, palette
from openpaisdk.output.show import FORMATS, print_notice, show, show_all, show_csv
from openpaisdk.output.table import table
from openpaisdk.output.terminal import terminal_columns
from openpaisdk.output.times import format_age, format_duration, format_time

__all__ = [
    "FORMATS",
    "Palette",
    "format_age",
    "format_duration",
    "format_time",
    "palette",
    "print_notice",
    "show",
    "show_all",
    "show_csv",
    "table",
    "terminal_columns",
]
