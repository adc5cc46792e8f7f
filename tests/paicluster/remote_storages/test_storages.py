"""Names of storages in the settings of a cluster."""

import logging
from pathlib import Path

import pytest

from paicluster.config.sections import StorageSettings
from paicluster.remote_storages.storages import check_names
from paiprotocol.errors import ConfigError

JOBS = (StorageSettings(name="jobs", kind="mount", path=Path("/data")),)


def test_new_cluster_refuses_a_storage_with_the_name_of_jobs() -> None:
    with pytest.raises(ConfigError, match="cannot be called 'jobs'"):
        check_names(JOBS, is_new=True)


def test_storage_of_that_name_on_a_used_cluster_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_names(JOBS, is_new=False)
    assert "It keeps its meaning" in caplog.text
