"""Paths of this checkout."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
REPOSITORY = TESTS.parent
FILES_OF_0_5 = TESTS / "support" / "files_of_0_5"
