"""What tests of the portal share."""

from __future__ import annotations

from collections.abc import Callable

from support.browser import Page
from support.server_fixture import Cluster
from support.team_cluster import PASSWORD

NewPage = Callable[..., Page]


def url_of(cluster: Cluster) -> str:
    return f"http://{cluster.address[0]}:{cluster.address[1]}"


def type_in_terminal(page: Page, text: str) -> None:
    """Type into the terminal of the page once it has the focus; a line break is the key Enter."""
    page.wait_for("Boolean(document.activeElement?.closest('.xterm'))")
    page.insert(text)


def sign_in(page: Page, user: str) -> None:
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", PASSWORD)
    page.click("button", "Sign in")
    page.wait_for("document.querySelector('.shell') !== null")
