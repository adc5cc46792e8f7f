"""WebHDFS authentication: tokens, tickets for one path and operation, trusted names."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from paicluster.api.webhdfs.token_codec import decode
from support.webhdfs_client import PASSWORD, StorageCluster, WebHdfsClient, exception


def test_user_name_alone_is_not_authenticated(anonymous: WebHdfsClient) -> None:
    for parameters in ({}, {"user__name": "alice"}, {"user__name": "admin"}, {"doas": "alice"}):
        assert exception(anonymous.get("LISTSTATUS", "/user/alice", **parameters)) == (
            401,
            "SecurityException",
        )


@pytest.mark.slow
def test_trusted_user_name_never_grants_administrator_rights(
    new_cluster: Callable[..., StorageCluster],
) -> None:
    cluster = new_cluster("authentication: {trust-user-name: true}\n")
    client = WebHdfsClient(cluster, None)
    assert client.json("GETHOMEDIRECTORY", "/", user__name="alice") == {"Path": "/user/alice"}
    location = client.put("CREATE", "/user/alice/file", user__name="alice").headers["location"]
    assert cluster.ask("PUT", _path(location), "x", token=None).status == 201
    assert exception(client.get("LISTSTATUS", "/user/alice", user__name="bob")) == (
        403,
        "AccessControlException",
    )
    assert exception(client.get("LISTSTATUS", "/user/alice", user__name="admin")) == (
        403,
        "AccessControlException",
    )
    assert exception(client.get("LISTSTATUS", "/", user__name="unknown")) == (401, "SecurityException")


def _path(location: str) -> str:
    where = urlsplit(location)
    return f"{where.path}?{where.query}"


def test_token_in_header_or_delegation_parameter(alice: WebHdfsClient, anonymous: WebHdfsClient) -> None:
    assert anonymous.json("GETHOMEDIRECTORY", "/", delegation=alice.token) == {"Path": "/user/alice"}
    # The token determines the user, whatever `user.name` says.
    assert alice.json("GETHOMEDIRECTORY", "/", user__name="bob") == {"Path": "/user/alice"}
    for wrong in ("x", "a.b.c", "%00", base64.urlsafe_b64encode(b"\x05").decode(), "é"):
        reply = anonymous.get("GETHOMEDIRECTORY", "/", delegation=wrong)
        assert exception(reply) == (401, "SecurityException")
        assert "SecretManager$InvalidToken: " in reply.json()["RemoteException"]["message"]
    reply = anonymous.ask("GET", "LISTSTATUS", "/", headers={"Authorization": "Bearer x"})
    assert exception(reply) == (401, "SecurityException")


def test_delegation_token_lifecycle(
    alice: WebHdfsClient, bob: WebHdfsClient, anonymous: WebHdfsClient
) -> None:
    token = alice.json("GETDELEGATIONTOKEN", "/", renewer="alice")["Token"]["urlString"]
    assert alice.token not in token
    assert anonymous.json("GETHOMEDIRECTORY", "/", delegation=token) == {"Path": "/user/alice"}
    assert exception(bob.put("CANCELDELEGATIONTOKEN", "/", token=token)) == (403, "AccessControlException")
    until = alice.put("RENEWDELEGATIONTOKEN", "/", token=token).json()["long"]
    assert alice.put("RENEWDELEGATIONTOKEN", "/", token=token).json()["long"] == until
    assert alice.put("CANCELDELEGATIONTOKEN", "/", token=token).status == 200
    assert exception(anonymous.get("GETHOMEDIRECTORY", "/", delegation=token)) == (401, "SecurityException")
    assert exception(alice.put("RENEWDELEGATIONTOKEN", "/", token=token)) == (403, "InvalidToken")
    assert alice.json("GETHOMEDIRECTORY", "/") == {"Path": "/user/alice"}


def test_delegation_token_cannot_issue_another_one(alice: WebHdfsClient, anonymous: WebHdfsClient) -> None:
    token = alice.json("GETDELEGATIONTOKEN", "/")["Token"]["urlString"]
    reply = anonymous.get("GETDELEGATIONTOKEN", "/", delegation=token)
    assert exception(reply) == (403, "AccessControlException")
    # Nor with the inner token of the Hadoop token.
    inner = WebHdfsClient(alice.cluster, decode(token))
    assert inner.json("GETHOMEDIRECTORY", "/") == {"Path": "/user/alice"}
    assert exception(inner.get("GETDELEGATIONTOKEN", "/")) == (403, "AccessControlException")
    assert alice.json("GETDELEGATIONTOKEN", "/")


def test_application_gets_its_own_token_back(alice: WebHdfsClient, cluster: StorageCluster) -> None:
    reply = cluster.ask("POST", "/api/v2/tokens/application", token=cluster.log_in("alice"))
    application = WebHdfsClient(cluster, reply.json()["token"])
    before = len(cluster.get("/api/v2/tokens", token=alice.token).json()["tokens"])
    token = application.json("GETDELEGATIONTOKEN", "/")["Token"]["urlString"]
    assert WebHdfsClient(cluster, None).json("GETHOMEDIRECTORY", "/", delegation=token) == {
        "Path": "/user/alice"
    }
    assert len(cluster.get("/api/v2/tokens", token=alice.token).json()["tokens"]) == before


def test_ticket_is_valid_for_one_path_and_operation(
    alice: WebHdfsClient, folder: str, cluster: StorageCluster
) -> None:
    location = alice.put("CREATE", f"{folder}/file").headers["location"]
    valid = _path(location)

    def ask(method: str, path: str) -> tuple[int, str]:
        return exception(cluster.ask(method, path, "x", token=None))

    unauthorized = (401, "SecurityException")
    assert ask("PUT", valid.replace("/file?", "/other?")) == unauthorized
    assert ask("PUT", valid.replace("user.name=alice", "user.name=admin")) == unauthorized
    assert ask("PUT", valid.replace("user.name=alice", "user.name=bob")) == unauthorized
    assert ask("PUT", valid.replace("op=CREATE", "op=MKDIRS")) == unauthorized
    assert ask("POST", valid.replace("op=CREATE", "op=APPEND")) == unauthorized
    assert ask("GET", valid.replace("op=CREATE", "op=OPEN")) == unauthorized
    ticket = parse_qs(urlsplit(location).query)["ticket"][0]
    assert ask("PUT", valid.replace(ticket, ticket.replace("u-", "a-"))) == unauthorized
    expires = ticket.split("-")[1].split(".")[0]
    assert ask("PUT", valid.replace(expires, str(int(expires) + 1))) == unauthorized
    assert ask("PUT", valid.replace(expires, "1")) == unauthorized
    assert ask("PUT", valid.replace(ticket, "")) == unauthorized
    assert cluster.ask("PUT", valid, "x", token=None).status == 201


def test_only_administrators_can_impersonate(
    alice: WebHdfsClient, bob: WebHdfsClient, admin: WebHdfsClient, folder: str
) -> None:
    assert admin.json("GETHOMEDIRECTORY", "/", doas="bob") == {"Path": "/user/bob"}
    assert exception(admin.get("LISTSTATUS", folder, doas="bob")) == (403, "AccessControlException")
    assert exception(bob.get("LISTSTATUS", folder, doas="alice")) == (403, "AccessControlException")
    assert alice.json("GETHOMEDIRECTORY", "/", doas="alice") == {"Path": "/user/alice"}


@pytest.mark.slow
def test_tickets_and_tokens_are_not_logged(
    new_cluster: Callable[..., StorageCluster],
) -> None:
    cluster = new_cluster()
    alice, anonymous = cluster.client("alice"), WebHdfsClient(cluster, None)
    location = alice.put("CREATE", "/user/alice/file").headers["location"]
    ticket = parse_qs(urlsplit(location).query)["ticket"][0]
    assert cluster.ask("PUT", _path(location), "x", token=None).status == 201
    delegation = alice.json("GETDELEGATIONTOKEN", "/")["Token"]["urlString"]
    anonymous.get("LISTSTATUS", "/none", delegation=delegation)
    anonymous.get("NOSUCH", "/none", delegation=delegation)
    cluster.get(f"/webhdfs/v2/none?op=LISTSTATUS&delegation={quote(delegation)}", token=None)
    alice.put("CANCELDELEGATIONTOKEN", "/", token=delegation)
    assert cluster.terminate() == 0
    logged = cluster.log.read_bytes()
    for file in cluster.home.glob("*.log*"):
        logged += file.read_bytes()
    # The audit log has the operations.
    lines = [json.loads(line) for line in (cluster.home / "audit.log").read_text().splitlines()]
    operations = [
        (line["user"], line["status"]) for line in lines if line.get("path") == "/webhdfs/v1/user/alice/file"
    ]
    assert operations == [("alice", 307), ("alice", 201)]
    for secret in (
        ticket,
        ticket.split(".")[1],
        delegation,
        str(alice.token),
        "delegation=",
        "ticket=",
        PASSWORD,
    ):
        assert secret.encode() not in logged
