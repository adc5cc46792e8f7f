"""The storage of a cluster as one of its people has it."""

from __future__ import annotations

from team import TeamCluster

from openpaisdk.client import Cluster, Endpoint
from openpaisdk.storage import Storage
from paicluster.files import Person

ALICE = Person("alice")


def storage_of(team: TeamCluster, who: str, *, over_http: bool = False) -> Storage:
    url = "http://{}:{}".format(*team.address)
    return Storage.of(Cluster("team", Endpoint(url, who, team.tokens[who])), over_http=over_http)
