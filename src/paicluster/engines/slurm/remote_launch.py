"""Remote launch on nodes without a shared file system: the batch script, which downloads the rest."""

from __future__ import annotations

import secrets
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from pairuntime.reports import bundle_download, server_connection
from pairuntime.slurm import bootstrap, node, stale_folders


@dataclass(frozen=True, slots=True)
class RemoteLaunch:
    """How the tasks of a gang connect to the server: its URL, a ticket, and their folder on a node."""

    url: str
    root: Path
    ticket: str = field(repr=False)
    # CA certificates of the server, in addition to those of the node's system.
    ca_certificates: str = field(default="", repr=False)

    @classmethod
    def new(cls, url: str, node_folder: Path, ca_certificates: str = "") -> RemoteLaunch:
        # The name cannot be guessed, so no other process can have created the folder.
        root = node_folder / f"{stale_folders.PREFIX}{secrets.token_hex(8)}"
        return cls(url, root, secrets.token_urlsafe(32), ca_certificates)

    def of(self, component: int, rank: int) -> Path:
        """The folder of one of several tasks: each has its own, even on the same node."""
        return Path(f"{self.root}-{component}-{rank}")


def remote_batch_script(
    remote: RemoteLaunch, python: str, *, uid: str, archive: Path, folder: Path, alone: bool
) -> str:
    """Script of a remote launch. ``archive``, ``folder``: runtime and gang's folder below the root."""
    config = {
        "url": remote.url,
        "authority": remote.ca_certificates,
        "ticket": remote.ticket,
        "root": str(remote.root),
        "gang": uid,
        "archive": str(archive),
        "folder": str(folder),
        "alone": alone,
    }
    modules = (
        Path(str(module.__file__)).read_text()
        for module in (node, server_connection, bundle_download, bootstrap)
    )
    text = "\n".join((*modules, f"main({config!r})\n"))
    # In a variable, not on a command line, which every user of a node can see.
    start = shlex.join([python, "-I", "-S", "-c", node.BOOTSTRAP_PROGRAM])
    return f"#!/bin/sh\nexport {node.BOOTSTRAP_VARIABLE}={shlex.quote(text)}\nexec {start}\n"
