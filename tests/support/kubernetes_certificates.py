"""Certificates, keys and kubeconfigs of a test cluster."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class CertificateAuthority:
    """Issues the certificates and kubeconfigs of one cluster, into a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pai-test-kubernetes")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = builder.add_extension(usage, True).sign(self._key, hashes.SHA256())
        self._write("ca", self.certificate, self._key)
        account = rsa.generate_private_key(65537, 2048)
        (folder / "sa.key").write_bytes(_private(account))
        public = account.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (folder / "sa.pub").write_bytes(public)

    def issue(self, name: str, user: str, group: str = "", addresses: Sequence[str] = ()) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        both = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = self._builder(x509.Name(attributes), key).add_extension(x509.ExtendedKeyUsage(both), False)
        names: list[x509.GeneralName] = []
        for address in addresses:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(address)))
            except ValueError:
                names.append(x509.DNSName(address))
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        self._write(name, builder.sign(self._key, hashes.SHA256()), key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        since = now - datetime.timedelta(days=1)
        return builder.not_valid_before(since).not_valid_after(now + datetime.timedelta(days=365))

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        (self.folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (self.folder / f"{name}.key").write_bytes(_private(key))

    def kubeconfig(self, path: Path, name: str, server: str) -> None:
        def data(file: str) -> str:
            return base64.b64encode((self.folder / file).read_bytes()).decode()

        cluster = {"server": server, "certificate-authority-data": data("ca.crt")}
        user = {"client-certificate-data": data(f"{name}.crt"), "client-key-data": data(f"{name}.key")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(document))  # JSON is YAML
        path.chmod(0o600)


def _private(key: Any) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))


def issue_control_plane(
    folder: Path, kubeconfig: Path, server: str, addresses: Sequence[str]
) -> CertificateAuthority:
    """Certificates of the control plane, and the administrator's kubeconfig; nodes get theirs later."""
    authority = CertificateAuthority(folder)
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    authority.issue("apiserver", "kube-apiserver", addresses=[*names, "127.0.0.1", *addresses])
    for name, user, group in (
        ("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters"),
        ("admin", "admin", "system:masters"),
        ("controller-manager", "system:kube-controller-manager", ""),
        ("scheduler", "system:kube-scheduler", ""),
    ):
        authority.issue(name, user, group)
    authority.kubeconfig(kubeconfig, "admin", server)
    for name in ("controller-manager", "scheduler"):
        authority.kubeconfig(folder / f"{name}.kubeconfig", name, server)
    return authority
