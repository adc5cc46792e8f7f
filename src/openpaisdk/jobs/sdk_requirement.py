"""Requirement by which a task installs this SDK: ``container-sdk-branch`` as version, branch, path or URL."""

from __future__ import annotations

import json
import os
import re

from paiprotocol.errors import UsageError

DISTRIBUTION = "openpaisdk"
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.post|\.dev)\d+)*(\+[\w.]+)?")
_NAMED = "pai set container-sdk-branch=git+https://HOST/PATH@{}"
_SPECIFIERS = ("=", "<", ">", "~=", "!")
_FILES = (".whl", ".tar.gz", ".zip")


def sdk_requirement(value: str, *, shares_machine: bool) -> str:
    """The requirement for pip. A path is one that the task sees; a branch is one of this SDK's repository.

    ``shares_machine``: tasks run on this machine. On another one, its paths mean nothing.
    """
    if "://" in value:
        return value
    if value.startswith(_SPECIFIERS):
        return DISTRIBUTION + value
    if value.startswith("~") and not shares_machine:
        raise UsageError(
            f"container-sdk-branch={value} is a path on this machine, where the job does not run.",
            hint="Name a path that the tasks see, a version, or a URL: pai set container-sdk-branch=VALUE",
        )
    if value.startswith(("/", ".", "~")) or value.endswith(_FILES):
        return os.path.expanduser(value)
    if _VERSION.fullmatch(value):
        return f"{DISTRIBUTION}=={value}"
    repository = _installed_from()
    if not repository:
        raise UsageError(
            f"container-sdk-branch={value} names a branch, and this SDK was not installed from a repository.",
            hint=f"Name the repository, too: {_NAMED.format(value)}",
        )
    if "+file://" in repository and not shares_machine:
        raise UsageError(
            f"container-sdk-branch={value} names a branch of {repository.partition('://')[2]}, the folder "
            "that this SDK was installed from, and the job does not run on this machine.",
            hint=f"Push the branch, and name its repository: {_NAMED.format(value)}",
        )
    return f"{repository}@{value}"


def repository_of(direct_url: str) -> str:
    """The repository in a ``direct_url.json``, where pip records an origin; empty if it names none."""
    origin = json.loads(direct_url) if direct_url else {}
    url = str(origin.get("url") or "")
    if vcs := (origin.get("vcs_info") or {}).get("vcs"):
        return f"{vcs}+{url}"
    is_folder = "dir_info" in origin and url.startswith("file://")
    return f"git+{url}" if is_folder and os.path.exists(url.removeprefix("file://") + "/.git") else ""


def _installed_from() -> str:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return repository_of(distribution(DISTRIBUTION).read_text("direct_url.json") or "")
    except PackageNotFoundError:
        return ""
