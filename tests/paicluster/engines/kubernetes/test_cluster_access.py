"""Kubeconfig files, service accounts and programs that print credentials."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from paicluster.engines.kubernetes import cluster_access
from paicluster.engines.kubernetes.cluster_access import ClusterAccess
from paiprotocol.errors import ConfigError


def kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://k.example.com:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "lab"}},
            {"name": "broken", "context": {"cluster": "missing", "user": "u"}},
        ],
        "current-context": "one",
    }
    path.write_text(json.dumps(document))
    return path


async def authorization(access: ClusterAccess) -> str | None:
    return (await access.credentials.headers()).get("Authorization")


async def test_token_and_authority_inside_the_file(tmp_path: Path) -> None:
    ca = base64.b64encode(b"PEM").decode()
    file = kubeconfig(tmp_path / "config", {"token": "abc"}, **{"certificate-authority-data": ca})
    access = cluster_access.of_kubeconfig([file])
    assert (access.server, access.ca, access.namespace) == ("https://k.example.com:6443", "PEM", "lab")
    assert await authorization(access) == "Bearer abc"
    assert "abc" not in repr(access)


async def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("CA")
    (tmp_path / "token").write_text("from a file\n")
    file = kubeconfig(tmp_path / "config", {"tokenFile": "token"}, **{"certificate-authority": "ca.pem"})
    access = cluster_access.of_kubeconfig([file])
    assert access.ca == "CA"
    assert await authorization(access) == "Bearer from a file"


async def test_replaced_token_is_read_again_when_the_old_one_is_rejected(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    credentials = cluster_access.TokenFile(token)
    assert (await credentials.headers())["Authorization"] == "Bearer old"
    token.write_text("new")
    assert (await credentials.headers())["Authorization"] == "Bearer old"
    credentials.reject()
    assert (await credentials.headers())["Authorization"] == "Bearer new"


def plugin(folder: Path, status: dict[str, Any], exit_status: int = 0) -> dict[str, Any]:
    """A program that counts its calls."""
    program = folder / "plugin"
    answer = json.dumps({"kind": "ExecCredential", "status": status})
    program.write_text(
        f'#!/bin/sh\necho x >> {folder}/calls\ntest -n "$KUBERNETES_EXEC_INFO" || exit 9\n'
        f"echo \"$GREETING\" > {folder}/greeting\necho 'no login' >&2\necho '{answer}'\nexit {exit_status}\n"
    )
    program.chmod(0o755)
    environment = [{"name": "GREETING", "value": "hello"}]
    return {"exec": {"command": "./plugin", "args": ["get"], "env": environment}}


async def test_program_is_called_once_until_its_token_expires(tmp_path: Path) -> None:
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    file = kubeconfig(tmp_path / "config", plugin(tmp_path, {"token": "t", "expirationTimestamp": later}))
    access = cluster_access.of_kubeconfig([file])
    for _ in range(3):
        assert await authorization(access) == "Bearer t"
    assert (tmp_path / "calls").read_text() == "x\n"
    assert (tmp_path / "greeting").read_text() == "hello\n"
    access.credentials.reject()
    await authorization(access)
    assert (tmp_path / "calls").read_text() == "x\nx\n"


async def test_expired_token_of_a_program_is_renewed(tmp_path: Path) -> None:
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 5))
    file = kubeconfig(tmp_path / "config", plugin(tmp_path, {"token": "t", "expirationTimestamp": soon}))
    access = cluster_access.of_kubeconfig([file])
    await authorization(access)
    await authorization(access)
    assert (tmp_path / "calls").read_text() == "x\nx\n"


async def test_failed_program_is_reported_with_its_words(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", plugin(tmp_path, {"token": "t"}, exit_status=1))
    with pytest.raises(ConfigError, match="no login"):
        await authorization(cluster_access.of_kubeconfig([file]))


@pytest.mark.parametrize(
    ("text", "context", "words"),
    [
        ("clusters: [", "", "not valid YAML"),
        ("- a", "", "not a kubeconfig"),
        ("{}", "", "no current context"),
        (None, "broken", "no cluster missing"),
        (None, "nosuch", "no context nosuch"),
    ],
)
def test_unusable_kubeconfig_is_one_sentence(
    tmp_path: Path, text: str | None, context: str, words: str
) -> None:
    file = kubeconfig(tmp_path / "config", {})
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        cluster_access.of_kubeconfig([file], context)


def test_missing_kubeconfig_and_bad_certificates_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no kubeconfig"):
        cluster_access.of_kubeconfig([tmp_path / "none"])
    file = kubeconfig(tmp_path / "config", {"client-certificate-data": "***"})
    with pytest.raises(ConfigError, match="not base64"):
        cluster_access.of_kubeconfig([file])
    good = base64.b64encode(b"no certificate").decode()
    file = kubeconfig(tmp_path / "config", {"client-certificate-data": good, "client-key-data": good})
    with pytest.raises(ConfigError, match="client certificate is not valid"):
        cluster_access.of_kubeconfig([file]).tls()


def test_files_of_the_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", "/a:/b")
    assert cluster_access.kubeconfig_files() == [Path("/a"), Path("/b")]
    assert cluster_access.kubeconfig_files("/c") == [Path("/c")]
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cluster_access.kubeconfig_files() == [tmp_path / ".kube/config"]


async def test_contexts_may_be_in_another_file_than_users(tmp_path: Path) -> None:
    whole = json.loads(kubeconfig(tmp_path / "config", {"token": "t"}).read_text())
    parts = [tmp_path / "a", tmp_path / "b"]
    parts[0].write_text(json.dumps({key: whole[key] for key in ("contexts", "current-context")}))
    parts[1].write_text(json.dumps({key: whole[key] for key in ("users", "clusters")}))
    assert await authorization(cluster_access.of_kubeconfig(parts)) == "Bearer t"


async def test_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("token", "t"), ("ca.crt", "CA"), ("namespace", "lab\n")):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    access = cluster_access.of_service_account(tmp_path)
    assert (access.server, access.ca, access.namespace) == ("https://10.0.0.1:6443", "CA", "lab")
    assert await authorization(access) == "Bearer t"
