"""OpenSSH's client programs, with the key and the address that a cluster gives for a job."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.external_services import debian
from support.server_fixture import DEADLINE_S, Cluster, eventually


def install_openssh() -> None:
    debian(["openssh-client", "rsync"], commands=["ssh", "scp", "sftp", "rsync", "ssh-keygen"])


def ssh_info(cluster: Cluster, framework: str, **more: Any) -> dict[str, Any]:
    """What the API tells about the SSH of a job, once one of its tasks runs."""
    path = f"/api/v2/jobs/{framework}/ssh"
    info: dict[str, Any] = eventually(
        lambda: reply.json() if (reply := cluster.get(path, **more)).status == 200 else None, "its SSH info"
    )
    return info


def download_key(cluster: Cluster, info: dict[str, Any]) -> bytes:
    link = urlsplit(info["keyPair"]["privateKeyDirectDownloadLink"])
    reply = cluster.get(f"{link.path}?{link.query}", token=None)
    assert reply.status == 200, reply.text
    return reply.body


def new_key(file: Path) -> bytes:
    """A new private key; the public one is beside it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    return file.read_bytes()


class SshClient:
    """Client programs in a folder of their own: they read no configuration of the account."""

    def __init__(self, folder: Path, info: dict[str, Any], key: bytes, user: str = "") -> None:
        self.folder = folder
        self.port = int(info["containers"][0]["sshPort"])
        self.address = info["containers"][0]["sshIp"]
        folder.mkdir(parents=True, exist_ok=True)
        key_file = folder / "key"
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        (folder / "known_hosts").write_text(f"[{self.address}]:{self.port} {info['hostKey']}\n")
        (folder / "config").write_text(
            f"Host task\n  HostName {self.address}\n  Port {self.port}\n"
            f"  User {user or info['containers'][0]['user']}\n"
            f"  IdentityFile {key_file}\n  IdentitiesOnly yes\n  BatchMode yes\n"
            f"  UserKnownHostsFile {folder / 'known_hosts'}\n  StrictHostKeyChecking yes\n  LogLevel ERROR\n"
        )

    @classmethod
    def of_job(cls, cluster: Cluster, framework: str, folder: Path, user: str = "") -> SshClient:
        info = ssh_info(cluster, framework)
        return cls(folder, info, download_key(cluster, info), user)

    def run(self, program: str, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """`ssh`, `scp` or `sftp`; the host is called task."""
        command = [program, "-F", str(self.folder / "config"), *words]
        return subprocess.run(
            command, capture_output=True, cwd=self.folder, timeout=DEADLINE_S, check=False, **options
        )

    def ssh(self, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        return self.run("ssh", "task", *words, **options)

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["ssh", "-F", str(self.folder / "config"), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            **options,
        )

    def out(self, line: str) -> str:
        done = self.ssh(line)
        assert done.returncode == 0, done
        return done.stdout.decode()
