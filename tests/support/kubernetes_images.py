"""Images of a test cluster, as `ctr images import` reads them."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

PAUSE = "local/pause:1"


def write_pause_archive(folder: Path, program: Path) -> Path:
    """The image whose program holds the namespaces of a pod."""
    root = folder / "pause.rootfs.tar"
    with tarfile.open(root, "w") as archive:
        archive.add(program, "pause")
    made = folder / "pause.tar"
    write_archive(made, PAUSE, root, ("/pause",))
    return made


def write_archive(archive: Path, image: str, root: Path, program: Sequence[str]) -> None:
    """A root file system as an image of one layer."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = {
        "architecture": machine,
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": list(program),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(root.read_bytes()).hexdigest()}"]},
    }
    name = image if "." in image.split("/")[0] or image.startswith("localhost/") else f"docker.io/{image}"
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    folder = archive.with_suffix(".parts")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with tarfile.open(archive, "w") as made:
        for name in ("manifest.json", "config.json"):
            made.add(folder / name, name)
        made.add(root, "layer.tar")
    shutil.rmtree(folder)
