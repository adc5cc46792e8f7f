"""Environment with a Jupyter server, and requests to that server as a browser makes them."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

from pairuntime.task import python_packages

TIMEOUT_S = 180


@cache
def environment_with_jupyter() -> Path:
    """Programs of an environment with Jupyter's pages. They are large: only the tests that need them install
    them."""
    return Path(python_packages.environment(sys.executable, ["notebook"])) / "bin"


def open_page(link: str, path: str = "", method: str = "GET", body: object = None) -> tuple[int, str, bytes]:
    """Status, final address and body of a page; ``path`` replaces that of the link."""
    if path:
        origin, _, query = link.partition("?")
        link = f"{'/'.join(origin.split('/')[:3])}{path}?{query}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(link, data=data, method=method)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor()
    )
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.url, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.url, e.read()
