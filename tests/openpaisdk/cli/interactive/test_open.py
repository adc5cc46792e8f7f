"""`pai open`: a link that signs a browser in, once."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from support.cli_user import CliUser


def redeem(link: str) -> dict[str, object]:
    """What the portal does with the link."""
    address = urlsplit(link)
    [code] = parse_qs(address.fragment.partition("?")[2])["code"]
    request = urllib.request.Request(
        f"{address.scheme}://{address.netloc}/api/v2/authn/session",
        json.dumps({"code": code}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        found: dict[str, object] = json.load(response)
    return found


def test_link_of_the_embedded_cluster_signs_its_user_in(shared_user: CliUser) -> None:
    printed = shared_user.pai("open", "--print")
    assert printed.status == 0, printed.err
    assert redeem(printed.out.strip())["user"] == shared_user.handshake()["user"]


def test_link_leads_to_the_page_of_a_job(shared_user: CliUser) -> None:
    assert shared_user.pai("sub", "-j", "opened", "--", "true").status == 0
    user = shared_user.handshake()["user"]
    printed = shared_user.pai("open", "opened", "--print", "--user", user, "-o", "json")
    link = json.loads(printed.out)["url"]
    assert parse_qs(urlsplit(link).fragment.partition("?")[2])["to"] == [f"/jobs/{user}~opened"]


def test_job_that_does_not_exist_is_an_error(shared_user: CliUser) -> None:
    done = shared_user.pai("open", "no-such-job", "--print")
    assert done.status != 0 and "no-such-job" in done.err
    assert done.out == ""


def test_browser_is_started_where_there_is_a_display(shared_user: CliUser, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f"#!{sys.executable}\nimport sys\nopen({str(opened)!r}, 'w').write(sys.argv[1])\n")
    browser.chmod(0o755)
    done = shared_user.pai("open", env={"DISPLAY": ":9", "BROWSER": f"{browser} %s"})
    assert done.status == 0 and "in your browser" in done.err
    assert "code=" not in done.err and done.out.strip() == ""
    assert redeem(opened.read_text())["user"]


def test_link_is_printed_without_a_display(shared_user: CliUser) -> None:
    done = shared_user.pai("open", env={"DISPLAY": "", "WAYLAND_DISPLAY": ""})
    assert done.status == 0 and "#/sign-in?code=" in done.out
