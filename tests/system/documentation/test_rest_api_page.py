"""docs/rest-api.md lists the existing routes, from their declarations."""

from __future__ import annotations

import re

from paicluster.api.route_reference import current_page
from paicluster.api.routes import DESCRIBED_ROUTES
from support.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "rest-api.md"


def test_tables_of_routes_are_current() -> None:
    assert current_page(PAGE) == PAGE.read_text(), "run `make docs`"


def test_page_has_every_route_and_one_name_of_each_alias() -> None:
    text = PAGE.read_text()
    listed = set(re.findall(r"`(/[^`]*)`(?:<br>| \|)", text))
    for route in DESCRIBED_ROUTES:
        path = re.sub(r":\w+\}", "}", route.path)
        assert re.sub(r"^(/api/v2/(?:user|group))(?=/|$)", r"\1s", path) in listed, path
    assert "`/user` and `/group` are aliases of `/users` and `/groups`" in text
