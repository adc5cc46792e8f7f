"""Jobs without an image on clusters that run every job in a container."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from openpaisdk.config.clusters import ClusterEntry
from openpaisdk.config.defaults import Defaults
from openpaisdk.errors import UsageError
from openpaisdk.jobs.command_job import JobOptions
from openpaisdk.jobs.command_submission import check_image


@pytest.mark.parametrize(
    ("info", "names_host"),
    [({"containers": True}, True), ({"name": "PAI RESTful API"}, False)],
    ids=["our own server", "OpenPAI's server"],
)
def test_host_is_offered_where_jobs_may_run_on_it(info: dict[str, object], names_host: bool) -> None:
    entry = ClusterEntry({"cluster_alias": "team", "pai_uri": "http://team.example.com"})
    cluster = SimpleNamespace(info=lambda: info)
    with pytest.raises(UsageError, match="The cluster team runs jobs in containers: name an image") as raised:
        check_image(JobOptions("job", ["true"]), entry, Defaults([]), lambda: cluster)
    assert ("-i host" in raised.value.hint) is names_host
    assert "pai set -g image=<image>" in raised.value.hint


def test_cluster_without_containers_needs_no_image() -> None:
    entry = ClusterEntry({"cluster_alias": "team", "pai_uri": "http://team.example.com"})
    check_image(
        JobOptions("job", ["true"]),
        entry,
        Defaults([]),
        lambda: SimpleNamespace(info=lambda: {"containers": False}),
    )
