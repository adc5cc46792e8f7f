"""Pages of the documentation are listed in its index, and can be reached from the README."""

import re
from pathlib import Path

from support.paths import REPOSITORY


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
