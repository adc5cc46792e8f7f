"""A task finds the storage through its environment and acts as its user."""

from __future__ import annotations

import shlex

import pytest

from support.server_fixture import job
from support.webhdfs_client import StorageCluster, WebHdfsClient

pytestmark = pytest.mark.slow

_PROGRAM = """
import os, urllib.request
where = os.environ["PAI_DEFAULT_FS_URI"].replace("hdfs://", "http://") + "/webhdfs/v1/user"
query = "op=CREATE&data=true&delegation=" + os.environ["PAI_USER_TOKEN"]
for name, user in (("mine", "alice"), ("others", "bob")):
    url = f"{where}/{user}/{name}?{query}"
    try:
        print(name, urllib.request.urlopen(urllib.request.Request(url, b"from a task", method="PUT")).status)
    except urllib.error.HTTPError as error:
        print(name, error.code)
"""


def test_task_writes_with_the_permissions_of_its_user(cluster: StorageCluster, alice: WebHdfsClient) -> None:
    name = "writes-into-storage"
    status = cluster.run(job(name, f"python3 -c {shlex.quote(_PROGRAM)}"))
    assert status["state"] == "SUCCEEDED", cluster.log_of(name)
    assert cluster.log_of(name).split() == [b"mine", b"201", b"others", b"403"]
    assert alice.read("/user/alice/mine") == b"from a task"
    assert alice.json("GETFILESTATUS", "/user/alice/mine")["FileStatus"]["owner"] == "alice"
