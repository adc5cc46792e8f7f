"""`python -m bench [PART | PART.GROUP]...`: run all benchmarks, some parts, or one group of a part."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from pathlib import Path

import bench
from bench.table import Row, failed_row, print_table

_NOT_PARTS = {"table", "server", "load", "team_load", "probe", "__main__"}


def main(arguments: list[str]) -> int:
    parts = sorted(m.name for m in pkgutil.iter_modules(bench.__path__) if m.name not in _NOT_PARTS)
    unknown = {one.partition(".")[0] for one in arguments} - set(parts)
    if unknown:
        print(
            f"There is no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}.", file=sys.stderr
        )
        return 2
    # An installed package has its bytecode; here the warm-up runs write it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows: list[Row] = []
    notes: dict[str, str] = {}
    for one in arguments or parts:
        part, _, group = one.partition(".")
        module = importlib.import_module(f"bench.{part}")
        groups = getattr(module, "GROUPS", {})
        if group and group not in groups:
            print(f"{part} has no group {group}; it has {', '.join(groups) or 'none'}.", file=sys.stderr)
            return 2
        print(f"measuring {one} ...", file=sys.stderr, flush=True)
        before = _processor_time()
        try:
            rows += module.rows(group) if group else module.rows()
        except Exception as error:
            # One broken part must not lose the rows of all others.
            traceback.print_exc()
            rows.append(failed_row(one, error))
        stolen, spent = (now - then for now, then in zip(_processor_time(), before, strict=True))
        if stolen > spent / 100:
            notes[f"host of {one}"] = (
                f"{one}: the host gave {stolen / spent:.0%} of the processor time to other machines (steal)."
            )
        if hasattr(module, "HOW"):
            notes[part] = module.HOW
    print_table(rows)
    for note in notes.values():
        print(f"\n{note}")
    return 0 if all(row.verdict == "met" or not row.is_measured for row in rows) else 1


def _processor_time() -> tuple[int, int]:
    """Ticks of all processors since boot: stolen by the host, and all that were not idle."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, io_wait, stolen = ticks[3], ticks[4], ticks[7]
    return stolen, sum(ticks) - idle - io_wait


raise SystemExit(main(sys.argv[1:]))
