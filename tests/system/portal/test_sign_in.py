"""Sign in and out: password, one-time link, expired session, two users at once."""

from __future__ import annotations

import pytest

from support.browser import Browser
from support.portal import NewPage, end_sessions, sign_in, url_of
from support.server_fixture import eventually, job
from support.team_cluster import PASSWORD, TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]


def test_wrong_password_says_so_and_the_right_one_leads_to_the_jobs(new_page: NewPage) -> None:
    page = new_page(None, at="/")
    page.fill("input[name=username]", "alice")
    page.fill("input[name=password]", "wrong password")
    page.press("Enter")
    page.wait_for_text("Password is incorrect.")
    page.fill("input[name=password]", PASSWORD)
    page.press("Enter")
    page.wait_for("document.querySelector('h1')?.innerText === 'Jobs'")
    page.wait_for("location.hash === '#/jobs'")


def test_jobs_are_requested_once_after_a_sign_in(new_page: NewPage) -> None:
    page = new_page(None, at="/jobs")
    # They are not answered, so that none is renewed.
    page.evaluate(
        "(() => { const send = window.fetch; window.lists = 0;"
        " window.fetch = (address, init) => String(address).startsWith('api/v2/jobs?')"
        "   ? (window.lists++, new Promise(() => {})) : send(address, init); })()"
    )
    sign_in(page, "bob")
    page.wait_for("document.title.startsWith('Jobs')")
    assert page.evaluate("window.lists") == 1


def test_page_of_a_link_is_shown_after_the_sign_in(new_page: NewPage) -> None:
    page = new_page(None, at="/cluster")
    sign_in(page, "bob")
    page.wait_for_text("Virtual clusters")


def test_scripts_cannot_read_the_cookie(new_page: NewPage) -> None:
    page = new_page()
    assert page.evaluate("document.cookie") == ""


def test_page_with_very_many_cookies_locks_nobody_out(new_page: NewPage, cluster: TeamCluster) -> None:
    """A page at another port of the host can set cookies for all of its ports."""
    page = new_page()
    page.open(url_of(cluster) + "/healthz")  # sends no requests of its own
    page.evaluate("for (let n = 0; n < 170; n++) document.cookie = `c${n}=${'x'.repeat(4000)}; path=/`")
    # The browser sets them while the page goes on.
    page.wait_for("document.cookie.length > 600000")
    page.open(url_of(cluster))
    page.wait_for_text("delete the cookies of this host")
    page.open(url_of(cluster))
    sign_in(page, "alice")
    page.wait_for("document.querySelector('h1')?.innerText === 'Jobs'")


def test_one_time_link_opens_a_signed_in_page(new_page: NewPage, cluster: TeamCluster) -> None:
    link = cluster.ask("POST", "/api/v2/authn/links", token=cluster.tokens["bob"]).json()["url"]
    page = new_page(None, at=link.partition("#")[2] + "&to=/cluster")
    page.wait_for_text("Virtual clusters")
    page.wait_for("!location.hash.includes('code')")
    again = new_page(None, at=link.partition("#")[2])
    again.wait_for_text("The sign-in link has expired or was used before.")
    again.wait_for_text("Type `pai open` for a new one.")


def test_link_that_was_used_before_ends_no_session(new_page: NewPage) -> None:
    page = new_page("bob")
    page.evaluate("location.hash = '#/sign-in?code=used'")
    page.wait_for_text("The sign-in link has expired or was used before.")
    page.click("a", "Go on as bob")
    page.wait_for("document.querySelector('table.jobs, .empty h2') !== null")


def test_expired_session_asks_again_and_returns_to_the_same_page(
    new_page: NewPage, cluster: TeamCluster
) -> None:
    page = new_page("bob", at="/cluster")
    page.wait_for_text("Virtual clusters")
    end_sessions(cluster, "bob")
    page.wait_for_text("Your session has ended. Sign in to continue.")
    sign_in(page, "bob")
    page.wait_for_text("Virtual clusters")


EXPIRED = "Your session has ended. Sign in to continue."


def test_action_is_done_after_the_user_has_signed_in_again(new_page: NewPage, cluster: TeamCluster) -> None:
    page = new_page("bob", at="/submit")
    page.fill("[name=name]", "typed-before")
    page.wait_for_text("Valid, protocol version 2")
    end_sessions(cluster, "bob")
    page.click("button", "Submit")
    page.wait_for_text(EXPIRED)
    assert "Virtual cluster" not in page.text, "nothing of the user is visible meanwhile"
    # Chromium closes a dialog at the second Escape, whatever the page says.
    page.press("Escape")
    page.press("Escape")
    page.wait_for("document.querySelector('dialog.sign-in').open && document.title.startsWith('Sign in')")
    assert page.evaluate("document.querySelector('dialog [name=username]').value") == "bob"
    sign_in(page, "bob")
    page.wait_for_text("typed-before is submitted.")
    page.wait_for("location.hash === '#/jobs'")


def test_what_is_typed_in_a_dialog_stays_when_the_session_ends(
    new_page: NewPage, cluster: TeamCluster
) -> None:
    name = "sleeps-in-a-session"
    assert cluster.submit(job(name, "sleep 600"), token=cluster.tokens["bob"]).status == 202
    page, other = (new_page("bob", at=f"/jobs/bob~{name}") for _ in range(2))
    for one in (page, other):
        one.click("button", "Resubmit")
        one.fill("dialog [name=name]", "the-copy")
    end_sessions(cluster, "bob")
    for one in (page, other):
        one.wait_for_text(EXPIRED)
    sign_in(page, "bob")
    typed = "document.querySelector('dialog [name=name]')"
    page.wait_for(f"{typed}?.value === 'the-copy' && document.activeElement === {typed}")
    page.click("dialog button", "Resubmit")
    page.wait_for("document.querySelector('h1')?.innerText === 'the-copy'")
    # Another user finds nothing of it.
    sign_in(other, "alice")
    other.wait_for(f"document.querySelector('h1')?.innerText === {name!r}")
    assert other.evaluate(f"{typed} === null")
    for one in (name, "the-copy"):
        path = f"/api/v2/jobs/bob~{one}/executionType"
        assert cluster.ask("PUT", path, {"value": "STOP"}, token=cluster.tokens["bob"]).status == 202


def test_tabs_keep_what_is_typed_and_one_sign_in_is_enough(
    new_page: NewPage, browser: Browser, cluster: TeamCluster
) -> None:
    first = new_page("bob")
    second = browser.new_page(first.context)
    second.open(f"{url_of(cluster)}/#/submit")
    second.fill("[name=name]", "typed-in-a-tab")
    end_sessions(cluster, "bob")
    for page in (first, second):
        page.wait_for_text(EXPIRED)
    sign_in(first, "bob")
    second.wait_for("document.querySelector('.shell:not(.resting) [name=name]')?.value === 'typed-in-a-tab'")


def test_sign_out_everywhere_signs_other_browsers_out(new_page: NewPage) -> None:
    one, other, stranger = new_page("bob"), new_page("bob"), new_page("alice")
    one.click("header button", "Sign out everywhere")
    one.click("dialog button", "Sign out everywhere")
    one.wait_for_text("You are signed out of all browsers.")
    other.wait_for_text("Your session has ended.")
    assert "Sign out" in stranger.text


def test_sign_out_in_one_tab_reaches_the_other_tab(
    new_page: NewPage, browser: Browser, cluster: TeamCluster
) -> None:
    first = new_page("bob")
    second = browser.new_page(first.context)
    second.open(f"{url_of(cluster)}/")
    second.wait_for("document.querySelector('.shell') !== null")
    first.click("button", "Sign out")
    second.wait_for_text("Password")


def test_two_users_see_their_own_actions(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.submit(job("of-alice", "sleep 600"))
    alice, bob = new_page("alice", at="/jobs/alice~of-alice"), new_page("bob", at="/jobs/alice~of-alice")
    alice.wait_for_text("Stop")
    bob.wait_for_text("Clone")
    assert "Stop" not in bob.text.split()
    alice.click(".head button", "Stop")
    alice.click("dialog button", "Stop")
    eventually(lambda: cluster.status("of-alice")["state"] == "STOPPED", "the stop")
    for page in (alice, bob):
        page.wait_for("document.querySelector('.title .state').innerText === 'Stopped'")
