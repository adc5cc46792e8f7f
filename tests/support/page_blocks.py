"""Code blocks of the pages of the documentation, and what the pages say about them.

A comment in the line before a block applies to the block; `needs` and `one notebook` apply to the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from support.paths import REPOSITORY

RUN_LANGUAGES = ("bash", "sh", "console", "python")
SHOWN_LANGUAGES = ("", "text", "yaml", "yml", "json", "ini")
_FENCE = re.compile(r"^( *)```(\w*)$")
_COMMENT = re.compile(r"^ *<!-- (.+) -->$")
_NOT_RUN = "not run: "
_NEEDS = "needs: "
SECOND_TERMINAL = "second terminal"
REPEATED = "repeated until it shows this"
NOTEBOOK = "one notebook"
# What a Python program prints, behind the line that prints it.
_PRINTED = re.compile(r"^ *print\(.*\) {2,}# (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of a page; ``shown`` is the output that the page shows for it, None where it shows none."""

    page: str
    line: int
    language: str
    text: str
    shown: str | None = None
    not_run: str = ""
    in_second_terminal: bool = False
    is_repeated: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def steps(self) -> Iterator[tuple[str, str]]:
        """Of a console: each command, and what it prints."""
        for found in re.finditer(r"^\$ (.*(?:\n> .*)*)\n((?:(?!\$ ).*\n)*)", self.text, re.MULTILINE):
            yield found[1].replace("\n> ", "\n"), found[2]


@dataclass(frozen=True)
class Page:
    """A page with its blocks, in their order."""

    path: str
    text: str
    blocks: tuple[Block, ...]
    needs: tuple[str, ...]
    is_notebook: bool

    @property
    def run_blocks(self) -> list[Block]:
        return [block for block in self.blocks if block.language in RUN_LANGUAGES and not block.not_run]


def page_paths() -> list[str]:
    found = [
        REPOSITORY / "README.md",
        *(REPOSITORY / "docs").glob("*.md"),
        *(REPOSITORY / "examples").glob("*/README.md"),
    ]
    return sorted(str(path.relative_to(REPOSITORY)) for path in found)


@cache
def read_page(path: str) -> Page:
    text = (REPOSITORY / path).read_text()
    blocks = tuple(_with_shown_output(list(_blocks(path, text.splitlines()))))
    comments = [found[1] for line in text.splitlines() if (found := _COMMENT.match(line))]
    needs = [comment.removeprefix(_NEEDS) for comment in comments if comment.startswith(_NEEDS)]
    return Page(
        path,
        text,
        blocks,
        tuple(need.strip() for line in needs for need in line.split(",")),
        NOTEBOOK in comments,
    )


def pages() -> list[Page]:
    return [read_page(path) for path in page_paths()]


@dataclass(frozen=True)
class _Fenced:
    block: Block
    follows_block: bool
    """Only an empty line, or none, is between it and the block before."""


def _blocks(page: str, lines: list[str]) -> Iterator[_Fenced]:
    number, ended = 0, -9
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if not opened:
            number += 1
            continue
        indent, first = len(opened[1]), number + 1
        closes = next(n for n in range(first, len(lines)) if lines[n].strip() == "```")
        content = "".join(f"{line[indent:]}\n" for line in lines[first:closes])
        comment = _COMMENT.match(lines[number - 1]) if number else None
        said = comment[1] if comment else ""
        block = Block(
            page,
            number + 1,
            opened[2],
            content,
            not_run=said.removeprefix(_NOT_RUN) if said.startswith(_NOT_RUN) else "",
            in_second_terminal=said == SECOND_TERMINAL,
            is_repeated=said == REPEATED,
        )
        yield _Fenced(block, number - ended <= 2)
        number = ended = closes + 1


def _with_shown_output(found: list[_Fenced]) -> Iterator[Block]:
    for number, fenced in enumerate(found):
        block = fenced.block
        after = found[number + 1] if number + 1 < len(found) else None
        shown = None
        if (
            block.language in RUN_LANGUAGES
            and after
            and after.follows_block
            and after.block.language == "text"
        ):
            shown = after.block.text
        elif block.language == "python" and (printed := _PRINTED.findall(block.text)):
            shown = "".join(f"{line}\n" for line in printed)
        yield Block(**{**block.__dict__, "shown": shown})
