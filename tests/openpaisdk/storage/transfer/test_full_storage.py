"""Full storage: reported with the largest files, and old files are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.storage import Storage
from paiprotocol.errors import PaiError
from support.server_fixture import Cluster as Served
from support.small_disk import mounted


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with mounted(tmp_path / "disk", "size=12m") as disk:
        home = tmp_path / "home"
        home.mkdir()
        (home / "cluster.yaml").write_text(f"storages:\n- name: home\n  type: own\n  path: {disk}\n")
        server = Served(home)
        try:
            server.start()
            url = "http://{}:{}".format(*server.address)
            yield Storage.of(ClusterClient("small", Endpoint(url, server.user, server.token)), over_http=True)
        finally:
            server.close()


def test_insufficient_space_is_reported_before_the_transfer(storage: Storage, tmp_path: Path) -> None:
    source = tmp_path / "d"
    source.mkdir()
    for i in range(12):
        (source / f"f{i:02}").write_bytes(os.urandom((2 << 20) + i))
    with pytest.raises(PaiError) as refused:
        storage.upload(str(source), "/user/x")
    assert refused.value.code == "StorageFullError"
    said = refused.value.message
    assert "24 MB do not fit" in said and said.count("(2.0 MB)") == 10 and "f11" in said
    assert not storage.exists("/user/x")


def test_full_disk_during_a_transfer_keeps_the_old_file(storage: Storage, tmp_path: Path) -> None:
    source = tmp_path / "f"
    source.write_bytes(b"old")
    storage.upload(str(source), "/user/f")
    source.write_bytes(os.urandom(10 << 20))
    (tmp_path / "disk/fills").write_bytes(os.urandom(6 << 20))
    with pytest.raises(PaiError) as refused:
        storage.upload(str(source), "/user/f")
    assert refused.value.code == "StorageFullError" and "f (10 MB)" in refused.value.message
    storage.download("/user/f", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == b"old"
    (tmp_path / "disk/fills").unlink()
    storage.upload(str(source), "/user/f")
    storage.download("/user/f", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
