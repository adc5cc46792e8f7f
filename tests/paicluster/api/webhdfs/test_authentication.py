"""Identity is the token; tickets open one path for one thing; a name alone opens nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from paicluster.api.webhdfs.token_codec import decode
from support.webhdfs_client import PASSWORD, StorageCluster, Web, exception


def test_a_name_alone_is_nobody(nobody: Web) -> None:
    for parameters in ({}, {"user__name": "alice"}, {"user__name": "admin"}, {"doas": "alice"}):
        assert exception(nobody.get("LISTSTATUS", "/user/alice", **parameters)) == (401, "SecurityException")


@pytest.mark.slow
def test_a_name_is_believed_where_the_administrator_says_so_but_makes_no_administrator(
    new_cluster: Callable[..., StorageCluster],
) -> None:
    cluster = new_cluster("authentication: {trust-user-name: true}\n")
    web = Web(cluster, None)
    assert web.json("GETHOMEDIRECTORY", "/", user__name="alice") == {"Path": "/user/alice"}
    location = web.put("CREATE", "/user/alice/file", user__name="alice").headers["location"]
    assert cluster.ask("PUT", _path(location), "x", token=None).status == 201
    assert exception(web.get("LISTSTATUS", "/user/alice", user__name="bob")) == (
        403,
        "AccessControlException",
    )
    assert exception(web.get("LISTSTATUS", "/user/alice", user__name="admin")) == (
        403,
        "AccessControlException",
    )
    assert exception(web.get("LISTSTATUS", "/", user__name="stranger")) == (401, "SecurityException")


def _path(location: str) -> str:
    where = urlsplit(location)
    return f"{where.path}?{where.query}"


def test_a_token_comes_in_a_header_or_as_delegation(alice: Web, nobody: Web) -> None:
    assert nobody.json("GETHOMEDIRECTORY", "/", delegation=alice.token) == {"Path": "/user/alice"}
    # Whoever shows a token is who the token says, whatever name he writes beside it.
    assert alice.json("GETHOMEDIRECTORY", "/", user__name="bob") == {"Path": "/user/alice"}
    for wrong in ("x", "a.b.c", "%00", base64.urlsafe_b64encode(b"\x05").decode(), "é"):
        reply = nobody.get("GETHOMEDIRECTORY", "/", delegation=wrong)
        assert exception(reply) == (401, "SecurityException")
        assert "SecretManager$InvalidToken: " in reply.json()["RemoteException"]["message"]
    reply = nobody.ask("GET", "LISTSTATUS", "/", headers={"Authorization": "Bearer x"})
    assert exception(reply) == (401, "SecurityException")


def test_a_delegation_token_lives_as_hadoop_expects(alice: Web, bob: Web, nobody: Web) -> None:
    token = alice.json("GETDELEGATIONTOKEN", "/", renewer="alice")["Token"]["urlString"]
    assert alice.token not in token
    assert nobody.json("GETHOMEDIRECTORY", "/", delegation=token) == {"Path": "/user/alice"}
    assert exception(bob.put("CANCELDELEGATIONTOKEN", "/", token=token)) == (403, "AccessControlException")
    until = alice.put("RENEWDELEGATIONTOKEN", "/", token=token).json()["long"]
    assert alice.put("RENEWDELEGATIONTOKEN", "/", token=token).json()["long"] == until
    assert alice.put("CANCELDELEGATIONTOKEN", "/", token=token).status == 200
    assert exception(nobody.get("GETHOMEDIRECTORY", "/", delegation=token)) == (401, "SecurityException")
    assert exception(alice.put("RENEWDELEGATIONTOKEN", "/", token=token)) == (403, "InvalidToken")
    assert alice.json("GETHOMEDIRECTORY", "/") == {"Path": "/user/alice"}


def test_a_delegation_token_cannot_be_had_for_another_one(alice: Web, nobody: Web) -> None:
    token = alice.json("GETDELEGATIONTOKEN", "/")["Token"]["urlString"]
    reply = nobody.get("GETDELEGATIONTOKEN", "/", delegation=token)
    assert exception(reply) == (403, "AccessControlException")
    # Nor by taking it out of Hadoop's clothes.
    inner = Web(alice.cluster, decode(token))
    assert inner.json("GETHOMEDIRECTORY", "/") == {"Path": "/user/alice"}
    assert exception(inner.get("GETDELEGATIONTOKEN", "/")) == (403, "AccessControlException")
    assert alice.json("GETDELEGATIONTOKEN", "/")


def test_an_application_gets_its_own_token_back(alice: Web, cluster: StorageCluster) -> None:
    reply = cluster.ask("POST", "/api/v2/tokens/application", token=cluster.log_in("alice"))
    application = Web(cluster, reply.json()["token"])
    before = len(cluster.get("/api/v2/tokens", token=alice.token).json()["tokens"])
    token = application.json("GETDELEGATIONTOKEN", "/")["Token"]["urlString"]
    assert Web(cluster, None).json("GETHOMEDIRECTORY", "/", delegation=token) == {"Path": "/user/alice"}
    assert len(cluster.get("/api/v2/tokens", token=alice.token).json()["tokens"]) == before


def test_a_ticket_is_good_for_one_path_and_one_operation(
    alice: Web, folder: str, cluster: StorageCluster
) -> None:
    location = alice.put("CREATE", f"{folder}/file").headers["location"]
    good = _path(location)

    def ask(method: str, path: str) -> tuple[int, str]:
        return exception(cluster.ask(method, path, "x", token=None))

    refused = (401, "SecurityException")
    assert ask("PUT", good.replace("/file?", "/other?")) == refused
    assert ask("PUT", good.replace("user.name=alice", "user.name=admin")) == refused
    assert ask("PUT", good.replace("user.name=alice", "user.name=bob")) == refused
    assert ask("PUT", good.replace("op=CREATE", "op=MKDIRS")) == refused
    assert ask("POST", good.replace("op=CREATE", "op=APPEND")) == refused
    assert ask("GET", good.replace("op=CREATE", "op=OPEN")) == refused
    ticket = parse_qs(urlsplit(location).query)["ticket"][0]
    assert ask("PUT", good.replace(ticket, ticket.replace("u-", "a-"))) == refused
    expires = ticket.split("-")[1].split(".")[0]
    assert ask("PUT", good.replace(expires, str(int(expires) + 1))) == refused
    assert ask("PUT", good.replace(expires, "1")) == refused
    assert ask("PUT", good.replace(ticket, "")) == refused
    assert cluster.ask("PUT", good, "x", token=None).status == 201


def test_an_administrator_acts_for_others_and_nobody_else_does(
    alice: Web, bob: Web, admin: Web, folder: str
) -> None:
    assert admin.json("GETHOMEDIRECTORY", "/", doas="bob") == {"Path": "/user/bob"}
    assert exception(admin.get("LISTSTATUS", folder, doas="bob")) == (403, "AccessControlException")
    assert exception(bob.get("LISTSTATUS", folder, doas="alice")) == (403, "AccessControlException")
    assert alice.json("GETHOMEDIRECTORY", "/", doas="alice") == {"Path": "/user/alice"}


@pytest.mark.slow
def test_neither_tickets_nor_tokens_reach_a_log(
    new_cluster: Callable[..., StorageCluster],
) -> None:
    cluster = new_cluster()
    alice, nobody = cluster.person("alice"), Web(cluster, None)
    location = alice.put("CREATE", "/user/alice/file").headers["location"]
    ticket = parse_qs(urlsplit(location).query)["ticket"][0]
    assert cluster.ask("PUT", _path(location), "x", token=None).status == 201
    delegation = alice.json("GETDELEGATIONTOKEN", "/")["Token"]["urlString"]
    nobody.get("LISTSTATUS", "/none", delegation=delegation)
    nobody.get("NOSUCH", "/none", delegation=delegation)
    cluster.get(f"/webhdfs/v2/none?op=LISTSTATUS&delegation={quote(delegation)}", token=None)
    alice.put("CANCELDELEGATIONTOKEN", "/", token=delegation)
    assert cluster.terminate() == 0
    written = cluster.log.read_bytes()
    for file in cluster.home.glob("*.log*"):
        written += file.read_bytes()
    # Who did what is there, all the same.
    lines = [json.loads(line) for line in (cluster.home / "audit.log").read_text().splitlines()]
    done = [(line["user"], line["status"]) for line in lines if line["path"] == "/webhdfs/v1/user/alice/file"]
    assert done == [("alice", 307), ("alice", 201)]
    for secret in (
        ticket,
        ticket.split(".")[1],
        delegation,
        str(alice.token),
        "delegation=",
        "ticket=",
        PASSWORD,
    ):
        assert secret.encode() not in written
