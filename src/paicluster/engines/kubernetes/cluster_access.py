"""Access to a Kubernetes API server: its address and credentials, from a kubeconfig or inside a pod."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import yaml

from paiprotocol.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The kubelet replaces the token of a service account long before it expires.
_TOKEN_FILE_INTERVAL_S = 60.0
_PLUGIN_TIMEOUT_S = 60.0
# A token is renewed this long before it expires.
_RENEWAL_RESERVE_S = 30.0


class ApiCredentials(Protocol):
    """What authenticates requests."""

    async def headers(self) -> Mapping[str, str]: ...

    def load_certificate(self, context: ssl.SSLContext) -> None:
        """Add a client certificate, if there is one."""

    def reject(self) -> None:
        """The API server has rejected them (401): renew what can be renewed."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How to reach an API server. ``ca``: PEM; empty: the system's certificate authorities."""

    server: str
    credentials: ApiCredentials = field(repr=False)
    ca: str = field(default="", repr=False)
    verify: bool = True
    # Name in the server's certificate, where it differs from the address.
    tls_server_name: str = ""
    # Of the kubeconfig's context, or of the pod; empty: not set.
    namespace: str = ""

    def tls(self) -> ssl.SSLContext | None:
        """A context with the current client certificate; None for plain HTTP."""
        if not self.server.startswith("https:"):
            return None
        context = ssl.create_default_context(cadata=self.ca or None)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self.credentials.load_certificate(context)
        return context


class NoCredentials:
    """Anonymous requests."""

    async def headers(self) -> Mapping[str, str]:
        return {}

    def load_certificate(self, context: ssl.SSLContext) -> None:
        pass

    def reject(self) -> None:
        pass


class StaticCredentials(NoCredentials):
    """A client certificate, a token, or both, as a kubeconfig has them."""

    def __init__(self, *, token: str = "", certificate: bytes = b"", key: bytes = b""):
        self._token = token
        self._certificate = certificate
        self._key = key

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def load_certificate(self, context: ssl.SSLContext) -> None:
        if self._certificate:
            _load(context, self._certificate, self._key)


class TokenFile(NoCredentials):
    """A token in a file that another program replaces, as that of a service account."""

    def __init__(self, path: Path):
        self._path = path
        self._token = ""
        self._read_at = -_TOKEN_FILE_INTERVAL_S

    async def headers(self) -> Mapping[str, str]:
        now = time.monotonic()
        if now - self._read_at >= _TOKEN_FILE_INTERVAL_S:
            try:
                self._token = self._path.read_text().strip()
            except OSError as error:
                raise ConfigError(
                    f"The token {self._path} cannot be read: {error.strerror}.",
                    hint="Name another token or certificate in the kubeconfig.",
                ) from error
            self._read_at = now
        return {"Authorization": f"Bearer {self._token}"}

    def reject(self) -> None:
        self._read_at = -_TOKEN_FILE_INTERVAL_S


class ExecPlugin(NoCredentials):
    """A program that prints credentials, as those of cloud providers (client.authentication.k8s.io)."""

    def __init__(self, section: Mapping[str, Any], folder: Path):
        """``folder``: of the kubeconfig, which relative commands start from."""
        command = str(section.get("command", ""))
        if "/" in command:
            command = str(folder / command)
        self._command = [command, *map(str, section.get("args") or ())]
        self._version = str(section.get("apiVersion", "client.authentication.k8s.io/v1beta1"))
        self._environment = {str(pair["name"]): str(pair["value"]) for pair in section.get("env") or ()}
        self._hint = str(section.get("installHint") or "")
        self._lock = asyncio.Lock()
        self._current: StaticCredentials | None = None
        self._expires_s = 0.0

    async def headers(self) -> Mapping[str, str]:
        async with self._lock:
            if self._current is None or time.time() > self._expires_s - _RENEWAL_RESERVE_S:
                await self._renew()
        assert self._current is not None
        return await self._current.headers()

    def load_certificate(self, context: ssl.SSLContext) -> None:
        if self._current is not None:
            self._current.load_certificate(context)

    def reject(self) -> None:
        self._current = None

    async def _renew(self) -> None:
        info = {"apiVersion": self._version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
            )
        except OSError as error:
            reason = f"The program {self._command[0]} of the kubeconfig cannot be started: {error.strerror}."
            raise ConfigError(reason, hint=self._hint) from error
        try:
            async with asyncio.timeout(_PLUGIN_TIMEOUT_S):
                out, err = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise ConfigError(f"The program {self._command[0]} of the kubeconfig did not end.") from None
        try:
            status = json.loads(out)["status"] if process.returncode == 0 else None
        except (ValueError, KeyError):
            status = None
        if not isinstance(status, dict):
            lines = err.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"exit status {process.returncode}"
            raise ConfigError(f"The program {self._command[0]} of the kubeconfig failed: {reason}")
        self._current = StaticCredentials(
            token=str(status.get("token") or ""),
            certificate=str(status.get("clientCertificateData") or "").encode(),
            key=str(status.get("clientKeyData") or "").encode(),
        )
        self._expires_s = _timestamp_s(status.get("expirationTimestamp"))


def _timestamp_s(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return float("inf")


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate from memory: the library reads files only."""
    descriptors = []
    try:
        for name, content in (("certificate", certificate), ("key", key or certificate)):
            fd = os.memfd_create(name)
            descriptors.append(fd)
            os.write(fd, content)
        context.load_cert_chain(*(f"/proc/self/fd/{fd}" for fd in descriptors))
    except ssl.SSLError as error:
        reason = error.reason or "it has no certificate and key"
        raise ConfigError(f"The client certificate is not valid: {reason}.") from error
    finally:
        for fd in descriptors:
            os.close(fd)


# -- inside a pod ---------------------------------------------------------------------------------------


def is_in_pod() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (SERVICE_ACCOUNT / "token").exists()


def of_service_account(folder: Path = SERVICE_ACCOUNT) -> ClusterAccess:
    """Access by the service account of the pod that this process runs in."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").exists():
        raise ConfigError(
            "There is no service account here.", hint="Set kubeconfig in the section of the engine."
        )
    return ClusterAccess(
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        TokenFile(folder / "token"),
        ca=(folder / "ca.crt").read_text(),
        namespace=(folder / "namespace").read_text().strip(),
    )


# -- kubeconfig -----------------------------------------------------------------------------------------


def kubeconfig_files(configured: str = "") -> list[Path]:
    """Files that make up the kubeconfig: the configured one, those of KUBECONFIG, or that of the account."""
    if configured:
        return [Path(configured).expanduser()]
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(":") if part]
    return named or [Path("~/.kube/config").expanduser()]


def of_kubeconfig(files: Sequence[Path], context: str = "") -> ClusterAccess:
    """Access by a context of a kubeconfig, by default its current one."""
    documents = [(_document(path), path) for path in files if path.exists()]
    if not documents:
        raise ConfigError(
            f"There is no kubeconfig {', '.join(map(str, files))}.",
            hint="Set kubeconfig in the section of the engine, or the variable KUBECONFIG.",
        )
    name = context or next(
        (str(one["current-context"]) for one, _ in documents if one.get("current-context")), ""
    )
    if not name:
        raise ConfigError(
            f"The kubeconfig {documents[0][1]} has no current context.",
            hint="Choose one: kubectl config use-context NAME",
        )
    chosen, _ = _entry(documents, "contexts", "context", name)
    cluster, cluster_file = _entry(documents, "clusters", "cluster", str(chosen.get("cluster", "")))
    user: Mapping[str, Any] = {}
    user_file = cluster_file
    if chosen.get("user"):
        user, user_file = _entry(documents, "users", "user", str(chosen["user"]))
    server = str(cluster.get("server") or "")
    if not server.startswith(("https://", "http://")):
        raise ConfigError(
            f"The kubeconfig {cluster_file} has no address of the cluster {chosen.get('cluster')}."
        )
    return ClusterAccess(
        server.rstrip("/"),
        _credentials(user, user_file),
        ca=_content(cluster, "certificate-authority", cluster_file).decode(),
        verify=not cluster.get("insecure-skip-tls-verify"),
        tls_server_name=str(cluster.get("tls-server-name") or ""),
        namespace=str(chosen.get("namespace") or ""),
    )


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise ConfigError(f"The kubeconfig {path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"The kubeconfig {path} is not valid YAML: {reason}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"The kubeconfig {path} is not a kubeconfig.")
    return document


def _entry(
    documents: Sequence[tuple[Mapping[str, Any], Path]], kind: str, key: str, name: str
) -> tuple[Mapping[str, Any], Path]:
    for document, path in documents:
        for entry in document.get(kind) or ():
            if isinstance(entry, dict) and entry.get("name") == name:
                return entry.get(key) or {}, path
    names = ", ".join(str(path) for _, path in documents)
    raise ConfigError(
        f"The kubeconfig {names} has no {key} {name}.", hint="Check: kubectl config get-contexts"
    )


def _credentials(user: Mapping[str, Any], file: Path) -> ApiCredentials:
    if user.get("exec"):
        return ExecPlugin(user["exec"], file.parent)
    if user.get("auth-provider"):
        raise ConfigError(
            f"The kubeconfig {file} uses an auth-provider, which Kubernetes has removed.",
            hint="Use its exec plugin, a token, or a client certificate.",
        )
    if user.get("tokenFile"):
        return TokenFile(file.parent / str(user["tokenFile"]))
    return StaticCredentials(
        token=str(user.get("token") or ""),
        certificate=_content(user, "client-certificate", file),
        key=_content(user, "client-key", file),
    )


def _content(section: Mapping[str, Any], key: str, file: Path) -> bytes:
    """Content that a kubeconfig has inside, or in a file that it names relative to itself."""
    try:
        if section.get(f"{key}-data"):
            return base64.b64decode(str(section[f"{key}-data"]), validate=True)
        if section.get(key):
            return (file.parent / str(section[key])).read_bytes()
    except binascii.Error as error:
        raise ConfigError(f"The kubeconfig {file} has a {key}-data that is not base64.") from error
    except OSError as error:
        raise ConfigError(f"The {key} of the kubeconfig {file} cannot be read: {error.strerror}.") from error
    return b""
