"""docs/cloud-storages.md: its commands run on a real S3 server, and its settings are accepted."""

import re
from pathlib import Path

import pytest
import yaml

from paicluster.config import cluster_file
from support.cloud_servers import CloudServer, s3_server_fixture  # noqa: F401
from support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs/cloud-storages.md").read_text()


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.xdist_group("cloud")
def test_commands_of_the_page_run(user, s3_server: CloudServer) -> None:
    (block,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    done = user.run(["bash", "-euo", "pipefail", "-c", block], env=s3_server.env)
    assert done.status == 0, done
    assert "1.txt" in done.out and "3 records in 1 shard" in done.out and done.out.endswith("picture 1\n")


def test_settings_of_the_page_are_accepted(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert [storage["type"] for storage in yaml.safe_load(block)["storages"]] == [
        *("own", "s3", "azureblob", "samba", "nfs", "azurefile")
    ]
    file = tmp_path / "cluster.yaml"
    file.write_text(block)
    settings = cluster_file.settings_of(cluster_file.load(file))
    assert settings.storages[1].bucket.credentials == tmp_path / "s3.yaml"
