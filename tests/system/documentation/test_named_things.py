"""What pages name exists: files of this repository, links and their anchors, commands and their options."""

from __future__ import annotations

import argparse
import importlib
import re
import subprocess
from collections.abc import Iterator
from functools import cache

import pytest

from openpaisdk.cli.commands import ALIASES, ENTRY_POINTS
from openpaisdk.cli.parser import get_parser
from openpaisdk.paddlecloud import commands as paddlecloud
from openpaisdk.paddlecloud.flags import COMMON_FLAGS
from paicluster.cli import _COMMANDS
from pairuntime.task import hdfs_cli
from support.page_blocks import RUN_LANGUAGES, page_paths, read_page
from support.paths import REPOSITORY

CONTRIBUTING = [
    "CONTRIBUTING.md",
    *sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "docs/contributing").glob("*.md")),
]
PAGES = [*page_paths(), *CONTRIBUTING]
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)

# -- files -------------------------------------------------------------------------------------------------

SOURCE_SUFFIXES = (".py", ".ts", ".tsx", ".ipynb", ".toml")
# Made by a user or a build, or a pattern for names.
NOT_IN_THE_REPOSITORY = {
    "tests/ut_init.sh",
    "src/paicluster/api/portal/files",
    "store/migrations/versions/000N_cost.py",
    "pages/NAME.tsx",
    "train.executed.ipynb",
}


@cache
def files() -> frozenset[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(listed.stdout.splitlines())


@cache
def ends_of_paths() -> frozenset[str]:
    """Every file and folder, also by the last parts of its path."""
    found = set()
    for file in files():
        parts = file.split("/")
        for first in range(len(parts)):
            for last in range(first + 1, len(parts) + 1):
                found.add("/".join(parts[first:last]))
    return frozenset(found)


@cache
def top_folders() -> tuple[str, ...]:
    return tuple(sorted({f"{file.partition('/')[0]}/" for file in files() if "/" in file}))


def named_files(page: str) -> Iterator[str]:
    text = (REPOSITORY / page).read_text()
    words = [code for code in INLINE.findall(FENCED.sub("", text)) if re.fullmatch(r"[\w./-]+", code)]
    for word in words:
        if word.endswith(SOURCE_SUFFIXES) and not word.startswith((".", "/")):
            yield word
    for word in (*words, *re.findall(r"[\w./-]+", "".join(FENCED.findall(text)))):
        if word.startswith(top_folders()) and page not in ("README.md",):
            yield word.rstrip("/.")


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page: str) -> None:
    missing = {name for name in named_files(page) if name not in ends_of_paths()} - NOT_IN_THE_REPOSITORY
    assert not missing


# -- links -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_links_and_their_anchors_exist(page: str) -> None:
    path = REPOSITORY / page
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", path.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        target, _, anchor = link.partition("#")
        there = path.parent / target if target else path
        assert there.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
            assert anchor in anchors, link


# -- commands and options ----------------------------------------------------------------------------------

OPTION = re.compile(r"(?<![\w-])(--?[a-zA-Z][\w-]*)")


@cache
def pai_options(command: str) -> frozenset[str]:
    return frozenset(get_parser(ALIASES.get(command, command))._option_string_actions)


@cache
def paicluster_options(words: tuple[str, ...]) -> frozenset[str] | None:
    """Options of a command, of one of a family (`user add`), or None if there is no such command."""
    if words[0] not in _COMMANDS:
        return None
    module, add_options, _, _ = _COMMANDS[words[0]]
    parser = argparse.ArgumentParser()
    found = getattr(importlib.import_module(f"paicluster.cli.{module}"), add_options)
    (found.options if add_options == "group" else found)(parser)
    families = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not families:
        return frozenset(parser._option_string_actions)
    if len(words) == 1:
        return frozenset(
            option for verb in families[0].choices.values() for option in verb._option_string_actions
        )
    verb = families[0].choices.get(words[1])
    return frozenset(verb._option_string_actions) if verb else None


def paddlecloud_options(command: str) -> set[str]:
    command = paddlecloud.ALIASES.get(command, command)
    if command not in paddlecloud.ENTRY_POINTS:  # a collection of commands
        command = next(name for name in paddlecloud.ENTRY_POINTS if name.startswith(f"{command} "))
    names = {name for flag in COMMON_FLAGS for name in flag.names} | {"v", "logtostderr", "h", "help"}
    flags = paddlecloud.command_of(command).flags
    return {
        f"{dash}{name}" for name in names | {n for flag in flags for n in flag.names} for dash in ("-", "--")
    }


def command_lines(page: str) -> Iterator[str]:
    """Commands of ours in the text of a page, and in its blocks; without what follows a pipe."""
    text = (REPOSITORY / page).read_text()
    yield from INLINE.findall(FENCED.sub("", text))
    for block in read_page(page).blocks:
        if block.language in (*RUN_LANGUAGES, "text"):
            for line in block.text.replace("\\\n", " ").splitlines():
                yield re.sub(r"^ *(\$ |%|until |!)?", "", line)


def arguments(rest: str) -> str:
    """What a command reads itself: not the command after `--`, not quoted texts, pipes or comments."""
    unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", "Q", rest)
    return re.split(r" -- | \| | #|&&|\|\||;|>", f"{unquoted} ")[0]


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page: str) -> None:
    for line in command_lines(page):
        if found := re.match(r"pai ([a-z][a-z-]*)(.*)", line):
            command, rest = found[1], arguments(found[2])
            assert command in ENTRY_POINTS or command in ALIASES, line
            unknown = set(OPTION.findall(rest)) - pai_options(command)
            assert not unknown, (line, unknown)
        elif found := re.match(r"paicluster ([a-z-]+)(?: ([a-z-]+))?(.*)", line):
            options = paicluster_options(tuple(word for word in found.groups()[:2] if word))
            assert options is not None, line
            assert set(OPTION.findall(arguments(found[3]))) <= options, line
        elif found := re.match(r"paddlecloud (pfs [a-z]+|file [a-z]+|[a-z]+)(.*)", line):
            unknown = set(OPTION.findall(arguments(found[2]))) - paddlecloud_options(found[1])
            assert not unknown, (line, unknown)


# Of other programs, by the page that names them alone.
FOREIGN_OPTIONS = {
    "docs/command-line-references.md": "--fol",  # an abbreviation, which is refused
    "docs/compatibility.md": "--toke",
    "docs/containers.md": "-put",
    "docs/contributing/architecture.md": "--ntasks-per-node",  # of sbatch
    "docs/how-to-use-storage.md": "--cap-add --device",
    "docs/in-a-notebook.md": "--in --out",  # of `%%pai`
    "docs/install.md": "--break-system-packages",  # of pip
    "docs/interactive-work.md": "-D -F -W",
    "docs/results-and-runtime.md": " ".join(f"-{name}" for name in hdfs_cli.COMMANDS),
    "docs/security.md": "-per-address",
    "docs/storage.md": "-L",
    "docs/contributing/exec-and-forward.md": "--unbuffered -D -L -W",
    "docs/contributing/performance.md": "-I -S",
    "docs/contributing/tests.md": "--keep --older --without-pip",  # the first two: of `make chaos`
}


@cache
def all_options() -> set[str]:
    found = {option for command in ENTRY_POINTS for option in pai_options(command)}
    for command in _COMMANDS:
        found |= paicluster_options((command,)) or set()
    for command in paddlecloud.ENTRY_POINTS:
        found |= paddlecloud_options(command)
    return found


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "coming-from" not in page and "slurm" not in page]
)
def test_options_without_a_command_exist(page: str) -> None:
    """On pages about other tools they are those of the tools."""
    text = FENCED.sub("", (REPOSITORY / page).read_text())
    named = {
        option
        for code in INLINE.findall(text)
        if code.startswith("-")
        for option in OPTION.findall(arguments(f" {code}"))
    }
    assert named - all_options() <= set(FOREIGN_OPTIONS.get(page, "").split())
