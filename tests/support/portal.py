"""What tests of the portal share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from support.browser import Page
from support.server_fixture import Cluster
from support.team_cluster import PASSWORD, TeamCluster

NewPage = Callable[..., Page]
LOG = "document.querySelector('.log')"
# Lets one part of an upload through, and the others when `release()` is called.
HOLD_PARTS = """(() => { const send = window.fetch; window.held = 0;
  const released = new Promise((release) => { window.release = release; });
  window.fetch = async (address, init) => {
    if (String(address).includes("/uploads/") && init?.method === "PUT" && ++window.held > 1) await released;
    return send(address, init);
  }; })()"""


def terminal_variables(home: Path) -> dict[str, str]:
    """For a server in whose tasks terminals are opened, and closed while their shells start.

    The start files of the account that runs the tests may take long, and leave locks when they are ended.
    """
    folder = home.with_name("account")
    folder.mkdir()
    return {"HOME": str(folder)}


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
    # The pages of an expired session are there all the time, below the form.
    page.wait_for("document.querySelector('.shell:not(.resting)') !== null")


def open_signed_in(page: Page, cluster: TeamCluster, user: str, at: str) -> None:
    """Open a page by a one-time link: half the work of a sign-in with a password."""
    link = cluster.ask("POST", "/api/v2/authn/links", token=cluster.tokens[user]).json()["url"]
    page.open(f"{link}&{urlencode({'to': at})}")
    page.wait_for("document.querySelector('.shell') !== null")


def end_sessions(cluster: TeamCluster, user: str) -> None:
    """End the user's sessions in all browsers, as if they had expired."""
    token = cluster.tokens[user]
    for row in cluster.get("/api/v2/tokens?details", token=token).json()["details"]:
        if row["name"] == "browser":
            assert cluster.ask("DELETE", f"/api/v2/tokens/{row['id']}", token=token).status == 200
