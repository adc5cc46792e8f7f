"""The portal in a real Chromium, against a real cluster with three users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote

import pytest

from support.browser import Browser, Page
from support.node import build_portal
from support.paths import REPOSITORY
from support.portal import NewPage, open_signed_in, sign_in, terminal_variables, url_of
from support.server_fixture import Cluster
from support.team_cluster import MACHINE, USERS, TeamCluster, add_users

# Failed requests are what some tests are about. And a browser copies styles when it edits text itself: the
# policy blocks that, and the editor draws its lines again.
EXPECTED = ("Failed to load resource", "WebSocket connection to", "Applying inline style")


@pytest.fixture(scope="session")
def portal_files() -> None:
    """The portal of this checkout."""
    build_portal()


@pytest.fixture(scope="session")
def browser(portal_files: None) -> Iterator[Browser]:
    """One for all tests, as its start takes long: their pages share nothing."""
    running = Browser()
    yield running
    running.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, portal_files: None) -> Iterator[TeamCluster]:
    home = tmp_path_factory.mktemp("portal") / "home"
    add_users(home)
    running = TeamCluster(home, MACHINE, terminal_variables(home))
    try:
        running.start()
        running.tokens = {user: running.log_in(user) for user in USERS}
        running.user, running.token = "alice", running.tokens["alice"]
        yield running
    finally:
        running.close()


@pytest.fixture
def new_page(browser: Browser, cluster: TeamCluster) -> Iterator[NewPage]:
    """Makes a page, by default one in which alice is signed in. No script of a page may fail."""
    pages: list[Page] = []
    with ExitStack() as stack:

        def make(user: str | None = "alice", at: str = "/jobs", **more: object) -> Page:
            page = stack.enter_context(browser.page(**more))  # type: ignore[arg-type]
            pages.append(page)
            if user in cluster.tokens:
                open_signed_in(page, cluster, user, at)
                return page
            page.open(f"{url_of(cluster)}/#{at}")
            if user is not None:
                sign_in(page, user)
            return page

        yield make
        for page in pages:
            own = [one for one in page.problems() if not one.startswith(EXPECTED)]
            assert own == []


@pytest.fixture
def page(new_page: NewPage) -> Page:
    return new_page()


@pytest.fixture(scope="session")
def axe(portal_files: None) -> str:
    return (REPOSITORY / "portal/node_modules/axe-core/axe.min.js").read_text()


@pytest.fixture(scope="module", name="own")
def embedded_cluster(tmp_path_factory: pytest.TempPathFactory, portal_files: None) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("embedded") / "home")
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def own_page(browser: Browser, own: Cluster) -> Iterator[Page]:
    """A page in which the user of the embedded cluster is signed in."""
    with browser.page() as made:
        made.open(own.ask("POST", "/api/v2/authn/links").json()["url"])
        made.wait_for("document.querySelector('.shell') !== null")
        yield made


@pytest.fixture
def folder(cluster: TeamCluster, request: pytest.FixtureRequest) -> str:
    """A folder of the storage that this test has alone."""
    path = f"/user/alice/{request.node.name}"
    made = cluster.ask("PUT", f"/webhdfs/v1{quote(path)}?op=MKDIRS")
    assert made.status == 200, made.text
    return path
