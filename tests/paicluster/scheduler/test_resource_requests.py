"""Resource requests: sums, shares, and their form in the database."""

from __future__ import annotations

import json

import pytest

from paicluster.scheduler.resource_requests import (
    Dependency,
    ResourceRequest,
    Resources,
    RoleRequest,
    SchedulingRequest,
    decode,
    encode,
    request_of,
)
from paiprotocol.jobs import read_job
from support.server_fixture import job as job_of

TWO_ROLES = (RoleRequest("a", 3, Resources(2, 5, 0)), RoleRequest("b", 1, Resources(1, 9, 1)))


def test_arithmetic_of_resources() -> None:
    assert Resources(5, 50, 3).plus(Resources(2, 20, 1), 3) == Resources(11, 110, 6)
    assert Resources(5, 50, 3).plus(Resources(2, 20, 1)) == Resources(7, 70, 4)
    assert Resources(5, 50, 3).minus(Resources(2, 20, 1)) == Resources(3, 30, 2)
    assert Resources(1, 50, 0).at_least(Resources(2, 20, 0)) == Resources(2, 50, 0)


@pytest.mark.parametrize("amounts", [(2, 1, 1), (1, 2, 1), (1, 1, 2)])
def test_request_fits_where_no_resource_is_exceeded(amounts: tuple[int, int, int]) -> None:
    one = Resources(1, 1, 1)
    assert one.fits(one) and one.fits(Resources(*amounts))
    assert not Resources(*amounts).fits(one)


@pytest.mark.parametrize(
    ("used", "share"), [((4, 10, 1), 0.5), ((1, 90, 1), 0.9), ((1, 10, 3), 0.75), ((0, 0, 0), 0.0)]
)
def test_dominant_share_is_the_largest_fraction(used: tuple[int, int, int], share: float) -> None:
    assert Resources(*used).dominant_share(Resources(8, 100, 4)) == share


def test_resource_that_the_cluster_lacks_has_no_share() -> None:
    assert Resources(1, 1, 1).dominant_share(Resources(0, 0, 0)) == 0.0


def test_sums_and_minimum_of_a_request() -> None:
    whole = ResourceRequest(TWO_ROLES)
    assert (whole.gang, whole.limit, whole.tasks) == (True, 0, 4)
    assert whole.total == whole.minimum == Resources(7, 24, 1)
    alone = ResourceRequest(TWO_ROLES, gang=False)
    assert alone.minimum == Resources(2, 5, 0), "few GPUs, then few cores, then little memory"
    cores = (RoleRequest("a", 1, Resources(2, 5, 0)), RoleRequest("b", 1, Resources(1, 9, 0)))
    assert ResourceRequest(cores, gang=False).minimum == Resources(1, 9, 0)
    memory = (RoleRequest("a", 1, Resources(1, 9, 0)), RoleRequest("b", 1, Resources(1, 5, 0)))
    assert ResourceRequest(memory, gang=False).minimum == Resources(1, 5, 0)


def test_request_of_a_job() -> None:
    after = [{"job": "first", "on": "success"}, {"job": "bob~second", "on": "end"}]
    extras = {"gangAllocation": False, "openpaisdk": {"arrayLimit": 2, "after": after}}
    text = job_of("work", "true", instances=3, cpu=2, memory_mb=8, gpu=1, extras=extras)
    resources, dependencies = request_of(read_job(json.dumps(text)), "ann", Resources(1, 16))
    assert resources == ResourceRequest((RoleRequest("main", 3, Resources(2, 16, 1)),), gang=False, limit=2)
    assert dependencies == (Dependency("ann~first", True), Dependency("bob~second", False))
    whole = request_of(read_job(json.dumps(job_of("work", "true", memory_mb=8))), "ann")
    roles = (RoleRequest("main", 1, Resources(1, 8, 0)),)
    assert whole == SchedulingRequest(ResourceRequest(roles, gang=True, limit=0))


def test_encoded_request_is_compact_and_read_back() -> None:
    plain = SchedulingRequest(ResourceRequest(TWO_ROLES))
    assert encode(plain) == '{"roles":[["a",3,2,5,0],["b",1,1,9,1]],"gang":true,"limit":0}'
    array = SchedulingRequest(
        ResourceRequest(TWO_ROLES[:1], gang=False, limit=2), (Dependency("ann~first", True),)
    )
    assert encode(array) == '{"roles":[["a",3,2,5,0]],"gang":false,"limit":2,"after":[["ann~first",true]]}'
    for request in (plain, array):
        assert decode(encode(request)) == request
        assert decode(encode(request)) is decode(encode(request)), "compared by identity"
