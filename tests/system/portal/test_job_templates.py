"""Job templates in the portal: saved, started from by a member of the group, changed, deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

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


def test_template_keeps_files_for_those_who_may_read_them(
    new_page: NewPage, cluster: TeamCluster, group: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.sh"
    file.write_text("#!/bin/sh\necho from the template")
    page = new_page(at="/submit")
    page.fill("[name=name]", "with-files")
    page.fill("[name=command]", "./run.sh")
    page.drop_files(".drop-zone", file)
    page.wait_for_text("1 file")
    # The files are uploaded with the template.
    save(page, "with-files", "", group)
    protocol = cluster.get(f"{TEMPLATES}/alice/with-files").json()["protocol"]
    digest = re.findall("[0-9a-f]{64}", protocol)[0]
    assert cluster.ask("HEAD", f"/api/v2/sources/{digest}").status == 200

    page.reload()
    start(page)
    page.wait_for_text("Valid, protocol version 2")
    page.fill("[name=name]", "of-alice")
    page.click("button", "Submit")
    page.wait_for_text("of-alice is submitted.")
    cluster.wait_state("of-alice", "SUCCEEDED")
    assert cluster.log_of("of-alice") == b"from the template\n"

    other = new_page("bob", at="/submit")
    start(other)
    other.wait_for_text("The files of template with-files belong to alice: a template does not share files.")
    other.wait_for_text("Add the files of the job, or remove them")
    other.drop_files(".drop-zone", file)
    other.wait_for_text("Valid, protocol version 2")
    assert "belong to alice" not in other.text
    # Files that were deleted on the cluster.
    (cluster.home / "sources" / f"{digest}.tar").unlink()
    page.click("nav a", "Submit Job")
    start(page)
    page.wait_for_text("The files of template with-files are no longer on the cluster. Add them again")


def start(page: Page) -> None:
    page.click("button", "Start from …")
    page.click("dialog button", "with-files")
    page.wait_for("document.querySelector('[name=name]')?.value.startsWith('with-files_')")


def test_name_that_no_template_may_have_is_refused(new_page: NewPage) -> None:
    page = new_page(at="/submit")
    page.click("button", "Save as template")
    page.wait_for("document.querySelector('dialog [name=template]') !== null")
    page.fill("dialog [name=template]", "two words")
    assert page.evaluate("!document.querySelector('dialog form').checkValidity()")
    assert page.text.count("Save as template") >= 1
