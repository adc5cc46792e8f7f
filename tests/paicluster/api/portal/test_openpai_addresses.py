"""Addresses of OpenPAI's pages lead to the page with the same, with what they select."""

from __future__ import annotations

import pytest

from support.team_cluster import TeamCluster

CASES = {
    "/index.html": "./#/home",
    "/home.html": "./#/home",
    "/login.html": "./#/home",
    "/login.html?origin=http%3A%2F%2Fp%2Fview.html%3Fusername%3Dbob%26jobName%3Dx": "./#/jobs/bob~x",
    "/login.html?from=%2Fjob-list.html%3FvcName%3Dv": "./#/jobs?vc=v",
    "/login.html?origin=https%3A%2F%2Fevil.example%2Fa": "./#/home",
    "/login.html?origin=%2Flogin.html%3Forigin%3D%2Flogin.html": "./#/home",
    "/login.html?origin=http%3A%2F%2F%5B": "./#/home",
    "/submit.html": "./#/submit",
    "/submit.html?op=resubmit&type=job&user=alice&jobname=old_1": "./#/submit?clone=alice~old_1",
    "/submit_v1.html?op=resubmit&type=job&user=alice&jobName=old": "./#/submit?clone=alice~old",
    "/submit.html?op=marketplace_submit&itemId=3": "./#/submit",
    "/job-transfer.html?userName=bob&jobName=x": "./#/submit?clone=bob~x",
    "/job-list.html": "./#/jobs",
    "/job-list.html?vcName=my%20vc&status=Running&user=bob&keyword=a%26b": (
        "./#/jobs?vc=my+vc&state=RUNNING&user=bob&keyword=a%26b"
    ),
    "/job-list.html?status=Odd": "./#/jobs",
    "/view.html": "./#/jobs",
    "/view.html?vcName=default": "./#/jobs?vc=default",
    "/view.html?username=bob&jobName=x": "./#/jobs/bob~x",
    "/job-detail.html?username=bob&jobName=x%2F%3Fy%23z": "./#/jobs/bob~x%2F%3Fy%23z",
    "/job-detail.html?username=bob&jobName=x&attempt=2": "./#/jobs/bob~x?attempt=2",
    "/job-detail.html?username=%3Cscript%3E&jobName=a/%22%0Ab": "./#/jobs/%3Cscript%3E~a%2F%22%0Ab",
    "/job-detail.html?jobName=alice~x": "./#/jobs/alice~x",
    "/job-detail.html": "./#/jobs",
    "/job-retry.html?username=bob&jobName=x": "./#/jobs/bob~x?tab=timeline",
    "/job-event.html?username=bob&jobName=x": "./#/jobs/bob~x?tab=timeline",
    "/task-attempt.html?username=bob&jobName=x&jobAttemptIndex=0&taskRoleName=w&taskIndex=3": (
        "./#/jobs/bob~x?attempt=0&tab=log&role=w&index=3"
    ),
    "/virtual-clusters.html": "./#/cluster",
    "/cluster-view/hardware.html": "../#/cluster",
    "/cluster-view/hardware/detail.html?instance=10.0.0.1:9100": "../../#/cluster",
    "/user-profile.html": "./#/profile",
    "/user-view.html": "./#/admin",
}


@pytest.mark.parametrize(("address", "leads_to"), CASES.items(), ids=CASES)
def test_address_of_openpai_leads_to_the_page(cluster: TeamCluster, address: str, leads_to: str) -> None:
    reply = cluster.get(address, token=None)
    assert (reply.status, reply.headers["location"]) == (302, leads_to)
