"""Admin page: users, groups, virtual clusters, alerts, settings, audit log; only for administrators."""

from __future__ import annotations

import pytest

from support.portal import NewPage, sign_in, url_of
from support.server_fixture import eventually, job
from support.team_cluster import PASSWORD, TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]


def test_other_users_get_a_sentence(new_page: NewPage) -> None:
    page = new_page("bob", at="/admin")
    page.wait_for_text("shown to administrators of the cluster")
    assert "Admin" not in page.evaluate("document.querySelector('.nav').innerText").split()


def test_user_is_added_changed_limited_and_deleted(new_page: NewPage, cluster: TeamCluster) -> None:
    admin = cluster.tokens["admin"]
    page = new_page("admin", at="/admin")
    page.click("button", "Add a user")
    page.fill("dialog input[name=new-username]", "carol")
    page.fill("dialog input[name=new-password]", "short")
    page.click("dialog button", "Add")
    page.wait_for("document.querySelector('dialog .notice.bad') !== null")
    page.fill("dialog input[name=new-password]", "long enough")
    page.click("dialog button", "Add")
    page.wait_for_text("User carol is added.")
    page.click("button", "Change carol")
    page.fill("dialog input[name=email]", "carol@example.org")
    page.click("dialog label.check", "Administrator")
    page.click("dialog button", "Save")
    page.wait_for_text("User carol is changed.")
    carol = cluster.get("/api/v2/users/carol", token=admin).json()
    assert (carol["email"], carol["admin"]) == ("carol@example.org", True)
    page.click("button", "Quota of carol")
    page.fill("dialog input[name=gpu]", "2")
    page.click("dialog button", "Save")
    page.wait_for_text("The quota of carol is set.")
    quota = cluster.get("/api/v2/users/carol/quota", token=admin).json()["resources"]
    assert quota["gpu"]["limit"] == 2 and quota["cpu"]["limit"] is None
    page.click("button", "Change carol")
    page.click("dialog label.check", "Administrator")
    page.click("dialog button", "Save")
    page.wait_for(
        "[...document.querySelectorAll('tbody tr')].some((r) => /carol.*default\\t/.test(r.innerText))"
    )
    page.click("button", "Delete carol")
    page.click("dialog button", "Delete")
    page.wait_for_text("User carol is deleted.")
    eventually(lambda: "carol" not in page.evaluate("document.querySelector('tbody').innerText"), "the row")


def test_disabled_user_is_signed_out_with_a_sentence(new_page: NewPage, cluster: TeamCluster) -> None:
    made = {"username": "dora", "password": PASSWORD}
    assert cluster.ask("POST", "/api/v2/users", made, token=cluster.tokens["admin"]).status == 201
    dora, page = new_page("dora", at="/home"), new_page("admin", at="/admin")
    job_of_dora = job("lasting", "sleep 600")
    assert cluster.submit(job_of_dora, token=cluster.log_in("dora")).status == 202
    page.click("button", "Disable dora")
    page.wait_for_text("Unfinished jobs go on; new ones are not accepted.")
    page.click("dialog button", "Disable")
    page.wait_for_text("User dora is disabled. 1 unfinished job goes on.")
    dora.wait_for_text("User dora is disabled. Ask an administrator to enable the account.")
    dora.fill("input[name=username]", "dora")
    dora.fill("input[name=password]", PASSWORD)
    dora.click("button", "Sign in")
    dora.wait_for("document.querySelector('[role=alert]')?.innerText.includes('User dora is disabled.')")
    page.click("a.tag", "disabled")
    page.wait_for("document.querySelector('.jobs tbody').innerText.includes('lasting')")
    page.open(f"{url_of(cluster)}/#/admin")
    page.click("button", "Enable dora")
    page.click("dialog button", "Enable")
    page.wait_for_text("User dora is enabled.")
    sign_in(dora, "dora")
    assert cluster.ask("DELETE", "/api/v2/users/dora", token=cluster.tokens["admin"]).status == 200


def test_groups_virtual_clusters_settings_and_audit_log(new_page: NewPage, cluster: TeamCluster) -> None:
    page = new_page("admin", at="/admin?tab=groups")
    page.click("button", "Add a group")
    page.fill("dialog input[name=name]", "vision")
    page.fill("dialog input[name=description]", "<b>eyes</b>")
    page.click("dialog button", "Save")
    page.wait_for_text("<b>eyes</b>")
    page.click("button", "Change vision")
    # Another administrator meanwhile.
    granted = {"groupname": "vision", "extension": {"acls": {"virtualClusters": ["default"]}}}
    change = {"data": granted, "patch": True}
    assert cluster.ask("PUT", "/api/v2/groups", change, token=cluster.tokens["admin"]).status == 201
    page.click("dialog label.check", "home")
    page.click("dialog button", "Save")
    page.wait_for("document.querySelector('dialog') === null")
    vision = cluster.get("/api/v2/groups/vision", token=cluster.tokens["admin"]).json()
    assert vision["description"] == "<b>eyes</b>"
    access = vision["extension"]["acls"]
    assert (access["virtualClusters"], access["storageConfigs"]) == (["default"], ["home"])
    page.click("button", "Delete vision")
    page.click("dialog button", "Delete")
    page.wait_for_text("Group vision is deleted.")
    page.click("[role=tab]", "Virtual clusters")
    page.click("button", "Add a virtual cluster")
    page.fill("dialog input[name=name]", "lab")
    page.fill("dialog input[name=capacity]", "25")
    page.click("dialog button", "Save")
    page.wait_for_text("25 %")
    page.click("button", "Delete lab")
    page.click("dialog button", "Delete")
    page.wait_for_text("Virtual cluster lab is deleted.")
    page.click("[role=tab]", "Settings")
    page.wait_for_text(str(cluster.home))
    page.click("[role=tab]", "Alerts")
    page.wait_for("document.querySelector('#tab-panel').innerText.length > 10")
    page.click("[role=tab]", "Audit log")
    page.fill("input[aria-label='Search the audit log']", "virtual-clusters/lab")
    page.wait_for("document.querySelectorAll('#tab-panel tbody tr').length === 2")
    page.wait_for_text("DELETE /api/v2/virtual-clusters/lab")
