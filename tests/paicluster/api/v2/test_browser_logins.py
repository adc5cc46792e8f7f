"""Sessions of browsers: sign in with a password or a one-time link, the two halves of the token, sign out."""

from __future__ import annotations

import json
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlsplit

import pytest

from paicluster.api.identity import sign_in_links
from paicluster.api.identity.sign_in_links import MAX_LINKS_PER_USER, SignInLinks
from support.server_fixture import Cluster, Reply
from support.team_cluster import PASSWORD, TeamCluster

SESSION = "/api/v2/authn/session"
LINKS = "/api/v2/authn/links"


class BrowserUser:
    """Sends what the portal sends: the cookie, and the proof as a header."""

    def __init__(self, cluster: Cluster, signed_in: Reply) -> None:
        assert signed_in.status == 200, signed_in.text
        self._cluster = cluster
        cookie = SimpleCookie(signed_in.headers["set-cookie"])
        [(self.cookie_name, self.cookie)] = cookie.items()
        self.proof: str = signed_in.json()["proof"]

    def ask(self, method: str, path: str, body: object = None, **changed: str | None) -> Reply:
        values = {"cookie": f"{self.cookie_name}={self.cookie.value}", "proof": self.proof, **changed}
        names = {"cookie": "Cookie", "proof": "X-PAI-Session-Proof"}
        headers = {names[key]: value for key, value in values.items() if value is not None}
        return self._cluster.ask(method, path, body, headers, token=None)


def sign_in(cluster: TeamCluster, user: str = "bob", **headers: str) -> Reply:
    return cluster.ask("POST", SESSION, {"username": user, "password": PASSWORD}, headers, token=None)


@pytest.fixture
def bob(cluster: TeamCluster) -> BrowserUser:
    return BrowserUser(cluster, sign_in(cluster))


def test_session_of_a_browser_reaches_the_api(cluster: TeamCluster, bob: BrowserUser) -> None:
    signed_in = sign_in(cluster, "admin").json()
    assert (signed_in["user"], signed_in["admin"]) == ("admin", True)
    assert bob.ask("GET", "/api/v2/jobs").status == 200
    assert bob.ask("GET", "/api/v2/tokens/check").json()["username"] == "bob"
    assert bob.ask("GET", "/webhdfs/v1/user/bob?op=LISTSTATUS_BATCH").status == 200
    assert bob.ask("GET", "/webhdfs/v1/user/bob?op=LISTSTATUS_BATCH", proof=None).status == 401


def test_cookie_is_for_this_port_and_no_script(cluster: TeamCluster, bob: BrowserUser) -> None:
    assert bob.cookie_name == f"pai-session-{cluster.address[1]}"
    assert (bob.cookie["httponly"], bob.cookie["samesite"], bob.cookie["path"]) == (True, "strict", "/")


def test_neither_half_of_the_token_is_enough(cluster: TeamCluster, bob: BrowserUser) -> None:
    other = BrowserUser(cluster, sign_in(cluster, "alice"))
    assert bob.ask("GET", "/api/v2/jobs", proof=None).status == 401
    assert bob.ask("GET", "/api/v2/jobs", cookie=None).status == 401
    assert bob.ask("GET", "/api/v2/jobs", proof="").status == 401
    assert bob.ask("GET", "/api/v2/jobs", proof=other.proof).status == 401
    # A server of a job on this host sees the cookie.
    for stolen in (bob.cookie.value, f"{bob.cookie.value}."):
        assert cluster.get("/api/v2/jobs", token=stolen).status == 401


def test_page_of_another_site_cannot_start_a_session(cluster: TeamCluster) -> None:
    for site in ("cross-site", "same-site"):
        refused = sign_in(cluster, **{"Sec-Fetch-Site": site})
        assert refused.status == 403 and "set-cookie" not in refused.headers
    assert sign_in(cluster, **{"Sec-Fetch-Site": "same-origin"}).status == 200
    # Over HTTP to another host than localhost, browsers send only the origin.
    for origin in ("http://evil.example", "null", "http://[", f"http://{cluster.address[0]}:1"):
        refused = sign_in(cluster, Origin=origin)
        assert refused.status == 403 and "set-cookie" not in refused.headers, origin
    host, port = cluster.address
    assert sign_in(cluster, Origin=f"http://{host}:{port}").status == 200
    # A proxy may ask by another name; then the browser's own word counts.
    behind_proxy = {"Sec-Fetch-Site": "same-origin", "Origin": "https://pai.example"}
    assert sign_in(cluster, **behind_proxy).status == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"username": "bob", "password": "wrong password"}, "Password is incorrect."),
        ({"username": "ghost", "password": PASSWORD}, "User ghost is not found."),
        ({"username": "bob", "password": ""}, "Enter a user name and a password."),
        ({}, "Enter a user name and a password."),
        ({"code": "x"}, "The sign-in link has expired or was used before."),
    ],
)
def test_wrong_credentials_start_no_session(cluster: TeamCluster, body: object, message: str) -> None:
    refused = cluster.ask("POST", SESSION, body, token=None)
    assert refused.status in (400, 401) and "set-cookie" not in refused.headers
    assert refused.json()["message"] == message


def test_sign_out_ends_this_session_only(cluster: TeamCluster, bob: BrowserUser) -> None:
    other = BrowserUser(cluster, sign_in(cluster))
    left = bob.ask("DELETE", SESSION)
    assert left.status == 200 and "Max-Age=0" in left.headers["set-cookie"]
    assert bob.ask("GET", "/api/v2/jobs").status == 401
    assert other.ask("GET", "/api/v2/jobs").status == 200


def test_sign_out_everywhere_ends_the_sessions_of_all_browsers(
    cluster: TeamCluster, bob: BrowserUser
) -> None:
    other = BrowserUser(cluster, sign_in(cluster))
    alice = BrowserUser(cluster, sign_in(cluster, "alice"))
    assert bob.ask("DELETE", f"{SESSION}?everywhere=true").status == 200
    assert other.ask("GET", "/api/v2/jobs").status == 401
    assert alice.ask("GET", "/api/v2/jobs").status == 200
    assert cluster.get("/api/v2/jobs", token=cluster.tokens["bob"]).status == 200, "that of `pai`"


def code_of(link: Reply) -> str:
    address = urlsplit(link.json()["url"])
    assert address.path == "/" and not address.query, "a server never sees the code"
    [code] = parse_qs(address.fragment.partition("?")[2])["code"]
    return code


def test_link_signs_one_browser_in_once(cluster: TeamCluster) -> None:
    code = code_of(cluster.ask("POST", LINKS, token=cluster.log_in("bob")))
    signed_in = cluster.ask("POST", SESSION, {"code": code}, token=None)
    assert BrowserUser(cluster, signed_in).ask("GET", "/api/v2/tokens/check").json()["username"] == "bob"
    assert cluster.ask("POST", SESSION, {"code": code}, token=None).status == 401


def test_link_ends_with_the_token_that_asked_for_it(cluster: TeamCluster) -> None:
    token = cluster.log_in("bob")
    code = code_of(cluster.ask("POST", LINKS, token=token))
    cluster.ask("DELETE", "/api/v2/authn/basic/logout", token=token)
    assert cluster.ask("POST", SESSION, {"code": code}, token=None).status == 401


def test_application_token_of_a_user_with_a_password_gets_no_link(cluster: TeamCluster) -> None:
    issued = cluster.ask("POST", "/api/v2/tokens/application", {}, token=cluster.tokens["bob"]).json()[
        "token"
    ]
    refused = cluster.ask("POST", LINKS, token=issued)
    assert refused.status == 403
    assert "password" in json.dumps(refused.json())


def test_old_links_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    links = SignInLinks()
    codes = [links.issue("bob", "token") for _ in range(MAX_LINKS_PER_USER + 1)]
    other = links.issue("alice", "token")
    with pytest.raises(Exception, match="expired or was used"):
        links.redeem(codes[0])
    assert links.redeem(codes[1]).username == "bob"
    monkeypatch.setattr(sign_in_links.time, "monotonic", lambda: 1e12)
    with pytest.raises(Exception, match="expired or was used"):
        links.redeem(other)
