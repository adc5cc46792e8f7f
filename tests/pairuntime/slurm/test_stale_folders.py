"""Stale folders of killed jobs are recognized and removed; folders in use are kept."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairuntime.slurm import stale_folders

_HOLDS = """
import os, sys
from pairuntime.slurm import node
node.lock_folder(sys.argv[1])
if os.fork():
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "pai-0123"
    (path / "work" / "closed").mkdir(parents=True)
    (path / "work" / "closed" / "file").write_text("x")
    (path / "work" / "closed").chmod(0o500)
    (path / "words").write_text("")
    (path / "link").symlink_to(tmp_path)
    yield path
    for folder in path.rglob("closed"):
        folder.chmod(0o700)


def test_folder_is_kept_until_all_forks_have_exited(tmp_path: Path, root: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        stale_folders.remove_stale(str(tmp_path))
        assert (root / "work" / "closed" / "file").exists()
        holder.stdin.close()
        holder.stdout.read()  # until the fork has exited, too
    stale_folders.remove_stale(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


_FETCHES = """
import sys
from pairuntime.slurm import bootstrap
url, root = sys.argv[1:]
bootstrap.main({"url": url, "ticket": "t", "gang": "g", "root": root, "archive": "a", "folder": "f"})
"""


def test_folder_of_a_job_killed_during_download_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "pai-4567"
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with subprocess.Popen([sys.executable, "-c", _FETCHES, url, str(root)]) as fetching:
            asking, _ = server.accept()  # and gets no response
            with asking:
                stale_folders.remove_stale(str(tmp_path))
                assert root.exists()
                fetching.kill()
    stale_folders.remove_stale(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_unlocked_or_other_nodes_folder_is_kept(tmp_path: Path, root: Path) -> None:
    stale_folders.remove_stale(str(tmp_path))
    assert root.exists()
    (root / "lock").write_text("some-other-node")
    stale_folders.remove_stale(str(tmp_path))
    assert (root / "words").exists()


def test_links_and_files_of_that_name_are_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "lock").write_bytes(os.uname().nodename.encode())
    folder = tmp_path / "node"
    folder.mkdir()
    (folder / "pai-link").symlink_to(kept)
    (folder / "pai-file").write_text("")
    stale_folders.remove_stale(str(folder))
    assert (kept / "lock").exists() and (folder / "pai-file").exists()
    stale_folders.remove_stale(str(tmp_path / "nowhere"))
