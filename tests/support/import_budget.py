"""Modules that are too expensive to import, and what a command imports."""

import sys
import time

import pytest

from openpaisdk.config.yaml_files import MIN_CACHE_AGE_NS

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


MEDIUM = {"argparse", "json", "socket", "hashlib", "difflib", "pairuntime"}


# Of the runtime, commands share the HTTP client, and most of them nothing else.
OTHER_PACKAGES = {
    "openpaisdk.jobs.sources",
    "paicluster",
    "paiprotocol.jobs",
    "pairuntime.callbacks",
    "pairuntime.fuse",
    "pairuntime.local_files",
    "pairuntime.session",
    "pairuntime.slurm",
    "pairuntime.supervisor",
    "pairuntime.task",
    "pairuntime.transport.call_format",
    "pairuntime.transport.relay",
    "pairuntime.transport.webhdfs",
    "pairuntime.transport.websocket",
    "pairuntime.user_api",
}


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


@pytest.fixture(name="settled_user")
def settled_user_fixture(user):
    """The shared user with cached settings: each command parses a file that a test has just written."""
    written = [file.stat().st_ctime_ns for file in (user.home / ".openpai").glob("*.yaml")]
    remaining_ns = max(written, default=0) + MIN_CACHE_AGE_NS - time.time_ns()
    time.sleep(max(0, remaining_ns + 1_000_000) / 1e9)
    assert user.pai("list-clusters").status == 0
    return user
