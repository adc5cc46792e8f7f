from __future__ import annotations

import importlib
import pkgutil
import sys

import bench
from bench.table import Row, print_table

_NOT_PARTS = {"table", "server", "load", "__main__"}


def main(wanted: list[str]) -> int:
    parts = sorted(m.name for m in pkgutil.iter_modules(bench.__path__) if m.name not in _NOT_PARTS)
    unknown = set(wanted) - set(parts)
    if unknown:
        print(
            f"There is no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}.", file=sys.stderr
        )
        return 2
    rows: list[Row] = []
    notes: list[str] = []
    for part in wanted or parts:
        print(f"measuring {part} ...", file=sys.stderr, flush=True)
        module = importlib.import_module(f"bench.{part}")
        rows += module.rows()
        notes += [module.HOW] if hasattr(module, "HOW") else []
    print_table(rows)
    for note in notes:
        print(f"\n{note}")
    return 0 if all(row.verdict == "met" for row in rows) else 1


raise SystemExit(main(sys.argv[1:]))
