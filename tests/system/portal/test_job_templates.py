"""Job templates in the portal: saved, started from by a member of the group, changed, deleted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.browser import Page
from support.portal import NewPage
from support.team_cluster import TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

TEMPLATES = "/api/v2/job-templates"
SECRET = "s3cret-of-alice"


@pytest.fixture
def group(cluster: TeamCluster) -> Iterator[str]:
    admin = cluster.tokens["admin"]
    cluster.ask("POST", "/api/v2/groups", {"groupname": "vision", "description": ""}, token=admin)
    for user in ("alice", "bob"):
        cluster.ask("PUT", f"/api/v2/users/{user}/group", {"groupname": "vision"}, token=admin)
    yield "vision"
    for user in ("alice", "bob"):
        cluster.ask("DELETE", f"/api/v2/users/{user}/group", {"groupname": "vision"}, token=admin)


def save(page: Page, name: str, description: str, group: str) -> None:
    page.click("button", "Save as template")
    page.wait_for("document.querySelector('dialog [name=template]') !== null")
    page.fill("dialog [name=template]", name)
    page.fill("dialog [name=description]", description)
    page.choose("dialog [name=group]", group)
    page.click("dialog button", "Save")
    page.wait_for_text(f"Template {name} is saved.")


def test_template_of_a_group_is_saved_used_changed_and_deleted(
    new_page: NewPage, cluster: TeamCluster, group: str
) -> None:
    page = new_page(at="/submit")
    page.fill("[name=name]", "digits")
    page.fill("[name=command]", 'echo "epochs: 3" $TOKEN')
    page.click("button", "Add a secret")
    page.fill("[aria-label='Name of secret 1']", "TOKEN")
    page.fill("[aria-label='Value of TOKEN']", SECRET)
    save(page, "digits", "How we train", group)
    stored = cluster.get(f"{TEMPLATES}/alice/digits").json()
    assert (stored["group"], stored["description"]) == (group, "How we train")
    assert SECRET not in stored["protocol"] and "epochs: 3" in stored["protocol"]

    other = new_page("bob", at="/submit")
    other.click("button", "Start from …")
    other.wait_for_text("for vision, by alice · How we train")
    # Only its owner and administrators delete it.
    assert other.evaluate("document.querySelector('[aria-label^=\"Delete template\"]') === null")
    other.click("dialog button", "digits")
    other.wait_for("/^digits_[a-z0-9]{6}$/.test(document.querySelector('[name=name]')?.value)")
    other.wait_for_text("Enter the value of TOKEN")
    other.fill("[name=name]", "from-a-template")
    other.fill("[aria-label='Value of TOKEN']", "own")
    other.click("button", "Submit")
    other.wait_for_text("from-a-template is submitted.")
    # A template that bob changes becomes their own template.
    other.click("nav a", "Submit Job")
    other.click("button", "Start from …")
    other.click("dialog button", "digits")
    other.wait_for("document.querySelector('[name=name]')?.value.startsWith('digits_')")
    save(other, "digits", "Longer", "")
    mine = cluster.get(f"{TEMPLATES}/bob/digits", token=cluster.tokens["bob"]).json()
    assert (mine["group"], mine["description"]) == (None, "Longer")

    page.reload()
    page.click("button", "Start from …")
    page.click("dialog button", "digits")
    page.wait_for("document.querySelector('[name=name]')?.value.startsWith('digits_')")
    page.click("button", "Save as template")
    # It keeps its name, description and group until they are changed.
    page.wait_for("document.querySelector('dialog [name=description]')?.value === 'How we train'")
    page.wait_for("document.querySelector('dialog [name=group]')?.value === 'vision'")
    page.fill("dialog [name=description]", "How we train now")
    page.click("dialog button", "Save")
    page.wait_for_text("Template digits is saved.")
    assert cluster.get(f"{TEMPLATES}/alice/digits").json()["description"] == "How we train now"

    page.click("button", "Start from …")
    page.click("button", "Delete template digits")
    page.click("button", "Delete template")
    page.wait_for_text("None yet: write a job, then Save as template.")
    assert cluster.get(TEMPLATES).json() == []


def test_name_that_no_template_may_have_is_refused(new_page: NewPage) -> None:
    page = new_page(at="/submit")
    page.click("button", "Save as template")
    page.wait_for("document.querySelector('dialog [name=template]') !== null")
    page.fill("dialog [name=template]", "two words")
    assert page.evaluate("!document.querySelector('dialog form').checkValidity()")
    assert page.text.count("Save as template") >= 1
