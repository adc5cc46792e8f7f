"""Profile page: tokens, SSH keys, password, storages, sign out everywhere."""

from __future__ import annotations

import time

import pytest

from support.browser import Page
from support.portal import NewPage, sign_in, url_of
from support.server_fixture import eventually
from support.team_cluster import PASSWORD, TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKnL2v3bqMCvFdvc0yI2l3zZs7qCkz0k1cAq8W1jT9Zk"


def tokens(cluster: TeamCluster) -> list[str]:
    return [row["name"] for row in cluster.get("/api/v2/tokens?details=only").json()["details"]]


def make_token(page: Page, name: str) -> str:
    page.click("button", "New token")
    page.fill("dialog input[name=name]", name)
    page.choose("dialog select", "0")
    page.click("dialog button", "Create")
    page.wait_for_text("it is not shown again")
    return str(page.evaluate("document.querySelector('.once code').innerText"))


def test_token_is_made_shown_once_and_revoked(new_page: NewPage, cluster: TeamCluster) -> None:
    page = new_page(at="/profile")
    token = make_token(page, "<b>nightly</b>")
    check = cluster.get("/api/v2/tokens/check", token=token).json()
    assert check["application"] and 29 * 86400 < check["exp"] - time.time() <= 30 * 86400
    page.click("button", "Hide it")
    page.wait_for(f"!document.body.innerHTML.includes('{token}')")
    page.wait_for_text("<b>nightly</b>")
    page.open("about:blank")
    page.open(f"{url_of(cluster)}/#/profile")
    page.click("button", "Revoke <b>nightly</b>")
    assert token not in page.evaluate("document.documentElement.outerHTML")
    page.click("dialog button", "Cancel")
    page.wait_for("document.querySelector('dialog') === null")
    assert "<b>nightly</b>" in tokens(cluster)
    page.click("button", "Revoke <b>nightly</b>")
    page.click("dialog button", "Revoke")
    page.wait_for_text("<b>nightly</b> is revoked.")
    assert cluster.get("/api/v2/tokens/check", token=token).status == 401


def test_revoking_this_session_signs_out(new_page: NewPage) -> None:
    page = new_page(at="/profile")
    page.wait_for_text("this session")
    page.evaluate(
        "[...document.querySelectorAll('.profile tr')].find((r) => r.innerText.includes('this session'))"
        ".querySelector('button').click()"
    )
    page.wait_for_text("you must sign in again")
    page.click("dialog button", "Revoke")
    page.wait_for_text("You have revoked this session.")


def test_ssh_keys_are_added_and_removed(new_page: NewPage, cluster: TeamCluster) -> None:
    def stored() -> list[str]:
        extension = cluster.get("/api/v2/users/alice").json()["extension"]
        assert extension["portalTest"] == "stays"
        return [key["value"] for key in extension.get("sshKeys", [])]

    beside = {"extension": {"portalTest": "stays", "sshKeys": []}}
    assert cluster.ask("PUT", "/api/v2/users/alice/extension", beside).status == 201
    page = new_page(at="/profile")
    page.click("button", "Add a key")
    page.fill("dialog textarea", "-----BEGIN OPENSSH PRIVATE KEY-----")
    page.click("dialog button", "Add")
    page.wait_for_text("This is a private key")
    page.fill("dialog textarea", f"{KEY} me@laptop")
    page.click("dialog button", "Add")
    page.wait_for("document.querySelector('.key')?.innerText.startsWith('ssh-ed25519 …')")
    assert stored() == [f"{KEY} me@laptop"]
    page.click("button", "Remove me@laptop")
    page.click("dialog button", "Remove")
    page.wait_for("document.querySelector('.key') === null")
    eventually(lambda: stored() == [], "the removal")


def test_keys_of_two_tabs_are_all_kept(new_page: NewPage, cluster: TeamCluster) -> None:
    empty = {"extension": {"sshKeys": []}}
    assert cluster.ask("PUT", "/api/v2/users/alice/extension", empty).status == 201
    tabs = [new_page(at="/profile"), new_page(at="/profile")]
    for page in tabs:
        page.click("button", "Add a key")
    for number, page in enumerate(tabs):
        page.fill("dialog textarea", f"{KEY[:-1]}{number} tab{number}")
        page.click("dialog button", "Add")
        page.wait_for("document.querySelector('dialog') === null")
    tabs[1].wait_for("document.querySelectorAll('.key').length === 2")
    # The first tab has not seen the second key yet, and removes its own.
    tabs[0].click("button", "Remove tab0")
    tabs[0].click("dialog button", "Remove")
    tabs[0].wait_for("[...document.querySelectorAll('.key')].map((k) => k.innerText).join().endsWith('tab1')")
    tabs[1].click("button", "Remove tab1")
    tabs[1].click("dialog button", "Remove")
    tabs[1].wait_for("document.querySelector('.key') === null")


def test_storages_lead_to_files(new_page: NewPage) -> None:
    page = new_page(at="/profile")
    page.click(".profile a", "home")
    page.wait_for("location.hash === '#/files/home/'")
    page.wait_for("document.querySelector('.files') !== null")


def test_password_is_changed_with_the_old_one(new_page: NewPage, cluster: TeamCluster) -> None:
    created = cluster.ask(
        "POST",
        "/api/v2/users",
        {"username": "carol", "password": PASSWORD},
        token=cluster.admin_token(),
    )
    assert created.status in (201, 409), created.text
    page = new_page("carol", at="/profile")

    def change(old: str, new: str, again: str) -> None:
        for name, value in (("old", old), ("new", new), ("repeated", again)):
            page.fill(f"input[name={name}]", value)
        page.click("button", "Change the password")

    change(PASSWORD, "something new", "something else")
    page.wait_for_text("differ")
    change("a wrong password", "something new", "something new")
    page.wait_for_text("The current password is not correct.")
    change(PASSWORD, "something new", "something new")
    page.wait_for_text("Sign in with the new one.")
    page.fill("input[name=username]", "carol")
    page.fill("input[name=password]", "something new")
    page.click("button", "Sign in")
    page.wait_for("document.querySelector('.shell') !== null")
    removed = cluster.ask("DELETE", "/api/v2/users/carol", token=cluster.admin_token())
    assert removed.status == 200, removed.text


def test_sign_out_everywhere_ends_all_browsers(new_page: NewPage) -> None:
    page, other = new_page("bob", at="/profile"), new_page("bob", at="/jobs")
    page.click("main button", "Sign out everywhere")
    page.click("dialog button", "Sign out everywhere")
    page.wait_for_text("You are signed out of all browsers.")
    other.wait_for_text("Your session has ended.")
    sign_in(other, "bob")
