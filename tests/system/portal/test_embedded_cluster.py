"""The portal of an embedded cluster, whose only user has no password and whose requests are not logged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.browser import Browser, Page
from support.server_fixture import Cluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]


@pytest.fixture(scope="module", name="own")
def embedded_cluster(tmp_path_factory: pytest.TempPathFactory, portal_files: None) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("embedded") / "home")
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def page(browser: Browser, own: Cluster) -> Iterator[Page]:
    with browser.page() as made:
        made.open(own.ask("POST", "/api/v2/authn/links").json()["url"])
        made.wait_for("document.querySelector('.shell') !== null")
        yield made


def test_admin_page_says_that_there_is_no_audit_log(page: Page) -> None:
    page.evaluate("location.hash = '#/admin?tab=audit'")
    page.wait_for_text("No audit log")
    assert "appear here" not in page.text


def test_user_without_a_password_learns_why_it_cannot_be_changed(page: Page) -> None:
    page.evaluate("location.hash = '#/profile'")
    for field, value in (("old", "guess"), ("new", "long enough"), ("repeated", "long enough")):
        page.fill(f"[name={field}]", value)
    page.click("button", "Change the password")
    page.wait_for_text("This account has no password yet.")
