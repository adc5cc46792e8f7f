"""Paths of PaddleCloud's file system: ``/pfs/<datacenter>/home/<user>/…`` and ``/pfs/<datacenter>/public/…``.

A datacenter is its user's name for a cluster, so every name means this one. A home is the user's home folder
on the cluster's own storage; the public folder is one that administrators fill.
"""

from __future__ import annotations

import posixpath

import msgspec

from paicluster.files.ownership import HOMES
from paicluster.services.job_packages import PACKAGES
from paiprotocol.errors import Forbidden, InvalidParameters

PUBLIC_FOLDER = "/public"
_ROOT = "/pfs/"


class CloudPath(msgspec.Struct, frozen=True):
    """A path that its user may use. ``stored`` is the path on the cluster's storage."""

    cloud: str
    stored: str
    is_public: bool

    @property
    def is_root(self) -> bool:
        """Whether it is a whole home, or the whole public folder."""
        return len(self.cloud.rstrip("/").split("/")) <= (4 if self.is_public else 5)

    def child(self, name: str) -> CloudPath:
        return CloudPath(f"{self.cloud.rstrip('/')}/{name}", f"{self.stored}/{name}", self.is_public)


def home_path(datacenter: str, user: str) -> str:
    return f"{_ROOT}{datacenter}/home/{user}"


def package_path(datacenter: str, user: str, job: str) -> str:
    """Where clients upload the package of a job, and where its outputs go."""
    return f"{home_path(datacenter, user)}/jobs/{job}"


def package_copy_path(datacenter: str, user: str, folder: str) -> str:
    """Where the package of one job lies, as it was at the submission."""
    return f"{home_path(datacenter, user)}/{PACKAGES}/{folder}"


def datacenter_of(path: str) -> str:
    """The datacenter in a path; empty if there is none."""
    parts = path.split("/")
    return parts[2] if path.startswith(_ROOT) and len(parts) > 2 else ""


def resolve(path: str, user: str) -> CloudPath:
    """The path on the storage; errors are sentences of PaddleCloud's file server.

    A path with ``..`` is refused: what it means to the client is not what it would mean to the storage.
    """
    if not path.startswith(_ROOT):
        raise InvalidParameters(f"should be pfs path:{_shown(path)}")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise Forbidden(f"what you request is unauthorized: '..' is not allowed in {_shown(path)}.")
    cloud = "/" + "/".join(names)
    if len(names) > 2 and names[2] == "public":
        return CloudPath(cloud, posixpath.join(PUBLIC_FOLDER, *names[3:]), is_public=True)
    if len(names) < 4 or names[2] != "home":
        raise InvalidParameters(
            f"the path should be in format eg:/pfs/datacentername/home/{user}/, not {_shown(path)}."
        )
    if names[3] != user:
        raise Forbidden(f"what you request is unauthorized: {_shown(path)} is not in the home of {user}.")
    return CloudPath(cloud, "/" + "/".join((HOMES, user, *names[4:])), is_public=False)


def _shown(path: str) -> str:
    shown = path if len(path) <= 200 else path[:200] + "…"
    return shown.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
