"""`hdfs-mount` in a task: the cluster's storage as a folder, over WebHDFS and FUSE."""

import errno
import hashlib
import io
import os
import random
from pathlib import Path

import pytest

from pairuntime.task.hdfs_mount import WebHdfsFileSystem
from pairuntime.task.hdfs_paths import HdfsCommandError, resolve
from pairuntime.task.webhdfs import WebHdfsError
from support.cli_user import shared_user_fixture, user_fixture  # noqa: F401
from support.fuse import fuse_fixture  # noqa: F401

# As the scripts of OpenPAI's examples use it: in the foreground, with the address of the name node.
SCRIPT = """
exec 2>&1
mkdir storage again
hdfs-mount "${{PAI_DEFAULT_FS_URI#hdfs://}}" storage &
for _ in $(seq 600); do mountpoint -q storage && break; sleep 0.1; done
cd storage{there}
md5sum large | cut -d' ' -f1
printf 'from a task' > new
hdfs dfs -cat {there}/new; echo
mv new renamed && cat renamed && rm renamed
mkdir folder && rmdir folder
cd - > /dev/null
hdfs-mount --background --read-only {there} again
ls again
touch again/file
hdfs-mount {there} again
hdfs-mount {there}/none storage
hdfs-mount --strange {there} again 2>&1 | head -1
"""


@pytest.mark.usefixtures("fuse")
def test_task_mounts_the_storage_and_the_mount_ends_with_it(user, tmp_path) -> None:
    content = random.Random(1).randbytes(11 << 20)  # more than is read ahead
    (tmp_path / "large").write_bytes(content)
    there = f"/mounts/{tmp_path.name}"
    assert user.pai("copy", str(tmp_path / "large"), f"pai://local/0{there}/large").status == 0
    (user.project / "job.sh").write_text(SCRIPT.format(there=there))
    done = user.pai("sub", "--follow", "--", "bash", "job.sh")
    lines = [line for line in done.out.splitlines() if line]
    assert lines == [
        hashlib.md5(content).hexdigest(),
        "from a task",
        "from a task" + "large",
        "touch: cannot touch 'again/file': Read-only file system",
        "hdfs-mount: again is mounted already. Unmount it first: umount again",
        "hdfs-mount: storage is mounted already. Unmount it first: umount storage",
        "hdfs-mount: there is no option --strange.",
    ], done
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(user.home) not in mounts, mounts


class StorageThatFillsUp:
    """Takes a part of each upload, and then has no space."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.began: list[str] = []

    def with_own_connections(self) -> "StorageThatFillsUp":
        return self

    def put_file(self, source: object, path: str) -> int:
        self.files.add(path)
        self.began.append(path)
        raise WebHdfsError("There is no space left.", status=507)

    def delete(self, path: str) -> bool:
        self.files.remove(path)
        return True


def test_failed_upload_leaves_nothing_and_no_two_uploads_share_a_name() -> None:
    storage = StorageThatFillsUp()
    files = WebHdfsFileSystem(storage, "/folder")
    for _ in range(2):
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            files.write("/" + "ä" * 127, io.BytesIO(b"x"), 0, 0o644)
    assert storage.files == set()
    first, second = storage.began
    assert first != second
    assert all(path.startswith("/folder/.") and len(os.fsencode(path)) < 255 for path in storage.began)


def test_alias_that_only_the_users_machine_knows_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no host: connections to it would be retried for minutes."""
    monkeypatch.setenv("PAI_REST_SERVER_URI", "http://10.0.0.1:9186")
    with pytest.raises(HdfsCommandError, match=r"`pai://local/0/x': .* is called here: pai://here/"):
        resolve("pai://local/0/x")
