"""The reference of `paddlecloud` is generated from its commands."""

from openpaisdk.paddlecloud.commands import ENTRY_POINTS
from openpaisdk.paddlecloud.reference import reference
from support.paths import REPOSITORY


def test_reference_is_current() -> None:
    page = REPOSITORY / "docs/paddlecloud-references.md"
    assert page.read_text() == reference(), "regenerate it with: make docs"


def test_reference_is_complete() -> None:
    page = reference()
    assert all(f"### paddlecloud {name}\n" in page for name in ENTRY_POINTS)
    assert "| `-parallelism, -p N` | number of trainers (default: 1) |" in page
    assert "Also `paddlecloud cp`." in page
