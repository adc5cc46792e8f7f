"""docs/rest-api.md lists exactly the existing routes, and its examples run."""

from __future__ import annotations

import re
import subprocess

import pytest

from paicluster.api.app import ROUTES
from support.external_services import debian
from support.paths import REPOSITORY
from support.team_cluster import PASSWORD, TeamCluster, api_cluster  # noqa: F401

PAGE = REPOSITORY / "docs" / "rest-api.md"


def test_page_lists_exactly_the_existing_routes() -> None:
    text = PAGE.read_text()
    known: dict[str, set[str]] = {}
    for path, methods, _ in ROUTES:
        known.setdefault(re.sub(r":\w+\}", "}", path), set()).update(methods)
    documented = re.findall(r"^\| ([A-Z, ]+|any) \| `([^`]+)` \|", text, re.MULTILINE)
    assert documented
    for methods, path in documented:
        wanted = {"GET", "POST", "PUT", "DELETE"} if methods == "any" else set(methods.split(", "))
        assert path in known, f"{path} is in the page and nowhere else"
        assert wanted <= known[path], f"{methods} {path}"
    paths = {path for _, path in documented}
    for path in known:
        # A page need not repeat what differs in its last part or in an alias: those it names in words.
        family = path.replace("/api/v2/user/", "/api/v2/users/").replace("/api/v2/group/", "/api/v2/groups/")
        family = family.replace("/api/v1/user/{user}/jobs", "/api/v1/jobs")
        last = family.rstrip("/").rsplit("/", 1)[-1]
        assert family in paths or last in text, f"{path} is not in the page"


@pytest.mark.service
def test_examples_run_in_order(cluster: TeamCluster) -> None:
    debian(["curl"], commands=["curl"])
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    # Every curl must be content with what it got.
    script = "set -euo pipefail\n" + "\n".join(blocks).replace("curl -s ", "curl -sS --fail-with-body ")
    host, port = cluster.address
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": "/usr/bin:/bin", "PAI": f"http://{host}:{port}", "NAME": "admin", "PASSWORD": PASSWORD},
        capture_output=True,
        text=True,
        timeout=180,
    )
    admin = cluster.tokens["admin"]
    cluster.ask("DELETE", "/api/v2/users/bob2", token=admin)
    cluster.ask("DELETE", "/api/v2/groups/vision", token=admin)
    removed = cluster.ask("DELETE", "/api/v2/virtual-clusters/speech", token=admin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert removed.status == 201
    assert '"kind":"end"' in done.stdout and '"virtualCluster":["default"]' in done.stdout
