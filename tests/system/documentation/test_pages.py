"""Pages of the documentation: every block runs as it is, and prints what its page shows.

The pages of a worker are read on one machine, with one home and one cluster, in the order in which they
happen to come: none may be in the way of another. `make docs-walk` reads all of them on one, in two orders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from support.page_blocks import RUN_LANGUAGES, SHOWN_LANGUAGES, Page, pages
from support.reader import PageError, PageReading, Reader, pages_before, reader_in, unfinished_jobs
from support.reader_services import SERVICES, services

READ = [page for page in pages() if page.run_blocks]
if os.environ.get("PAGES_ORDER") == "reversed":
    READ.reverse()
_QUICK = {"docs/hello-world.md"}


@pytest.fixture(scope="session", name="reader")
def reader_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with reader_in(tmp_path_factory.mktemp("reader")) as reader:
        yield reader


def read(reader: Reader, page: Page) -> None:
    """Read a page once; later calls have its outcome."""
    if page.path not in reader.read:
        for other in pages_before(page):
            read(reader, other)
        reader.read[page.path] = "It did not end."
        with services(reader, page.needs):
            reading = PageReading(reader, page)
            try:
                reading.run()
                reader.read[page.path] = ""
            except PageError as error:
                reader.read[page.path] = str(error)
        left = unfinished_jobs(reader)
        if left:
            reader.sh(f"pai stop-job -a local {left}; pai wait -a local {left} || true")
            reader.read[page.path] += f"\nIt left jobs that have not finished: {left}"
    if reader.read[page.path]:
        pytest.fail(reader.read[page.path], pytrace=False)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.path.removesuffix(".md").removesuffix("/README"),
            marks=[
                *([] if page.path in _QUICK else [pytest.mark.slow]),
                *([pytest.mark.service] if set(page.needs) & {"S3", "curl", "ssh"} else []),
            ],
        )
        for page in READ
    ],
)
def test_every_block_prints_what_the_page_shows(reader: Reader, page: Page) -> None:
    read(reader, page)


# Why a block is not run. A new reason is one that no test can remove.
REASONS = {
    "a test of its own runs the first line in a fresh clone; the second one runs this page",
    "installs 500 MB; a test of its own runs it in an environment that is installed once on a machine",
    "installs from the network",
    "needs 8 GPUs, and an image from a registry",
    "needs Kubernetes",
    "needs Slurm",
    "needs a cluster elsewhere",
    "needs a terminal with a user",
    "needs an HDFS and a mounted disk",
    "needs docker and a registry",
    "pulls an image from a registry",
}
_GENERATED = ("docs/command-line-references.md", "docs/paddlecloud-references.md")
_COMMAND = re.compile(r"^(\$ |pai |paddlecloud |paicluster |pip |curl |python )", re.MULTILINE)


def test_reasons_not_to_run_a_block_are_known() -> None:
    assert {block.not_run for page in pages() for block in page.blocks if block.not_run} == REASONS


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.path)
def test_commands_are_in_blocks_that_are_run(page: Page) -> None:
    """Or say why they are not: no other language hides them."""
    assert {block.language for block in page.blocks} <= {*RUN_LANGUAGES, *SHOWN_LANGUAGES}
    for block in page.blocks:
        if block.language not in RUN_LANGUAGES and page.path not in _GENERATED:
            assert not _COMMAND.search(block.text), block.place


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.path)
def test_needs_of_a_page_are_known(page: Page) -> None:
    assert {need for need in page.needs if not need.endswith(".md")} <= set(SERVICES)
    for other in pages_before(page):
        assert other.run_blocks
