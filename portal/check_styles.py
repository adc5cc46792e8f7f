"""Check of the portal's style sheets: each rule belongs to one file, and each class is used.

The first part of a selector names what it belongs to: `.jobs td.name` belongs to the file that has `jobs`. No
two files have the same name, so no rule meets by accident what another file has. Rules of elements are in
`src/style` only.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_SOURCES = Path(__file__).parent / "src"
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_KEYFRAMES = re.compile(r"@keyframes [\w-]+ \{(?:[^{}]*\{[^{}]*\})*\s*\}")
_CLASS = re.compile(r"\.([a-zA-Z][\w-]*)")
# Classes, attributes of scripts, and ranges of text that scripts highlight.
_NAME = re.compile(r"\.([a-zA-Z][\w-]*)|\[(data-[\w-]+)|::highlight\(([\w-]+)")
_FIRST_PART = re.compile(r"(?:[^\s>+~(\[]|\((?:[^()]|\([^()]*\))*\)|\[[^\]]*\])+")
# Of uPlot, xterm, and the highlighter of Lezer.
_OF_LIBRARIES = ("u-", "xterm", "tok-")
# Cells have the name of their column, for tests and for rules to come.
_COLUMN = "c-"
_STRING = re.compile(r'"([^"\n]*)"|`([^`]*)`')
_CLASS_ATTRIBUTE = re.compile(r'\bclass(?:Name)? ?= ?(?:"([^"]*)"|\{`([^`]*)`\})')


def selectors(text: str) -> Iterator[str]:
    """Of all rules, also those within `@media`."""
    for prelude in re.findall(r"([^{};]+)\{", _KEYFRAMES.sub("", _COMMENT.sub("", text))):
        if not prelude.strip().startswith("@"):
            yield from (one.strip() for one in re.split(r",(?![^()]*\))", prelude))


def owned_names(selector: str) -> list[str]:
    """Names in the first part of a selector; in what follows it, where the selector is `:has(+ .other)`."""
    first = _FIRST_PART.match(selector)
    part = first.group() if first else ""
    if has := re.search(r":has\((.*)\)", part):
        part = has.group(1)
    part = re.sub(r":(?:is|not)\([^)]*\)", "", part)
    return [name for found in _NAME.findall(part) for name in found if name]


def ownership_problems(sheets: dict[str, str]) -> list[str]:
    """Sentences about rules that belong to no file, or to two; the keys are paths below `src`."""
    alone: defaultdict[str, set[str]] = defaultdict(set)
    first: defaultdict[str, set[str]] = defaultdict(set)
    for file, text in sheets.items():
        for selector in selectors(text):
            names = owned_names(selector)
            if len(names) == 1:
                alone[names[0]].add(file)
            for name in names:
                first[name].add(file)
    problems = [
        f"{name} is in {' and '.join(sorted(files))}: begin the rule of one with a class of its own."
        for name, files in sorted(alone.items())
        if len(files) > 1
    ]
    for file, text in sheets.items():
        for selector in selectors(text):
            names = owned_names(selector)
            if not names and file.startswith("style/"):
                continue
            if not any((alone[name] or first[name]) == {file} for name in names) and not any(
                file in alone[name] for name in names
            ):
                problems.append(f"{file}: {selector} begins with no class of this file.")
    return problems


def used_words(sources: dict[str, str]) -> tuple[set[str], set[str]]:
    """Words in strings, and beginnings of words that a script completes (`c-${field}`)."""
    words: set[str] = set()
    beginnings: set[str] = set()
    for text in sources.values():
        for plain, template in _STRING.findall(text):
            words.update(re.findall(r"[\w-]+", plain or template))
            beginnings.update(re.findall(r"([\w-]+-)\$\{", template))
    return words, beginnings


def usage_problems(sheets: dict[str, str], sources: dict[str, str]) -> list[str]:
    """Sentences about classes that have rules and no element."""
    words, beginnings = used_words(sources)
    problems = []
    for file, text in sheets.items():
        for name in sorted({name for one in selectors(text) for name in _CLASS.findall(one)}):
            if name not in words and not name.startswith((*beginnings, *_OF_LIBRARIES)):
                problems.append(f"{file}: no element has the class {name}.")
    known = {name for text in sheets.values() for one in selectors(text) for name in _CLASS.findall(one)}
    for file, text in sources.items():
        written = " ".join(
            re.sub(r"\$\{[^}]*\}", " ", "".join(one)) for one in _CLASS_ATTRIBUTE.findall(text)
        )
        for name in sorted(set(written.split()) - known):
            if not name.startswith(_COLUMN):
                problems.append(f"{file}: no rule has the class {name}.")
    return problems


def main() -> int:
    sheets = {str(file.relative_to(_SOURCES)): file.read_text() for file in sorted(_SOURCES.rglob("*.css"))}
    sources = {str(file.relative_to(_SOURCES)): file.read_text() for file in sorted(_SOURCES.rglob("*.ts*"))}
    imported = set(re.findall(r'@import "\.\.?/([^"]+)"', sheets["style/style.css"]))
    problems = [
        f"{name}: style/style.css does not import it."
        for name in sheets
        if name.removeprefix("style/") not in imported and name != "style/style.css"
    ]
    problems += ownership_problems(sheets) + usage_problems(sheets, sources)
    for one in problems:
        print(f"portal/src/{one}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
