"""`pai mount`, and storages of tasks, for an account that is not root: by the program `fusermount3`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support import unprivileged_user
from support.cloud_servers import ACCESS_KEY, SECRET_KEY, CloudServer
from support.external_services import debian
from support.fuse import fuse_fixture  # noqa: F401

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service,
    pytest.mark.usefixtures("fuse"),
    pytest.mark.xdist_group("cloud"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account"),
]

BIN = Path(sys.executable).parent
START = (
    f'set -eu\nBIN={BIN}\nexport PATH="$BIN:$PATH"\ncd\ntrap "pai stop-cluster --now >/dev/null 2>&1" EXIT\n'
)
MOUNT = """
pai makedir pai://local/0/kept >/dev/null
mkdir mounted
PATH=$BIN pai mount pai://local/0/kept mounted || echo status $?
pai mount --background pai://local/0/kept mounted
echo content > mounted/file
pai copy pai://local/0/kept/file -
id -u; stat -c %u mounted/file
pai unmount mounted
ls mounted | wc -l
grep -c " $HOME/mounted " /proc/self/mountinfo || true
"""
JOB = """
pai start-cluster >/dev/null; pai stop-cluster --now >/dev/null
home=$(echo ~/.openpai/local/*)
printf 'access-key-id: {key}\\nsecret-access-key: {secret}\\n' > s3.yaml; chmod 600 s3.yaml
cat > $home/cluster.yaml <<END
storages:
  - {{name: home, type: own}}
  - {{name: sets, type: s3, bucket: team-data, prefix: unprivileged, region: us-east-1,
     endpoint-url: '{endpoint}', credentials: $HOME/s3.yaml}}
END
cat > job.yaml <<'END'
protocolVersion: 2
name: mounts
type: job
prerequisites: [{{protocolVersion: 2, name: none, type: dockerimage, uri: host}}]
taskRoles:
  main:
    dockerImage: none
    instances: 1
    resourcePerInstance: {{cpu: 1, memoryMB: 512, gpu: 0}}
    commands:
      - echo here > $PAI_MOUNT_SETS/file; cat $PAI_MOUNT_SETS/file
      - until [ -e $PAI_MOUNT_SETS/seen ]; do sleep 0.1; done
extras: {{storages: [{{name: sets}}]}}
END
timeout 100 pai submit --follow job.yaml &
cat > beside.sh <<'END'
until pai exec mounts -- sh -c 'test -e $PAI_MOUNT_SETS/file' 2>/dev/null; do sleep 0.2; done
# The task ends with it, and may end this command first.
pai exec mounts -- sh -c 'cp $PAI_MOUNT_SETS/file $PAI_MOUNT_SETS/seen' 2>/dev/null || true
END
timeout 100 sh beside.sh
wait
find $home/mounts -mindepth 1 | wc -l
grep -c " $home/mounts" /proc/self/mountinfo || true
"""


@pytest.fixture(autouse=True)
def _fusermount() -> None:
    debian(["fuse3"], commands=["fusermount3"])


def run(script: str) -> str:
    ran = unprivileged_user.run_command(lambda home: ["bash", "-c", START + script])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_ordinary_user_mounts_a_storage() -> None:
    written = run(MOUNT)
    uid = unprivileged_user.UID
    assert f"content\n{uid}\n{uid}\n0\n0\n" in written, written
    assert "Mounted pai://local/0/kept on " in written
    # Without the program there is one sentence, and one about what to do.
    assert "pai: Only root can mount without the program fusermount, which was not found." in written
    assert "Install the package fuse3, or copy the files." in written and "status 2" in written


def test_device_that_only_root_may_open_is_named() -> None:
    script = START + "mkdir mounted; pai mount pai://local/0/ mounted"
    ran = unprivileged_user.run_command(lambda home: ["bash", "-c", script], fuse_mode=0o600)
    assert (ran.returncode, ran.stderr) == (
        2,
        "pai: Only root may open /dev/fuse on this machine, so others cannot mount anything.\n"
        "     An administrator can permit it, as most systems do: chmod 666 /dev/fuse. Or copy the files.\n",
    )


def test_task_of_an_ordinary_user_has_its_storage_in_the_folder_of_the_cluster(
    s3_server: CloudServer,
) -> None:
    written = run(JOB.format(key=ACCESS_KEY, secret=SECRET_KEY, endpoint=s3_server.endpoint))
    place = "which PAI_MOUNT_SETS names: only root can mount at /mnt/sets."
    # The task's own output, then no folder and no mount that is left.
    assert f"{place}\nhere\n0\n0\n" in written, written
