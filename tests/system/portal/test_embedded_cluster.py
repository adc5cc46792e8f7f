"""The portal of an embedded cluster, whose only user has no password and whose requests are not logged."""

from __future__ import annotations

import pytest

from support.browser import Page

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]


def test_admin_page_says_that_there_is_no_audit_log(own_page: Page) -> None:
    own_page.evaluate("location.hash = '#/admin?tab=audit'")
    own_page.wait_for_text("No audit log")
    assert "appear here" not in own_page.text


def test_user_without_a_password_learns_why_it_cannot_be_changed(own_page: Page) -> None:
    own_page.evaluate("location.hash = '#/profile'")
    for field, value in (("old", "guess"), ("new", "long enough"), ("repeated", "long enough")):
        own_page.fill(f"[name={field}]", value)
    own_page.click("button", "Change the password")
    own_page.wait_for_text("This account has no password yet.")
