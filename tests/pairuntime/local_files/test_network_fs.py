"""Network file systems, by the text of the kernel's mount table."""

import pytest

from pairuntime.local_files.network_fs import network_type

MOUNTS = """\
29 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 29 0:50 / /home rw,relatime shared:1 - nfs4 server:/home rw
31 30 0:51 / /home/with\\040space rw - ext4 /dev/vdb rw
32 29 0:52 / /mnt/s rw - fuse.sshfs me@host:/ rw
33 29 0:53 / /mnt/n rw - fuseblk /dev/sdc rw
34 29 0:54 / /data rw - xfs /dev/sdd rw
35 34 0:55 / /data rw - cifs //server/data rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/root", ""),
        ("/home/me", "nfs4"),
        ("/home/with space/x", ""),
        ("/homes", ""),
        ("/mnt/s/x", "fuse.sshfs"),
        ("/mnt/n", ""),
        ("/data/x", "cifs"),
    ],
)
def test_network_file_system_is_detected(path: str, kind: str) -> None:
    assert network_type(path, MOUNTS) == kind
