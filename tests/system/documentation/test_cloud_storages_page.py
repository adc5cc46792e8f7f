"""docs/cloud-storages.md: its settings are accepted."""

import re
from pathlib import Path

import yaml

from paicluster.config import cluster_file
from support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs/cloud-storages.md").read_text()


def test_settings_of_the_page_are_accepted(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert [storage["type"] for storage in yaml.safe_load(block)["storages"]] == [
        *("own", "s3", "azureblob", "samba", "nfs", "azurefile")
    ]
    file = tmp_path / "cluster.yaml"
    file.write_text(block)
    settings = cluster_file.settings_of(cluster_file.load(file))
    assert settings.storages[1].bucket.credentials == tmp_path / "s3.yaml"
