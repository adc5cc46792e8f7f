"""Paths in the cloud: ``/pfs/DATACENTER/home/USER/...`` and ``/pfs/DATACENTER/public/...``."""

from __future__ import annotations

import posixpath

from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = "/pfs/"
_HINT = "The form is /pfs/DATACENTER/home/USER/...; DATACENTER is a name of ~/.paddle/config."
_GLOB = frozenset("*?[")


def is_pfs(path: str) -> bool:
    """Whether a path is in the cloud and not on this machine."""
    return path.startswith(ROOT) or path == ROOT.rstrip("/")


def check_pfs(path: str) -> str:
    """The path without doubled and trailing slashes. ``..`` and incomplete paths are errors."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not is_pfs(path) or len(parts) < 3 or parts[2] not in ("home", "public"):
        raise UsageError(f"{path!r} is not a path in the cloud.", hint=_HINT)
    if parts[2] == "home" and len(parts) < 4:
        raise UsageError(f"{path!r} names no user.", hint=_HINT)
    if ".." in parts:
        raise UsageError(f"{path!r} contains '..', which paths in the cloud cannot.", hint=_HINT)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{path!r} is not valid UTF-8, as names in the cloud must be.") from None
    return "/" + "/".join(parts)


def check_below_root(path: str) -> None:
    """UsageError for a whole home or the whole public folder, which no command deletes."""
    parts = check_pfs(path).split("/")[1:]
    if len(parts) <= (4 if parts[2] == "home" else 3):
        what = "a whole home" if parts[2] == "home" else "the whole public folder"
        raise UsageError(
            f"{path} is {what}, which is not deleted.",
            hint=f"Name what is in it; '{path.rstrip('/')}/*' is everything.",
        )


def datacenter_of(paths: Sequence[str], chosen: str = "") -> str:
    """The datacenter that all paths are in; ``chosen`` is the one of ``-datacenter``, or empty."""
    names = {check_pfs(path).split("/")[2] for path in paths} | ({chosen} if chosen else set())
    if len(names) > 1:
        raise UsageError(
            f"These are several datacenters: {', '.join(sorted(names))}.",
            hint="Use one command for each of them.",
        )
    return "".join(names)


def has_glob(path: str) -> bool:
    return not _GLOB.isdisjoint(path)


def base_name(path: str) -> str:
    return posixpath.basename(path.rstrip("/"))
