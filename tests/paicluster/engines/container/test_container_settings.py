"""Container settings of a cluster's file, and the storages mounted in containers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paicluster.config import cluster_file as cluster_file
from paicluster.config.settings import Settings
from paicluster.controller.mountable_storages import MountableStorage, mounts_of
from paicluster.engines.container.engine import ContainerEngine
from paicluster.engines.interface import Mount, Node
from paicluster.engines.process.engine import ProcessEngine
from paicluster.server.engine_factory import build_engines
from paicluster.server.launch_settings import warn_exchangeable_folders
from paiprotocol.errors import PaiError
from paiprotocol.jobs import read_job

NODE = Node("here", "127.0.0.1", cpu=2, memory_mb=1024)


def settings(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    return cluster_file.settings_of({"home": tmp_path, **cluster_file.load(file)})


def test_options_of_the_file_reach_the_engine(tmp_path: Path) -> None:
    said = settings(
        tmp_path,
        "engine:\n  type: container\n  program: docker\n  network: own\n  images: ignore\n"
        "  keep-images-mb: null\n  keep-images-days: 3\n  cpus: 7\n  limits: enforce\n",
    )
    assert (said.cpus, said.enforce_limits) == (7, True)
    (engine,) = build_engines(said, NODE).all()
    assert isinstance(engine, ContainerEngine)
    assert (engine._programs, engine._host_network, engine._refuse_without) == (("docker",), False, False)
    assert (engine._kept_images, engine._enforce) == ((None, 3), True)


def test_misspelt_option_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(PaiError, match="netwrok"):
        settings(tmp_path, "engine:\n  type: container\n  netwrok: own\n")


def test_one_cluster_may_have_process_and_container_engines(tmp_path: Path) -> None:
    said = settings(
        tmp_path,
        "engines:\n  - {type: process, name: plain}\n  - {type: container, name: boxes}\n"
        "virtual-clusters:\n  boxed: {engine: boxes, cpus: 1}\n",
    )
    engines = build_engines(said, NODE)
    plain, boxes = engines.get("plain"), engines.get("boxes")
    assert isinstance(plain, ProcessEngine) and not isinstance(plain, ContainerEngine)
    assert isinstance(boxes, ContainerEngine)
    # No two keep their attempts in the same folder.
    assert plain.log_folder("aabb") != boxes.log_folder("aabb")
    # The node is listed once.
    assert [node.name for node in engines.scheduled_nodes()] == ["here"]


def test_embedded_cluster_uses_images_where_possible(tmp_path: Path) -> None:
    (engine,) = build_engines(Settings(home=tmp_path, embedded=True), NODE).all()
    assert isinstance(engine, ContainerEngine) and not engine._refuse_without
    (engine,) = build_engines(Settings(home=tmp_path), NODE).all()
    assert not isinstance(engine, ContainerEngine)


DATA = MountableStorage("data", Path("/srv/data"), read_only=True, default=True)
OWN = MountableStorage("own", Path("/srv/own"), shared=False)
PLUGIN = "com.microsoft.pai.runtimeplugin"


@pytest.mark.parametrize(
    ("extras", "mounts"),
    [
        ({}, ()),
        ({"storages": []}, (Mount(DATA.path, "/mnt/data", read_only=True),)),
        ({"storages": [{"name": "data", "mountPath": "/in/"}]}, (Mount(DATA.path, "/in", read_only=True),)),
        ({"storages": [{"name": "own"}]}, (Mount(Path("/srv/own/ada"), "/mnt/own", create=True),)),
        ({"storages": [{"name": "reached-by-address"}]}, ()),
        (
            {PLUGIN: [{"plugin": "teamwise_storage", "parameters": {"storageConfigNames": ["own"]}}]},
            (Mount(Path("/srv/own/ada"), "/mnt/own", create=True),),
        ),
        ({PLUGIN: [{"plugin": "teamwise_storage"}]}, (Mount(DATA.path, "/mnt/data", read_only=True),)),
    ],
)
def test_storages_that_a_job_names_are_mounted(extras: dict[str, Any], mounts: tuple[Mount, ...]) -> None:
    described = {
        "protocolVersion": 2,
        "name": "job",
        "type": "job",
        "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "some/image"}],
        "taskRoles": {
            "main": {
                "dockerImage": "image",
                "resourcePerInstance": {"cpu": 1, "memoryMB": 16, "gpu": 0},
                "commands": ["true"],
            }
        },
        "extras": extras,
    }
    assert mounts_of(read_job(described), "ada", (DATA, OWN)) == mounts


_NESTED = """
engine: {{type: container}}
storages:
  - {{name: all, type: mount, path: {folder}, read-only: {read_only}}}
  - {{name: users, type: mount, path: {folder}/users, share: false}}
"""


@pytest.mark.parametrize("is_writable", [True, False])
def test_folders_that_jobs_can_exchange_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_writable: bool
) -> None:
    (tmp_path / "users").mkdir()
    text = _NESTED.format(folder=tmp_path, read_only=str(not is_writable).lower())
    warn_exchangeable_folders(settings(tmp_path, text))
    found = [record.getMessage() for record in caplog.records]
    assert [f"The storage users mounts folders of users below {tmp_path}" in one for one in found] == (
        [True] if is_writable else []
    )
