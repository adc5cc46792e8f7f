"""Router of PaddleCloud's dialect: paths as its clients write them."""

from __future__ import annotations

import pytest

from paicluster.api.routes import PADDLECLOUD_ROUTES
from support.paddlecloud_go_client import GoClient

ROUTES = sorted(
    (method, route.path.replace("{job}", "no-job"))
    for route in PADDLECLOUD_ROUTES
    for method in route.methods
)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_trailing_and_doubled_slashes_are_no_redirects(go: GoClient, method: str, path: str) -> None:
    """Go sends a redirected POST as a GET, and its client has an endpoint that may end with a slash."""
    body = None if method == "GET" else {}
    replies = [go.call(method, target, body) for target in (path, path + "/", "/" + path, "/" + path + "/")]
    statuses = {reply.status_line.split()[1] for reply in replies}
    assert len(statuses) == 1, statuses
    assert statuses <= {"200", "400", "404", "405"}, statuses
    # No such route would be a 404 with another sentence.
    assert not any(b"PaddleCloud has no" in reply.body for reply in replies)
