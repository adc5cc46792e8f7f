"""Shell blocks of all user pages run on a fresh machine; blocks that need the network are marked."""

import re
from pathlib import Path

import pytest

from support.paths import REPOSITORY
from support.ports import free_port

BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```bash\n(.*?)```", re.DOTALL)
PAGES = (
    "hello-world",
    "how-to",
    "results-and-runtime",
    "from-program-to-job",
    "short-job-files",
    "interactive-work",
    "notebooks",
)
# Run by the tests of their subject, or without anything to run.
ELSEWHERE = {
    "README",
    "running-a-cluster",
    "rest-api",
    "storage",
    "how-to-use-storage",
    "slurm",
    "containers",
    "coming-from-slurm",
    "coming-from-skypilot",
    "coming-from-submitit",
    "coming-from-openpai",
    "training-data",
    "cloud-storages",
}


# What a block prints, by a text in it.
PRINTED = {
    "print(file.read().decode().strip())": "picture 1\npicture 2\npicture 3\n",
    "cat img/*.txt": "picture 1\npicture 2\npicture 3\n",
    "pai copy pai://local/jobs/sweep/output/two -": "2\n",
    "pai listdir pai://local/jobs/beside/source": "beside.py\n",
    "pai logs child": "~parent\n",
    "pai exec worker -- cat progress": "41\nI am task 0, rate 0.1\n",
    "exit 7": "status 7\nprogress\n",
    "tee note": "from here\nfrom here\n",
    "pai notebook-job -j first": "first\ntrain.executed.ipynb\ntrain.html\ntrain.ipynb\n"
    "step 0  rate 0.5\nstep 1  rate 0.25\n",
    "pai notebook-job -f -p steps=1": "step 0  rate 2.0\n",
    "pai notebook-job -j sweep": "main-1/train.executed.ipynb",
    "pai notebook-job -j broken": "broken\nstatus 3\nZeroDivisionError: division by zero\n"
    "Cell 2 of broken.ipynb failed.\nbroken.executed.ipynb\nbroken.html\nbroken.ipynb\n",
    "pai copy pai://local/jobs/filed_there/output/r -": "result\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs(new_user, page: str) -> None:
    blocks = [
        block
        for not_run, block in BLOCK.findall((REPOSITORY / "docs" / f"{page}.md").read_text())
        if not not_run
    ]
    assert blocks
    for block in _with_free_ports(blocks):
        done = new_user.run(["bash", "-euo", "pipefail", "-c", block])
        assert done.status == 0, (block, done)
        for text, printed in PRINTED.items():
            assert text not in block or printed in done.out, (block, done)


def _with_free_ports(blocks: list[str]) -> list[str]:
    """The ports that a page names may be in use on this machine."""
    ports = {name: str(free_port()) for name in ("18765", "8765")}
    return [re.sub(r"\b(?:18765|8765)\b", lambda named: ports[named[0]], block) for block in blocks]


def test_every_page_with_shell_blocks_is_run() -> None:
    pages = {path.stem for path in (REPOSITORY / "docs").glob("*.md") if BLOCK.search(path.read_text())}
    assert pages <= {*PAGES, *ELSEWHERE, "local-cluster", "job-protocol", "command-line-references"}, pages


# Each block that no test runs, by its page, and why.
NOT_RUN = {
    ("README.md", "needs a cluster elsewhere"),
    ("docs/from-program-to-job.md", "needs docker and a registry"),
    ("docs/hello-world.md", "installs from the network"),
    ("docs/how-to.md", "needs a cluster elsewhere"),
    ("docs/how-to-use-storage.md", "needs an HDFS and a mounted disk"),
    ("docs/results-and-runtime.md", "installs from the network"),
    (
        "examples/paddlecloud/README.md",
        "it installs 500 MB; its test has an environment that is installed once on a machine",
    ),
    ("examples/digits/README.md", "PORT is the one in the log"),
    ("examples/frameworks/README.md", "pulls an image from a registry"),
}


def test_blocks_that_are_not_run_are_listed() -> None:
    pages = [
        REPOSITORY / "README.md",
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "examples").rglob("*.md"),
    ]
    marked = [
        (str(path.relative_to(REPOSITORY)), why)
        for path in pages
        for why in re.findall(r"<!-- not run: ([^\n]+) -->", path.read_text())
    ]
    assert sorted(marked) == sorted(NOT_RUN)


def test_every_page_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [REPOSITORY / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#:]+\.md)", page.read_text())
        todo += [(page.parent / link).resolve() for link in links]
    pages = set((REPOSITORY / "docs").glob("*.md"))
    assert pages <= seen, sorted(path.name for path in pages - seen)


def test_index_lists_every_page_once() -> None:
    index = (REPOSITORY / "docs/README.md").read_text()
    listed = re.findall(r"\]\(([\w-]+\.md)\)", index)
    pages = {path.name for path in (REPOSITORY / "docs").glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(pages)


def test_anchors_of_links_exist() -> None:
    for page in (REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")):
        for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text()):
            text = (page.parent / target).read_text() if target else page.read_text()
            titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
            assert anchor in anchors, (page.name, target, anchor)
