"""Modules that are too expensive to import, and what a command imports."""

import sys

HEAVY = {
    "asyncio",
    "concurrent.futures",
    "dataclasses",
    "email",
    "http",
    "importlib.metadata",
    "inspect",
    "logging",
    "msgspec",
    "pathlib",
    "shutil",
    "sqlalchemy",
    "ssl",
    "starlette",
    "subprocess",
    "tarfile",
    "tempfile",
    "threading",
    "typing",
    "urllib",
    "uuid",
    "yaml",
}


MEDIUM = {"argparse", "json", "socket", "hashlib", "difflib"}


OTHER_PACKAGES = {"openpaisdk.protocol", "openpaisdk.jobs.sources", "paicluster", "pairuntime"}


RUN = """
import sys
before = set(sys.modules)
from openpaisdk.cli.main import run
status = run(sys.argv[1:])
sys.stdout.flush()
sys.stderr.write("\\nIMPORTED " + " ".join(sorted(set(sys.modules) - before)) + "\\n")
sys.exit(status)
"""


def imported(user, *words: str) -> set[str]:
    done = user.run([sys.executable, "-c", RUN, *words])
    assert done.status == 0, done
    return set(done.err.rpartition("IMPORTED ")[2].split())
