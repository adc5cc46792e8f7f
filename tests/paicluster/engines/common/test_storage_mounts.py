"""Storages of containers: a task never writes to the folder below a mount."""

from __future__ import annotations

import subprocess
from pathlib import Path

from paicluster.engines.common import mount_specs
from paicluster.engines.interface import StorageMount, TaskLaunch
from pairuntime.supervisor.storage_mounts import marker_of


def test_container_without_the_mount_ends_with_a_sentence(tmp_path: Path) -> None:
    target = tmp_path / "it's data"
    target.mkdir()
    mount = StorageMount("sets", "s3", str(target), "PAI_MOUNT_SETS", {})
    task = TaskLaunch("uid", "node", "true", {}, storage_mounts=(mount,))
    script = mount_specs.check_script(task, "attempt") + "echo started\n"

    def run() -> tuple[int, str, str]:
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert run() == (0, "started\n", "")
    (target / marker_of("attempt")).write_text("")
    assert run() == (
        127,
        "",
        "The storage sets is not in the container: the program that starts containers does not see what the "
        "cluster mounts. An administrator has to run both in the same mount namespace.\n",
    )
