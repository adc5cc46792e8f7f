"""Every shell block of the pages for users is run, on a fresh machine; what needs the outside is marked."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```bash\n(.*?)```", re.DOTALL)
PAGES = ("hello-world", "how-to", "results-and-runtime")
# Run by the tests of their subject, or without anything to run.
ELSEWHERE = {
    "README",
    "running-a-cluster",
    "rest-api",
    "storage",
    "how-to-use-storage",
    "slurm",
    "containers",
}


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_does_what_it_says(newcomer, page: str) -> None:
    blocks = [
        block for not_run, block in BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text()) if not not_run
    ]
    assert blocks
    for block in blocks:
        done = newcomer.run(["bash", "-euo", "pipefail", "-c", block])
        assert done.status == 0, (block, done)


def test_a_page_with_shell_blocks_is_run_by_a_test() -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md") if BLOCK.search(path.read_text())}
    assert pages <= {*PAGES, *ELSEWHERE, "local-cluster", "job-protocol", "command-line-references"}, pages


def test_what_is_not_run_truly_needs_the_outside() -> None:
    reasons = {
        (path.name, reason)
        for path in [*(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("README.md")]
        for reason in re.findall(r"<!-- not run: ([^\n]+) -->", path.read_text())
    }
    assert all(
        "network" in why or "elsewhere" in why or "registry" in why or "needs" in why for _, why in reasons
    )


def test_every_page_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#:]+\.md)", page.read_text())
        todo += [(page.parent / link).resolve() for link in links]
    pages = set((ROOT / "docs").glob("*.md"))
    assert pages <= seen, sorted(path.name for path in pages - seen)
